package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"conform/adapters/engines"
)

// ForkOptions say what a fork server imports and runs.
type ForkOptions struct {
	Dir     string        // a folder for its log, forkserver.log; made if it is not there
	Script  string        // Python source with a function serve(argv: list[str]) that serves until the worker ends
	Module  string        // the module that does the same under python -m; for Describe, and the workers' sys.argv[0]
	Preload []string      // modules that are imported first
	Env     []string      // NAME=VALUE pairs, its whole environment; nil is that of the engine's environment
	Limit   time.Duration // how long the imports may take; 0 is five minutes
}

// A ForkServer is a process that has an engine imported and forks workers from it. It
// is a [Launcher]. What a library reads from the environment when it is imported, it
// reads from [ForkOptions.Env]; the rest from [Spec.Env]. The multiprocessing module
// of its workers starts processes by fork, whatever the engine asks for. No import may
// use a GPU: a fork can't go on with that.
type ForkServer struct {
	env    *engines.Environment
	opt    ForkOptions
	log    string
	server *server
}

// NewForkServer starts a fork server and waits until it has imported everything. An
// error holds the end of its log; then nothing of it is left.
func NewForkServer(ctx context.Context, env *engines.Environment, opt ForkOptions) (*ForkServer, error) {
	if opt.Limit == 0 {
		opt.Limit = 5 * time.Minute
	}
	if opt.Env == nil {
		opt.Env = env.Environ(os.Environ())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opt.Limit, fmt.Errorf("it took longer than %v: %w", opt.Limit, context.DeadlineExceeded))
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := &ForkServer{env: env, opt: opt, log: filepath.Join(opt.Dir, "forkserver.log")}
	if err := createLog(f.log); err != nil {
		return nil, fmt.Errorf("make the fork server's log: %w", err)
	}
	out, err := os.OpenFile(f.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("make the fork server's log: %w", err)
	}
	defer out.Close()
	f.server, err = startServer(env.Python, nil, opt.Env, out, orders{Entry: opt.Script, Name: opt.Module, Preload: opt.Preload})
	if err != nil {
		return nil, err
	}
	if err := f.await(ctx); err != nil {
		f.server.kill() // it may be in the middle of an import, where it hears nothing
		return nil, errors.Join(fmt.Errorf("the fork server did not start: %w; the end of its log %s:\n%s",
			err, f.log, tail(f.log, tailLines)), f.server.close())
	}
	return f, nil
}

func (f *ForkServer) await(ctx context.Context) error {
	select {
	case err := <-f.server.came:
		return err
	case <-f.server.done:
		return f.server.over()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// PID is the id of the fork server's own process.
func (f *ForkServer) PID() int { return f.server.cmd.Process.Pid }

// Start starts a worker and waits until it serves; see [Launcher].
func (f *ForkServer) Start(ctx context.Context, s Spec) (*Process, error) {
	return start(ctx, f.server, s, order{Argv: nonNil(s.Argv), Env: environment(s.Env), Log: s.Log, Dir: s.Dir})
}

// Describe is the command line that starts the same worker without the fork server.
func (f *ForkServer) Describe(s Spec) string {
	return commandLine(command(f.env, f.opt.Module, s), s.Env)
}

// Close ends all workers and the fork server, and waits until they are gone.
func (f *ForkServer) Close() error { return f.server.close() }

func nonNil(words []string) []string {
	if words == nil {
		return []string{}
	}
	return words
}
