package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	scratchPrefix = "conform-" // of the folders' names
	// ownerFile in a folder is locked by the program whose folder it is, for as long as
	// that lives: the kernel gives the lock back, however it ends.
	ownerFile = ".owner"
)

// Scratch is a folder for the temporary files of one run. What a killed program has left
// of its own is removed by the next [NewScratch].
type Scratch struct {
	Path  string
	owner *os.File
}

// NewScratch makes a folder among the system's temporary files, after it has removed
// those of programs that have ended.
func NewScratch() (*Scratch, error) {
	sweep(os.TempDir())
	path, err := os.MkdirTemp("", scratchPrefix)
	if err != nil {
		return nil, err
	}
	owner, err := own(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("own %s: %w", path, err), os.RemoveAll(path))
	}
	return &Scratch{Path: path, owner: owner}, nil
}

// Close removes the folder. It may be called on nil.
func (s *Scratch) Close() error {
	if s == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(s.Path), s.owner.Close())
}

// own locks the owner's file before it has its name: nobody finds it unlocked.
func own(path string) (*os.File, error) {
	fresh := filepath.Join(path, ownerFile+".new")
	f, err := os.OpenFile(fresh, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(lock(f), os.Rename(fresh, filepath.Join(path, ownerFile))); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// sweep removes the folders whose owner is gone. What it can't remove, or is not sure
// of, it leaves for later: nothing depends on it.
func sweep(temp string) {
	root, err := os.OpenRoot(temp)
	if err != nil {
		return
	}
	defer root.Close()
	entries, _ := os.ReadDir(temp)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), scratchPrefix) {
			_ = sweepOne(root, e.Name())
		}
	}
}

// errNotOurs is why a folder stays: it is no folder of this user's with an owner's file.
var errNotOurs = errors.New("not a folder of this user's program")

// sweepOne removes one folder, through handles that no link leads astray. The owner's
// file goes last: a folder that could not be emptied is recognized again.
func sweepOne(root *os.Root, name string) error {
	dir, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := ours(root, name, dir); err != nil {
		return err
	}
	if info, err := dir.Lstat(ownerFile); err != nil || !info.Mode().IsRegular() {
		return errNotOurs
	}
	f, err := dir.OpenFile(ownerFile, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil { // it lives
		return err
	}
	entries, err := os.ReadDir(filepath.Join(root.Name(), name))
	for _, e := range entries {
		if e.Name() != ownerFile {
			err = errors.Join(err, dir.RemoveAll(e.Name()))
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(dir.Remove(ownerFile), root.Remove(name))
}

// ours makes sure that what was opened is what the name says, a folder of this user's.
func ours(root *os.Root, name string, opened *os.Root) error {
	named, err := root.Lstat(name)
	if err != nil {
		return err
	}
	is, err := opened.Stat(".")
	if err != nil {
		return err
	}
	owner, ok := is.Sys().(*syscall.Stat_t)
	if !named.IsDir() || !os.SameFile(named, is) || !ok || int(owner.Uid) != os.Getuid() {
		return errNotOurs
	}
	return nil
}
