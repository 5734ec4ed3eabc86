package engines

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// An Environment is an installed engine.
type Environment struct {
	Engine        string            // such as sglang
	Version       string            // such as 0.5.23
	Device        string            // CPU or CUDA
	Python        string            // absolute path of the interpreter
	PythonVersion string            // such as 3.11.7
	PythonPath    []string          // folders that PYTHONPATH must have, in this order
	Env           []string          // NAME=VALUE pairs that its processes need
	Packages      map[string]string // the version of each package
	Digest        string            // sha256 in hex, of the locks and how they are installed
	SizeBytes     int64             // on disk, without the base
	BaseBytes     int64             // of the base, which other versions may share
}

// Spec is how a person names the engine, such as sglang@0.5.23.
func (e *Environment) Spec() string { return e.Engine + "@" + e.Version }

// Environ is the environment of a process that runs in e: inherited (such as
// os.Environ) without what would lead other packages in, and what e needs.
// Folders in front, such as a probe's, come before e's own in PYTHONPATH.
func (e *Environment) Environ(inherited []string, front ...string) []string {
	env := cleanEnv(inherited)
	env = setEnv(env, "PYTHONPATH", strings.Join(slices.Concat(front, e.PythonPath), string(os.PathListSeparator)))
	for _, pair := range e.Env {
		name, value, _ := strings.Cut(pair, "=")
		env = setEnv(env, name, value)
	}
	return env
}

// A NotInstalledError is an engine that could be installed, and is not.
type NotInstalledError struct {
	Spec   string
	Device string
	Reason string // "" if it simply is not there
}

// Command is what installs it.
func (e *NotInstalledError) Command() string {
	c := "conform engine install " + e.Spec
	if e.Device != CPU {
		c += " --device " + e.Device
	}
	return c
}

func (e *NotInstalledError) Error() string {
	reason := ""
	if e.Reason != "" {
		reason = ": " + e.Reason
	}
	return fmt.Sprintf("%s is not installed for %s%s; install it with: %s", e.Spec, e.Device, reason, e.Command())
}

// Find gives an engine of the user's store ([Open]). An error is a
// [*NotInstalledError] or an [*UnknownError], or that of opening the store.
func Find(ctx context.Context, spec, device string) (*Environment, error) {
	s, err := Open(os.Getenv)
	if err != nil {
		return nil, err
	}
	return s.Find(ctx, spec, device)
}

// Find gives an installed engine such as "sglang@0.5.23". It does not wait for an
// installation that is under way. An error is a [*NotInstalledError] or an
// [*UnknownError].
func (s *Store) Find(ctx context.Context, spec, device string) (*Environment, error) {
	r, err := s.Catalog.Find(spec, device)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	none := &NotInstalledError{Spec: spec, Device: device}
	for _, minor := range r.Pythons() {
		e, err := s.read(filepath.Join(s.envs(), r.envDir(minor)))
		if err == nil {
			return e, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			none.Reason = err.Error()
		}
	}
	return nil, none
}

// read gives the environment in a folder. The error is fs.ErrNotExist if there is
// none, and another if it does not work any more.
func (s *Store) read(dir string) (*Environment, error) {
	rec, err := readRecord(dir)
	if err != nil {
		return nil, err
	}
	baseDir := filepath.Join(s.bases(), filepath.Base(rec.Base))
	base, err := readRecord(baseDir)
	if err != nil {
		return nil, fmt.Errorf("its base %s is gone", rec.Base)
	}
	python := filepath.Join(baseDir, "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return nil, errors.New("the Python that it was made with is gone")
	}
	return &Environment{
		Engine: rec.Engine, Version: rec.Version, Device: rec.Device, Python: python, PythonVersion: rec.Python,
		PythonPath: []string{filepath.Join(dir, "site")}, Env: rec.Env, Packages: rec.Packages, Digest: rec.Digest,
		SizeBytes: rec.SizeBytes, BaseBytes: base.SizeBytes,
	}, nil
}

// thisMachine is the machine that the program runs on.
func thisMachine() machine {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return machine{getenv: os.Getenv, environ: os.Environ(), platform: runtime.GOOS + "-" + arch, libraries: libraryFolders}
}

// The states of an engine in a listing.
const (
	Installed = "installed" // ready
	Available = "available" // has a lock, nothing is installed
	Partial   = "partial"   // an installation was interrupted; install goes on
	Broken    = "broken"    // it does not work any more; install mends it
	Outdated  = "outdated"  // of another lock file than the program's; install replaces it
)

// A Listing is one engine in a listing.
type Listing struct {
	Spec      string
	Device    string
	State     string
	Reason    string // of a broken one
	Python    string // of an installed one
	Digest    string
	SizeBytes int64  // on disk, without the base; where nothing is installed, what it will take
	Base      string // the name of the base
	BaseBytes int64  // on disk; where the base is not installed, what it will take
}

// List gives all engines that can be installed, and those that are installed from
// other locks.
func (s *Store) List() ([]Listing, error) {
	var out []Listing
	known := map[string]bool{}
	for _, r := range s.Catalog.Recipes() {
		out = append(out, s.listing(r))
		for _, minor := range r.Pythons() {
			known[r.envDir(minor)] = true
		}
	}
	names, err := folders(s.envs())
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		rec, err := readRecord(filepath.Join(s.envs(), name))
		if err != nil || known[name] || strings.HasSuffix(name, staged) {
			continue
		}
		base, _ := readRecord(filepath.Join(s.bases(), filepath.Base(rec.Base)))
		out = append(out, Listing{
			Spec: rec.Engine + "@" + rec.Version, Device: rec.Device, State: Outdated, Python: rec.Python,
			Digest: rec.Digest, SizeBytes: rec.SizeBytes, Base: rec.Base, BaseBytes: base.SizeBytes,
		})
	}
	return out, nil
}

func (s *Store) listing(r Recipe) Listing {
	l := Listing{
		Spec: r.Spec(), Device: r.Device(), State: Available, Digest: r.Digest(),
		SizeBytes: r.Engine.DiskBytes, Base: r.Base.Name, BaseBytes: r.Base.DiskBytes,
	}
	for _, minor := range r.Pythons() {
		dir, base := filepath.Join(s.envs(), r.envDir(minor)), filepath.Join(s.bases(), r.baseDir(minor))
		if rec, err := readRecord(base); err == nil {
			l.BaseBytes = rec.SizeBytes
		}
		e, err := s.read(dir)
		switch {
		case err == nil:
			l.State, l.Reason, l.Python, l.SizeBytes = Installed, "", e.PythonVersion, e.SizeBytes
			return l
		case !errors.Is(err, fs.ErrNotExist):
			l.State, l.Reason = Broken, err.Error()
		case l.State == Available && (exists(dir+staged) || exists(base+staged)):
			l.State = Partial
		}
	}
	return l
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Remove takes an engine away, also one that is only partly installed, or of an
// earlier lock; and its base, if no other engine stands on it. It returns the room
// that is free again, in bytes. An error is an [*UnknownError] if there is neither
// such an environment nor a lock for one, a [*NotInstalledError] if there is
// nothing to remove, or that of the file system.
func (s *Store) Remove(ctx context.Context, spec, device string, waiting func(holder string)) (int64, error) {
	if waiting == nil {
		waiting = func(string) {}
	}
	if !exists(s.Root) {
		return 0, s.nothing(spec, device)
	}
	lock, err := s.lock(ctx, "engine remove "+spec, waiting)
	if err != nil {
		return 0, writing(s.Root, err)
	}
	defer lock.unlock()
	paths, err := s.foldersOf(spec, device)
	if err != nil {
		return 0, writing(s.Root, err)
	}
	if len(paths) == 0 {
		return 0, s.nothing(spec, device)
	}
	freed, err := s.discardAll(paths)
	if err != nil {
		return freed, writing(s.Root, err)
	}
	more, err := s.discardUnused()
	return freed + more, writing(s.Root, err)
}

func (s *Store) nothing(spec, device string) error {
	if _, err := s.Catalog.Find(spec, device); err != nil {
		return err
	}
	return &NotInstalledError{Spec: spec, Device: device}
}

// foldersOf are the folders of an engine: of whatever lock, finished or not.
func (s *Store) foldersOf(spec, device string) ([]string, error) {
	var out []string
	if r, err := s.Catalog.Find(spec, device); err == nil {
		for _, minor := range r.Pythons() {
			for _, path := range []string{
				filepath.Join(s.envs(), r.envDir(minor)), filepath.Join(s.envs(), r.envDir(minor)+staged),
				filepath.Join(s.bases(), r.baseDir(minor)+staged),
			} {
				if exists(path) {
					out = append(out, path)
				}
			}
			if base := filepath.Join(s.bases(), r.baseDir(minor)); exists(base) {
				if used, err := s.used(); err != nil {
					return nil, err
				} else if !used[r.baseDir(minor)] {
					out = append(out, base)
				}
			}
		}
	}
	names, err := folders(s.envs())
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path := filepath.Join(s.envs(), name)
		rec, err := readRecord(path)
		if err == nil && rec.Engine+"@"+rec.Version == spec && rec.Device == device && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out, nil
}

// used are the bases that an environment stands on.
func (s *Store) used() (map[string]bool, error) {
	names, err := folders(s.envs())
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, name := range names {
		if rec, err := readRecord(filepath.Join(s.envs(), name)); err == nil {
			out[filepath.Base(rec.Base)] = true
		}
	}
	return out, nil
}

// discardUnused takes away finished bases that nothing stands on, and what earlier
// removals left in the trash.
func (s *Store) discardUnused() (int64, error) {
	used, err := s.used()
	if err != nil {
		return 0, err
	}
	names, err := folders(s.bases())
	if err != nil {
		return 0, err
	}
	var paths []string
	for _, name := range names {
		if !used[name] && !strings.HasSuffix(name, staged) {
			paths = append(paths, filepath.Join(s.bases(), name))
		}
	}
	freed, err := s.discardAll(paths)
	if err != nil {
		return freed, err
	}
	return freed, os.RemoveAll(s.trash())
}

func (s *Store) discardAll(paths []string) (int64, error) {
	var freed int64
	for _, path := range paths {
		n := treeBytes(path)
		if err := s.discard(path); err != nil {
			return freed, err
		}
		freed += n
	}
	return freed, nil
}

// discardBroken takes away what of a recipe does not work any more.
func (s *Store) discardBroken(r Recipe, minor string) error {
	base := filepath.Join(s.bases(), r.baseDir(minor))
	python := filepath.Join(base, "venv", "bin", "python")
	if _, err := os.Stat(python); exists(base) && err != nil {
		if err := s.discard(base); err != nil {
			return err
		}
	}
	python = filepath.Join(base+staged, "venv", "bin", "python")
	if _, err := os.Stat(python); exists(python) && err != nil {
		if err := s.discard(base + staged); err != nil {
			return err
		}
	}
	return s.discard(filepath.Join(s.envs(), r.envDir(minor)))
}

// discardOutdated takes away the same engine from other locks, and the bases that
// nothing stands on any more.
func (s *Store) discardOutdated(r Recipe) error {
	names, err := folders(s.envs())
	if err != nil {
		return err
	}
	for _, name := range names {
		rec, err := readRecord(filepath.Join(s.envs(), name))
		same := err == nil && rec.Engine == r.Engine.Name && rec.Version == r.Engine.Version && rec.Device == r.Device()
		if same && rec.Digest != r.Digest() {
			if err := s.discard(filepath.Join(s.envs(), name)); err != nil {
				return err
			}
		}
	}
	_, err = s.discardUnused()
	return err
}
