package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines"
)

const (
	markVariable    = "CONFORM_LAUNCH_TEST"    // every process of a test has it: to find those that are left
	harnessVariable = "CONFORM_LAUNCH_HARNESS" // this binary is to be a harness that gets killed
	serves          = "The server is fired up and ready"
)

func TestMain(m *testing.M) {
	if way := os.Getenv(harnessVariable); way != "" {
		if err := beHarness(way); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	mark := strconv.Itoa(os.Getpid())
	os.Setenv(markVariable, mark)
	code := m.Run()
	if left := marked(mark); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", left)
		code = 1
	}
	os.Exit(code)
}

// marked are the processes that were started by the test process with this id.
func marked(mark string) []Member {
	var out []Member
	for _, m := range processes() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", m.PID))
		if err == nil && m.PID != os.Getpid() && bytes.Contains(env, []byte(markVariable+"="+mark+"\x00")) {
			out = append(out, m)
		}
	}
	return out
}

// fakeEnv is an environment of the system's python3 with the fake engine in it.
func fakeEnv() (*engines.Environment, error) {
	out, err := exec.Command("python3", "-c", "import sys, platform; print(sys.executable, platform.python_version())").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) != 2 {
		return nil, fmt.Errorf("there is no python3: %w", err)
	}
	data, err := filepath.Abs("testdata")
	return &engines.Environment{
		Engine: "fake", Version: "1", Python: words[0], PythonVersion: words[1], PythonPath: []string{data},
		Env: []string{"PYTHONDONTWRITEBYTECODE=1"},
	}, err
}

func launcher(ctx context.Context, way string, env *engines.Environment, dir string) (Launcher, error) {
	if way == "plain" {
		return Plain(env, "fake_engine"), nil
	}
	return NewForkServer(ctx, env, ForkOptions{
		Dir: dir, Module: "fake_engine", Preload: []string{"fake_engine", "json"},
		Script: "import fake_engine\nserve = fake_engine.serve\n",
	})
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A bench is a launcher of the fake engine, and what its workers' ends were.
type bench struct {
	Launcher
	t     *testing.T
	env   *engines.Environment
	dir   string
	exits chan Exit
}

func (b *bench) spec(argv ...string) Spec {
	return Spec{
		Worker: "prefill-0", Argv: argv, Env: b.env.Environ(os.Environ()), Log: filepath.Join(b.dir, "logs", "prefill-0.log"),
		Ready: serves, Failed: []string{"Received sigquit"}, OnExit: func(e Exit) { b.exits <- e },
	}
}

func (b *bench) start(argv ...string) *Process {
	p, err := b.Start(ctxOf(b.t), b.spec(argv...))
	require.NoError(b.t, err)
	return p
}

// ends waits for the end of p and gives what was told about it.
func (b *bench) ends(p *Process) Exit {
	ctx := ctxOf(b.t)
	select {
	case <-p.Done():
	case <-ctx.Done():
		b.t.Fatal("the worker does not end; its processes: ", p.Members())
	}
	e := <-b.exits
	require.Equal(b.t, e, p.Exit())
	require.False(b.t, p.Running())
	require.Empty(b.t, p.Members())
	require.NoError(b.t, p.Signal(syscall.SIGTERM), "a signal to nobody is no error")
	return e
}

// both runs a test with each way to start. Nothing may be left after it.
func both(t *testing.T, test func(t *testing.T, b *bench)) {
	env, err := fakeEnv()
	if err != nil {
		t.Skip(err)
	}
	for _, way := range []string{"plain", "forked"} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			l, err := launcher(ctxOf(t), way, env, dir)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			test(t, &bench{Launcher: l, t: t, env: env, dir: dir, exits: make(chan Exit, 10)})
		})
	}
}

func gone(ctx context.Context, t *testing.T, members []Member) {
	for _, m := range members {
		for m.lives() {
			require.NoError(t, ctx.Err(), "process %v is left", m)
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func TestServesAndIsKilled(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		p := b.start("family", "a b", "'c'")
		require.True(t, p.Running())
		require.Contains(t, p.Tail(100), "args ['a b', \"'c'\"] name ")
		require.Contains(t, p.Tail(1), serves)
		members := p.Members()
		require.Len(t, members, 4, "the main process, the scheduler, one in its own session, one without its parent")
		require.Equal(t, members, p.Parts())
		sessions := map[int]int{}
		for _, m := range members {
			sessions[m.Session]++
		}
		require.Len(t, sessions, 3)
		require.Equal(t, 2, sessions[p.PID()])
		require.NoError(t, p.Kill())
		e := b.ends(p)
		require.Equal(t, Exit{Worker: "prefill-0", SignalNo: 9, Expected: true, Log: e.Log}, e)
		require.Contains(t, e.Log, serves)
		gone(ctxOf(t), t, members)
	})
}

func TestFails(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		for argv, want := range map[string]string{"fails": "about to fail", "raises": "ValueError: nothing works"} {
			_, err := b.Start(ctxOf(t), b.spec(argv))
			var exit *ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, map[string]int{"fails": 3, "raises": 1}[argv], exit.Exit.Code)
			require.False(t, exit.Exit.Expected)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "prefill-0")
		}
		_, err := b.Start(ctxOf(t), b.spec("says"))
		var failed *FailedError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "Received sigquit", failed.Text)
		require.Empty(t, b.exits, "the error says it, and nothing else does")
	})
}

func TestStartHasItsLimit(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("the limit of the test")
		go func() {
			for tail(b.spec().Log, 1) != "loading" {
				time.Sleep(time.Millisecond)
			}
			cancel(enough)
		}()
		_, err := b.Start(ctx, b.spec("hangs"))
		require.ErrorIs(t, err, enough)
		require.ErrorContains(t, err, "loading")
		_, err = b.Start(ctx, b.spec("family"))
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestDiesLater(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		fifo := filepath.Join(b.dir, "fifo")
		require.NoError(t, syscall.Mkfifo(fifo, 0o600))
		p := b.start("dies", fifo)
		members := p.Members()
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		e := b.ends(p)
		require.Equal(t, Exit{Worker: "prefill-0", Code: 7, Log: e.Log}, e)
		require.True(t, strings.HasSuffix(e.Log, "last words"), e.Log)
		gone(ctxOf(t), t, members)
	})
}

func TestOnePartDies(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		p := b.start("spawns")
		require.Len(t, p.Parts(), 3)
		part := p.Parts()[1]
		require.NoError(t, syscall.Kill(part.PID, syscall.SIGKILL))
		e := b.ends(p)
		require.Equal(t, part.String(), e.Part)
		require.False(t, e.Expected)
		require.Equal(t, 9, e.SignalNo)
		require.Contains(t, e.String(), "after its process "+part.String()+" had ended")
	})
}

func TestIgnoresSIGTERM(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		p := b.start("stubborn")
		require.NoError(t, p.Signal(syscall.SIGTERM))
		require.NoError(t, p.Signal(syscall.SIGSTOP))
		require.Len(t, p.Members(), 4)
		for _, m := range p.Members() {
			require.Eventually(t, func() bool { // a process that waits for a core stops when it gets one
				state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID))
				return err == nil && strings.Contains(string(state), ") T ")
			}, 10*time.Second, time.Millisecond)
		}
		require.NoError(t, b.Close(), "it ends what is stopped, too")
		require.True(t, b.ends(p).Expected)
		_, err := b.Start(ctxOf(t), b.spec("family"))
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, b.Close())
	})
}

func TestManyAtOnce(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		started := make(chan error, 4)
		for i := range cap(started) {
			s := b.spec("family")
			s.Log = filepath.Join(b.dir, strconv.Itoa(i), "log")
			go func() {
				_, err := b.Start(ctxOf(t), s)
				started <- err
			}()
		}
		for range cap(started) {
			require.NoError(t, <-started)
		}
		require.NoError(t, b.Close())
		for range cap(started) {
			require.True(t, (<-b.exits).Expected)
		}
	})
}

func TestEnvironmentOfAWorker(t *testing.T) {
	t.Setenv("CONFORM_LAUNCH_HERE", "only in this process")
	both(t, func(t *testing.T, b *bench) {
		probe := filepath.Join(b.dir, "probe")
		require.NoError(t, os.Mkdir(probe, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(probe, "probe_here.py"), []byte("WHERE = __file__\n"), 0o600))
		s := b.spec("env")
		s.Dir = probe
		path := probe + ":" + b.env.PythonPath[0]
		s.Env = []string{"A=1", "A=2", "PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1", markVariable + "=" + os.Getenv(markVariable)}
		p, err := b.Start(ctxOf(t), s)
		require.NoError(t, err)
		require.Contains(t, p.Tail(10), fmt.Sprintf("environment ['A=2', '%s=%s', 'PYTHONDONTWRITEBYTECODE=1', 'PYTHONPATH=%s'] %s\n",
			markVariable, os.Getenv(markVariable), path, probe))
		require.Contains(t, p.Tail(10), "probe "+filepath.Join(probe, "probe_here.py"))
	})
}

func TestCanNotBeStarted(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		s := b.spec("family")
		s.Dir = filepath.Join(b.dir, "absent")
		_, err := b.Start(ctxOf(t), s)
		require.ErrorContains(t, err, "the worker can't be started")
		s = b.spec("family")
		s.Log = filepath.Join("/dev/null", "log")
		_, err = b.Start(ctxOf(t), s)
		require.ErrorIs(t, err, syscall.ENOTDIR)
		s = b.spec("with \x00")
		_, err = b.Start(ctxOf(t), s)
		require.ErrorContains(t, err, "must be texts")
	})
	l := Plain(&engines.Environment{Python: "/dev/null/python"}, "m")
	_, err := l.Start(t.Context(), Spec{Worker: "w"})
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.NoError(t, l.Close())
}

func serverOf(l Launcher) *server {
	if p, ok := l.(*plain); ok {
		return p.server
	}
	return l.(*ForkServer).server
}

func TestGarbageOnItsInput(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		b.start("family")
		s := serverOf(b.Launcher)
		for _, line := range []string{
			"", "{", "null", "[1]", "\xff\xfe", `{"id":1}`, `{"id":"999","argv":[1],"env":{},"log":""}`,
			`{"id":"999","argv":[],"env":{},"log":"","exec":true}`, strings.Repeat("[", 100_000),
		} {
			require.NoError(t, s.write([]byte(line)))
		}
		require.NoError(t, b.start("family").Kill())
	})
}

func TestServerIsKilled(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		p := b.start("stubborn")
		members := p.Members()
		serverOf(b.Launcher).kill()
		e := b.ends(p)
		require.False(t, e.Expected)
		require.Equal(t, 9, e.SignalNo)
		gone(ctxOf(t), t, members)
		<-serverOf(b.Launcher).done
		_, err := b.Start(ctxOf(t), b.spec("family"))
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorContains(t, err, "signal: killed")
	})
}

func TestGuardIsKilled(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		p := b.start("stubborn")
		members := p.Members()
		require.NoError(t, p.guard.signal(syscall.SIGKILL))
		require.Equal(t, 9, b.ends(p).SignalNo)
		gone(ctxOf(t), t, members)
		require.NoError(t, b.start("family").Kill(), "the server goes on")
	})
}

// beHarness starts a worker, tells its processes and waits to be killed.
func beHarness(way string) error {
	if way == "owner" {
		return beOwner()
	}
	env, err := fakeEnv()
	if err != nil {
		return err
	}
	dir := os.Getenv("CONFORM_LAUNCH_DIR")
	l, err := launcher(context.Background(), way, env, dir)
	if err != nil {
		return err
	}
	p, err := l.Start(context.Background(), Spec{
		Worker: "w", Argv: []string{"stubborn"}, Env: env.Environ(os.Environ()), Log: filepath.Join(dir, "log"), Ready: serves,
	})
	if err != nil {
		return err
	}
	for _, m := range append(p.Members(), p.guard) {
		fmt.Println(m.PID, m.started)
	}
	fmt.Println(serverOf(l).cmd.Process.Pid, 0)
	fmt.Println("end")
	select {}
}

func TestHarnessIsKilled(t *testing.T) {
	if _, err := fakeEnv(); err != nil {
		t.Skip(err)
	}
	for _, way := range []string{"plain", "forked"} {
		t.Run(way, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), harnessVariable+"="+way, "CONFORM_LAUNCH_DIR="+t.TempDir())
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			var members []Member
			for {
				var pid int
				var started uint64
				if _, err := fmt.Fscanln(out, &pid, &started); err != nil {
					break
				}
				m, ok := readMember(pid)
				require.True(t, ok)
				require.True(t, started == 0 || started == m.started)
				members = append(members, m)
			}
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			require.Len(t, members, 6, "four of the worker, its guard, the server")
			gone(ctxOf(t), t, members)
		})
	}
}

func TestForkServerFails(t *testing.T) {
	env, err := fakeEnv()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	_, err = NewForkServer(ctxOf(t), env, ForkOptions{Dir: dir, Preload: []string{"no_such_module"}})
	require.ErrorContains(t, err, "ModuleNotFoundError: No module named 'no_such_module'")
	require.ErrorContains(t, err, "Traceback")
	_, err = NewForkServer(ctxOf(t), env, ForkOptions{Dir: dir, Script: "serv = 1"})
	require.ErrorContains(t, err, "KeyError: 'serve'")
	_, err = NewForkServer(ctxOf(t), env, ForkOptions{Dir: dir, Script: "import os\nprint('bye', flush=True)\nos._exit(4)"})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorContains(t, err, "exit status 4")
	require.ErrorContains(t, err, "bye")
	_, err = NewForkServer(ctxOf(t), env, ForkOptions{Dir: dir, Script: "import time\ntime.sleep(60)", Limit: 200 * time.Millisecond})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "longer than 200ms")
	_, err = NewForkServer(ctxOf(t), env, ForkOptions{Dir: "/dev/null/x"})
	require.ErrorIs(t, err, syscall.ENOTDIR)
	_, err = NewForkServer(ctxOf(t), &engines.Environment{Python: filepath.Join(dir, "none")}, ForkOptions{Dir: dir})
	require.ErrorIs(t, err, os.ErrNotExist)
}
