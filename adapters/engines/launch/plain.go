package launch

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"conform/adapters/engines"
)

// Plain starts workers as a person does: with `python -m module ARGV`.
func Plain(env *engines.Environment, module string) Launcher {
	return &plain{env: env, module: module}
}

type plain struct {
	env    *engines.Environment
	module string

	mu     sync.Mutex
	server *server // nil until something is started
	closed bool
}

func (p *plain) Start(ctx context.Context, s Spec) (*Process, error) {
	server, err := p.running()
	if err != nil {
		return nil, &StartError{Worker: s.Worker, Path: s.Log, Err: err}
	}
	return start(ctx, server, s, order{Argv: command(p.env, p.module, s), Env: environment(s.Env), Log: s.Log, Dir: s.Dir, Exec: true})
}

func (p *plain) running() (*server, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if p.server != nil {
		return p.server, nil
	}
	// Isolated and without packages: it starts in milliseconds and imports nothing of the engine's.
	s, err := startServer(p.env.Python, []string{"-I", "-S"}, nil, nil, orders{Name: p.module})
	p.server = s
	return s, err
}

func (p *plain) Describe(s Spec) string { return commandLine(command(p.env, p.module, s), s.Env) }

func (p *plain) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.server == nil {
		return nil
	}
	err := p.server.close()
	return err
}

// command is what starts a worker without a fork server.
func command(env *engines.Environment, module string, s Spec) []string {
	argv := []string{env.Python, "-u"}
	if safePath(env.PythonVersion) {
		argv = append(argv, "-P") // a folder here that is named like a module is not meant
	}
	return append(append(argv, "-m", module), s.Argv...)
}

// safePath says whether a version of Python knows -P: those from 3.11 on.
func safePath(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && major == "3" && n >= 11
}
