package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/adapters/engines/launch"
	"conform/traces"
)

var (
	// ErrOpen is a session that was opened twice.
	ErrOpen = errors.New("the adapter is open already")
	// ErrNotOpen is a session that nobody has opened, or that was closed.
	ErrNotOpen = errors.New("the adapter is not open")
)

// A Kind is how the workers of one engine are started, as data.
type Kind struct {
	Engine  string   // as in sglang@0.5.23
	Module  string   // what `python -m` starts
	Preload []string // what the fork server imports before the first worker
	Script  string   // what the fork server runs in each worker
	Probe   Probe
	// PlainVariable asks for workers that are started with `python -m`, not forked.
	PlainVariable string
}

// A Session is what the stacks of one run share: the engine's environment, what starts
// its workers, and the reference answers. The zero value is closed. Its fields are set
// while it is open.
type Session struct {
	Launcher launch.Launcher
	Env      *engines.Environment
	Answers  *Answers
	Cache    string // the engine's folder below the user's cache
	Temp     string // for the workers' temporary files
	Probe    string // the folder of the probe
	Model    string // the folder of the model

	mu      sync.Mutex
	scratch *launch.Scratch
}

// Open finds the engine and starts the fork server; inherited is asked for the
// variables that the latter gets besides this program's. After an error nothing of it
// is left.
func (s *Session) Open(ctx context.Context, k Kind, cfg adapters.Config, inherited func() []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Launcher != nil {
		return ErrOpen
	}
	if err := s.open(ctx, k, cfg, inherited); err != nil {
		return errors.Join(err, s.discard())
	}
	return nil
}

func (s *Session) open(ctx context.Context, k Kind, cfg adapters.Config, inherited func() []string) error {
	env, err := engines.Find(ctx, k.Engine+"@"+cfg.Version, cfg.Device)
	if err != nil {
		return err
	}
	if s.Cache, err = CacheDir(k.Engine); err != nil {
		return err
	}
	if s.Probe, err = k.Probe.Unpack(s.Cache); err != nil {
		return fmt.Errorf("unpack the probe: %w", err)
	}
	var digest string
	if s.Model, digest, err = Model(s.Cache, cfg.Model); err != nil {
		return err
	}
	if s.scratch, err = launch.NewScratch(); err != nil {
		return err
	}
	s.Temp, s.Env = s.scratch.Path, env
	s.Answers = OpenAnswers(filepath.Join(s.Cache, "answers"), env.Version, env.Device, digest)
	if os.Getenv(k.PlainVariable) != "" || cfg.Device != engines.CPU { // what has touched a GPU can't be forked
		s.Launcher = launch.Plain(env, k.Module)
		return nil
	}
	forks, err := launch.NewForkServer(ctx, env, launch.ForkOptions{
		Dir: s.Temp, Script: k.Script, Module: k.Module, Preload: k.Preload, Env: env.Environ(append(os.Environ(), inherited()...)),
	})
	if err != nil {
		return err
	}
	s.Launcher = forks
	return nil
}

// Check is [ErrNotOpen] unless the session is open.
func (s *Session) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Launcher == nil {
		return ErrNotOpen
	}
	return nil
}

// Close ends the fork server, whatever it started, and the temporary files. It may be
// called again.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discard()
}

func (s *Session) discard() error {
	var errs []error
	if s.Launcher != nil {
		errs = append(errs, s.Launcher.Close())
		s.Launcher = nil
	}
	errs = append(errs, s.scratch.Close())
	s.scratch, s.Temp = nil, ""
	return errors.Join(errs...)
}

// Describe gives a command line for each worker, for a shell. commands lists the
// workers with their arguments and variables, for a model's folder and a clock.
func (k Kind) Describe(cfg adapters.Config, commands func(model, clock string) ([]launch.Spec, error)) (string, error) {
	env, err := engines.Find(context.Background(), k.Engine+"@"+cfg.Version, cfg.Device)
	if err != nil {
		return "", err
	}
	cache, err := CacheDir(k.Engine)
	if err != nil {
		return "", err
	}
	model := BuiltinModel(cache)
	if cfg.Model != "" {
		if model, err = filepath.Abs(cfg.Model); err != nil {
			return "", err
		}
	}
	front, err := k.Probe.Dir(cache)
	if err != nil {
		return "", err
	}
	_, clock := traces.Monotonic()
	specs, err := commands(model, clock)
	if err != nil {
		return "", err
	}
	plain := launch.Plain(env, k.Module)
	defer plain.Close()
	path := "PYTHONPATH=" + strings.Join(append([]string{front}, env.PythonPath...), string(os.PathListSeparator))
	var b strings.Builder
	for _, spec := range specs {
		spec.Env = slices.Concat(env.Env, spec.Env, []string{path})
		b.WriteString(plain.Describe(spec) + "\n")
	}
	return b.String(), nil
}
