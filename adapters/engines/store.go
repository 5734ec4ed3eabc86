package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// RootVariable names the environment variable that says where environments are
// kept.
const RootVariable = "CONFORM_ENGINES"

// LocksVariable names the environment variable of a folder with further lock files.
const LocksVariable = "CONFORM_ENGINE_LOCKS"

// A Store is a folder of environments. Several programs may use it at once.
type Store struct {
	Root    string
	Catalog *Catalog
}

// Open gives the user's store: CONFORM_ENGINES, or the folder conform/engines of
// the user's cache; with the embedded locks, and those of CONFORM_ENGINE_LOCKS.
// Nothing is created.
func Open(getenv func(string) string) (*Store, error) {
	root := getenv(RootVariable)
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no folder for environments: %w; set %s", err, RootVariable)
		}
		root = filepath.Join(cache, "conform", "engines")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", RootVariable, err)
	}
	catalog := Builtin()
	if dir := getenv(LocksVariable); dir != "" {
		if _, err := os.ReadDir(dir); err != nil {
			return nil, fmt.Errorf("%s: %w", LocksVariable, err)
		}
		if catalog, err = catalog.Add(os.DirFS(dir)); err != nil {
			return nil, fmt.Errorf("%s: %w", LocksVariable, err)
		}
	}
	return &Store{Root: root, Catalog: catalog}, nil
}

// The folders of a store.
func (s *Store) bases() string { return filepath.Join(s.Root, "bases") }
func (s *Store) envs() string  { return filepath.Join(s.Root, "envs") }
func (s *Store) trash() string { return filepath.Join(s.Root, "trash") }
func (s *Store) logs() string  { return filepath.Join(s.Root, "logs") }

// staged is the end of the name of a folder that is not finished.
const staged = ".part"

// record is the file env.json of a finished environment or base.
type record struct {
	Engine    string            `json:"engine,omitempty"`
	Version   string            `json:"version,omitempty"`
	Device    string            `json:"device"`
	Base      string            `json:"base,omitempty"` // the folder of the base
	Python    string            `json:"python"`         // such as 3.11.7
	Digest    string            `json:"digest"`
	SizeBytes int64             `json:"size_bytes"`
	Packages  map[string]string `json:"packages"`
	Env       []string          `json:"env,omitempty"`
}

const recordName = "env.json"

func readRecord(dir string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, recordName), err)
	}
	return r, nil
}

func (r record) write(dir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, recordName), append(data, '\n'))
}

// writeFile writes a file whole or not at all.
func writeFile(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// A storeLock is the right to write in a store.
type storeLock struct{ file *os.File }

// lockPoll is how often a held lock is tried again.
const lockPoll = 200 * time.Millisecond

// lock waits until nobody else writes in the store. purpose is what others are
// told who wait; waiting is called once, with what the holder said, if it is held.
func (s *Store) lock(ctx context.Context, purpose string, waiting func(holder string)) (*storeLock, error) {
	if err := os.MkdirAll(s.Root, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.Root, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for told := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if !told {
			told = true
			waiting(readHolder(f))
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	// Only for those who wait: the lock is the kernel's.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d (%s)\n", os.Getpid(), purpose), 0)
	return &storeLock{f}, nil
}

func readHolder(f *os.File) string {
	buf := make([]byte, 200)
	n, _ := f.ReadAt(buf, 0)
	if text := strings.TrimSpace(strings.ToValidUTF8(string(buf[:n]), "?")); text != "" {
		return text
	}
	return "another process"
}

func (l *storeLock) unlock() {
	_ = l.file.Truncate(0)
	_ = l.file.Close() // the kernel lets go when the last child that has it open ends
}

// discard takes a folder away: out of sight at once, and then off the disk. A kill
// in between leaves it in the trash, which the next writer empties.
func (s *Store) discard(path string) error {
	if !exists(path) {
		return nil
	}
	if err := os.MkdirAll(s.trash(), 0o755); err != nil {
		return err
	}
	hole, err := os.MkdirTemp(s.trash(), "x")
	if err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(hole, filepath.Base(path))); err != nil {
		return err
	}
	// What is still being written there by an orphan is left for the next writer.
	_ = os.RemoveAll(hole)
	return nil
}

// folders are the names in a folder of the store; none if it is not there.
func folders(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
