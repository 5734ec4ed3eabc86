package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Options say how an installation is told of. Both functions may be nil; they are
// not called at once.
type Options struct {
	Progress func(Progress)      // what is going on
	Waiting  func(holder string) // another process writes in the store; it is waited for
}

// Progress is where an installation is.
type Progress struct {
	Part  string // which part: the name of the base, or the engine's
	Step  string // what it does, in words
	Bytes int64  // downloaded so far; 0 where nothing is downloaded
	Total int64  // to download; 0 if unknown
	Done  bool   // the step is over
}

// Install makes an environment, or finds it made. It may be interrupted or killed
// at any moment and called again: it goes on where it was.
//
// Errors: [*UnknownError], [*MissingError] and [*DiskError] before anything is
// done, [*StepError] for what fails later, and that of the context.
func (s *Store) Install(ctx context.Context, spec, device string, o Options) (*Environment, error) {
	r, err := s.Catalog.Find(spec, device)
	if err != nil {
		return nil, err
	}
	if e, err := s.Find(ctx, spec, device); err == nil {
		return e, nil
	}
	if o.Waiting == nil {
		o.Waiting = func(string) {}
	}
	lock, err := s.lock(ctx, "engine install "+spec, o.Waiting)
	if err != nil {
		return nil, writing(s.Root, err)
	}
	defer lock.unlock()
	if e, err := s.Find(ctx, spec, device); err == nil { // the one that was waited for made it
		return e, nil
	}
	if err := s.install(ctx, r, lock, o); err != nil {
		return nil, writing(s.Root, err)
	}
	return s.Find(ctx, spec, device)
}

// writing makes errors of the file system tell what was being done.
func writing(root string, err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return &StepError{Step: "write in " + root, Reason: pe.Error(), Err: err}
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return &StepError{Step: "write in " + root, Reason: le.Error(), Err: err}
	}
	return err
}

func (s *Store) install(ctx context.Context, r Recipe, lock *storeLock, o Options) error {
	m := thisMachine()
	python, err := m.ready(ctx, r)
	if err != nil {
		return err
	}
	if err := s.discardBroken(r, python.Minor); err != nil {
		return err
	}
	base := &build{
		store: s, machine: m, python: python, lock: lock.file, options: o, part: r.Base.Name,
		final: filepath.Join(s.bases(), r.baseDir(python.Minor)),
	}
	engine := &build{
		store: s, machine: m, python: python, lock: lock.file, options: o, part: r.Spec(),
		final: filepath.Join(s.envs(), r.envDir(python.Minor)),
	}
	base.staging, engine.staging = base.final+staged, engine.final+staged
	if err := s.checkDisk(r, base, engine); err != nil {
		return err
	}
	if _, err := os.Stat(base.final); err != nil {
		if err := base.makeBase(ctx, r.Base); err != nil {
			return err
		}
	}
	if err := engine.makeEngine(ctx, r, base.final); err != nil {
		return err
	}
	return s.discardOutdated(r)
}

// checkDisk compares the room that is free with the room that is still needed:
// for what is made, and for the wheels of one batch on each lane.
func (s *Store) checkDisk(r Recipe, base, engine *build) error {
	var needed int64
	for _, x := range []struct {
		b *build
		l *Lock
	}{{base, r.Base}, {engine, r.Engine}} {
		if _, err := os.Stat(x.b.final); err == nil {
			continue
		}
		needed += max(0, x.l.DiskBytes-treeBytes(x.b.staging))
		if first := batches(x.l.Packages); len(first) > 0 {
			needed += first[0].bytes
		}
	}
	free, err := freeBytes(s.Root)
	if err != nil {
		return err
	}
	if free < needed {
		return &DiskError{Path: s.Root, Needed: needed, Free: free}
	}
	return nil
}

// A build is the making of one folder.
type build struct {
	store   *Store
	machine machine
	python  interpreter
	lock    *os.File // the store's lock; children keep it while they run
	options Options
	part    string
	final   string // the folder when it is done
	staging string // until then

	journal *journal
	meter   meter
}

func (b *build) report(p Progress) {
	p.Part = b.part
	if b.options.Progress != nil {
		b.options.Progress(p)
	}
}

// env is the environment of every child.
func (b *build) env() []string { return cleanEnv(b.machine.environ) }

// command runs one child, its output in the step's log. reason puts that output
// into words where it fails.
func (b *build) command(ctx context.Context, step string, reason func(string) string, env []string, args ...string) error {
	if err := os.MkdirAll(b.store.logs(), 0o755); err != nil {
		return err
	}
	path := filepath.Join(b.store.logs(), filepath.Base(b.final)+".log")
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	out := &tail{to: log, keep: 256 << 10}
	fmt.Fprintf(log, "\n== %s\n", strings.Join(args, " "))
	err = child{args: args, env: env, log: out, hold: b.lock}.run(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	why := reason(out.text())
	if why == "" || exitCode(err) < 0 { // it said nothing, was killed, or did not start
		why = err.Error()
	}
	return &StepError{Step: step, Reason: why, Log: path, Err: err}
}

// step runs f unless the journal has it.
func (b *build) step(ctx context.Context, name string, f func(ctx context.Context) error) error {
	if b.journal.done[name] {
		return nil
	}
	b.report(Progress{Step: name})
	if err := f(ctx); err != nil {
		return err
	}
	b.report(Progress{Step: name, Done: true})
	return b.journal.finish(name)
}

// begin opens the staging folder. A log of an earlier installation is put away.
func (b *build) begin() error {
	if _, err := os.Stat(b.staging); err != nil {
		_ = os.Remove(filepath.Join(b.store.logs(), filepath.Base(b.final)+".log"))
	}
	var err error
	b.journal, err = openJournal(b.staging)
	return err
}

// The steps of a build, as they are in the journal and shown.
const (
	stepVenv     = "environment"
	stepStubs    = "stand-ins for CUDA"
	stepBytecode = "bytecode"
	stepCheck    = "imports"
)

// makeBase makes the virtual environment that engines share.
func (b *build) makeBase(ctx context.Context, l *Lock) error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.journal.close()
	venv := filepath.Join(b.staging, "venv")
	python := filepath.Join(venv, "bin", "python")
	err := b.step(ctx, stepVenv, func(ctx context.Context) error { return b.venv(ctx, venv) })
	if err != nil {
		return err
	}
	if err := b.packages(ctx, python, batches(l.Packages)); err != nil {
		return err
	}
	b.report(Progress{Step: "packages", Bytes: l.downloadBytes(), Total: l.downloadBytes(), Done: true})
	site := sitePackages(venv, b.python.Minor)
	if err := b.step(ctx, stepStubs, func(ctx context.Context) error { return b.stubs(ctx, l, site) }); err != nil {
		return err
	}
	if err := b.step(ctx, stepBytecode, func(ctx context.Context) error { return b.bytecode(ctx, python, site) }); err != nil {
		return err
	}
	if err := b.step(ctx, stepCheck, func(ctx context.Context) error { return b.check(ctx, python, l, b.env()) }); err != nil {
		return err
	}
	if err := relocate(filepath.Join(venv, "bin"), b.staging, b.final); err != nil {
		return err
	}
	return b.finish(record{Device: l.Device, Python: b.python.Version, Digest: l.Digest, Packages: versions(l), Env: l.Env})
}

// venv makes an empty virtual environment. It is made under a name of its own, for
// the module venv has a child that may outlive a kill and write on.
func (b *build) venv(ctx context.Context, venv string) error {
	if err := b.discardMatches("venv*"); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(b.staging, "venv-")
	if err != nil {
		return err
	}
	if err := b.command(ctx, "make the environment", lastLine, b.env(), b.python.Executable, "-m", "venv", fresh); err != nil {
		return err
	}
	if err := relocate(filepath.Join(fresh, "bin"), fresh, venv); err != nil {
		return err
	}
	return os.Rename(fresh, venv)
}

// discardMatches takes away what in the staging folder matches a pattern.
func (b *build) discardMatches(pattern string) error {
	paths, err := filepath.Glob(filepath.Join(b.staging, pattern))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := b.store.discard(path); err != nil {
			return err
		}
	}
	return nil
}

// makeEngine makes the folder of one engine version, on a base that is done.
func (b *build) makeEngine(ctx context.Context, r Recipe, base string) error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.journal.close()
	python := filepath.Join(base, "venv", "bin", "python")
	site := filepath.Join(b.staging, "site")
	err := b.step(ctx, "packages", func(ctx context.Context) error {
		// pip does not write into a target that is not empty.
		if err := os.RemoveAll(site); err != nil {
			return err
		}
		all := batch{packages: r.Engine.Packages, bytes: r.Engine.downloadBytes()}
		defer b.watch("packages", all.bytes)()
		return b.pip(ctx, python, all, "--target", site)
	})
	if err != nil {
		return err
	}
	if err := b.step(ctx, stepBytecode, func(ctx context.Context) error { return b.bytecode(ctx, python, site) }); err != nil {
		return err
	}
	err = b.step(ctx, stepCheck, func(ctx context.Context) error {
		env := setEnv(b.env(), "PYTHONPATH", site)
		for _, pair := range slices.Concat(r.Base.Env, r.Engine.Env) {
			name, value, _ := strings.Cut(pair, "=")
			env = setEnv(env, name, value)
		}
		return b.check(ctx, python, r.Engine, env)
	})
	if err != nil {
		return err
	}
	packages := versions(r.Base)
	for name, version := range versions(r.Engine) {
		packages[name] = version
	}
	return b.finish(record{
		Engine: r.Engine.Name, Version: r.Engine.Version, Device: r.Device(), Base: filepath.Base(base),
		Python: b.python.Version, Digest: r.Digest(), Packages: packages, Env: slices.Concat(r.Base.Env, r.Engine.Env),
	})
}

// finish writes the record and gives the staging folder its name.
func (b *build) finish(r record) error {
	for _, pattern := range []string{"tmp", "venv-*", "compile-*.txt"} {
		if err := b.discardMatches(pattern); err != nil {
			return err
		}
	}
	r.SizeBytes = treeBytes(b.staging)
	if err := r.write(b.staging); err != nil {
		return err
	}
	return os.Rename(b.staging, b.final)
}

func versions(l *Lock) map[string]string {
	out := map[string]string{}
	for _, p := range l.Packages {
		out[p.Name] = p.Version
	}
	return out
}

func sitePackages(venv, minor string) string {
	return filepath.Join(venv, "lib", "python"+minor, "site-packages")
}

// stubs makes the stand-ins that the base asks for.
func (b *build) stubs(ctx context.Context, l *Lock, site string) error {
	tmp := filepath.Join(b.staging, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(tmp, "stubs-") // a killed compiler's children may write on
	if err != nil {
		return err
	}
	if slices.Contains(l.Stubs, stubCUDA) {
		_, err := CUDAStubs(ctx, site, scratch, func(ctx context.Context, args ...string) error {
			return b.command(ctx, "compile the stand-ins", compilerReason, b.env(), append([]string{"gcc"}, args...)...)
		})
		if err != nil {
			return err
		}
	}
	if !slices.Contains(l.Stubs, stubSGLKernel) {
		return nil
	}
	pkg := filepath.Join(site, "sgl_kernel")
	if err := os.MkdirAll(pkg, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(pkg, "__init__.py"), sglKernel, 0o644)
}

var compilerError = regexp.MustCompile(`(?m)^.*error: .*$`)

// compilerReason is the first error that the compiler printed.
func compilerReason(output string) string {
	if first := compilerError.FindString(output); first != "" {
		return first
	}
	return lastLine(output)
}

// check imports what must import.
func (b *build) check(ctx context.Context, python string, l *Lock, env []string) error {
	args := append([]string{python, "-c", checkScript}, l.Imports...)
	args = append(append(args, "--"), l.NoCUDA...)
	return b.command(ctx, "import "+strings.Join(l.Imports, ", "), lastLine, env, args...)
}

// bytecode compiles every module below a folder, so that no process of an engine
// has to. Files that are no valid Python, such as templates, are left alone.
func (b *build) bytecode(ctx context.Context, python, site string) error {
	lists, err := shares(site, runtime.NumCPU())
	if err != nil {
		return err
	}
	return each(ctx, len(lists), len(lists), func(ctx context.Context, i int) error {
		file := filepath.Join(b.staging, fmt.Sprintf("compile-%d.txt", i))
		if err := os.WriteFile(file, []byte(strings.Join(lists[i], "\n")+"\n"), 0o644); err != nil {
			return err
		}
		defer os.Remove(file)
		err := b.command(ctx, "compile bytecode", lastLine, b.env(), python, "-m", "compileall", "-q", "-i", file)
		if exitCode(err) == 1 && ctx.Err() == nil {
			return nil // files that do not compile
		}
		return err
	})
}

// shares divides what lies at the top of a folder into n lists of like size.
func shares(folder string, n int) ([][]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	type entry struct {
		path  string
		bytes int64
	}
	var all []entry
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if e.IsDir() || strings.HasSuffix(path, ".py") {
			all = append(all, entry{path, sourceBytes(path)})
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return int(min(max(b.bytes-a.bytes, -1), 1)) })
	lists, load := make([][]string, n), make([]int64, n)
	for _, e := range all {
		least := slices.Index(load, slices.Min(load))
		lists[least] = append(lists[least], e.path)
		load[least] += e.bytes
	}
	return slices.DeleteFunc(lists, func(l []string) bool { return len(l) == 0 }), nil
}
