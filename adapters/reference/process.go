package reference

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"conform/adapters"
)

// process is one worker's process, as the harness sees it.
type process struct {
	cfg   workerConfig
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   string
	ready ready

	mu       sync.Mutex
	expected bool
	exit     adapters.Exit // once done is closed
	done     chan struct{} // closed once it has ended and been reported
}

// forker starts processes from one operating-system thread that lives as long as
// the stack: the kernel ties the parent-death signal to the thread that forked.
type forker struct {
	starts chan func()
	done   chan struct{}
}

func newForker() *forker {
	f := &forker{starts: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for start := range f.starts {
			start()
		}
	}()
	return f
}

func (f *forker) start(cmd *exec.Cmd) error {
	err := make(chan error, 1)
	f.starts <- func() { err <- cmd.Start() }
	return <-err
}

func (f *forker) close() {
	close(f.starts)
	<-f.done
}

// startProcess executes this program again as a worker and waits until it serves.
func startProcess(ctx context.Context, f *forker, cfg workerConfig, env []string, onExit func(adapters.Exit)) (*process, error) {
	p, stdout, err := prepare(cfg, env)
	if err != nil {
		return nil, err
	}
	if err := f.start(p.cmd); err != nil {
		stdout.Close()
		return nil, fmt.Errorf("start worker %s: %w", cfg.ID, err)
	}
	said := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(stdout).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &p.ready)
		}
		said <- err
		_, _ = io.Copy(io.Discard, stdout)
		p.reap(onExit)
	}()
	select {
	case err = <-said:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		p.kill()
		<-p.done
		return nil, fmt.Errorf("worker %s did not come up: %w; the end of its log %s: %s", cfg.ID, err, p.log, tail(p.log))
	}
	return p, nil
}

func prepare(cfg workerConfig, env []string) (*process, io.ReadCloser, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program to execute it as worker %s: %w", cfg.ID, err)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, nil, err
	}
	logs := filepath.Join(cfg.Dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, nil, err
	}
	p := &process{cfg: cfg, log: filepath.Join(logs, cfg.ID+".log"), done: make(chan struct{})}
	logFile, err := os.Create(p.log)
	if err != nil {
		return nil, nil, err
	}
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(append(os.Environ(), env...), workerEnv+"="+string(text))
	p.cmd.Stderr = logFile
	p.cmd.SysProcAttr = processAttributes()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	return p, stdout, err
}

// reap waits for the process and reports its end.
func (p *process) reap(onExit func(adapters.Exit)) {
	defer close(p.done)
	err := p.cmd.Wait()
	if f, ok := p.cmd.Stderr.(*os.File); ok {
		f.Close()
	}
	p.mu.Lock()
	e := adapters.Exit{Worker: p.cfg.ID, Expected: p.expected}
	p.mu.Unlock()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		e.Code = exit.ExitCode()
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Code, e.SignalNo = 0, int(ws.Signal())
		}
	}
	if !e.Expected {
		e.Log = tail(p.log)
	}
	p.exit = e
	if onExit != nil {
		onExit(e)
	}
}

func (p *process) expect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = true
}

func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to worker %s (pid %d): %w", sig, p.cfg.ID, p.cmd.Process.Pid, err)
	}
	return nil
}

func (p *process) kill() {
	p.expect()
	_ = p.signal(syscall.SIGKILL)
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end asks the process to stop and kills it when ctx is over first.
func (p *process) end(ctx context.Context) error {
	p.expect()
	_ = p.signal(syscall.SIGCONT)
	_, _ = io.WriteString(p.stdin, "stop\n")
	p.stdin.Close()
	select {
	case <-p.done:
		if p.exit.Code != 0 {
			return fmt.Errorf("worker %s ended with status %d; the end of its log %s: %s", p.cfg.ID, p.exit.Code, p.log, tail(p.log))
		}
		return nil
	case <-ctx.Done():
	case <-time.After(4 * time.Second):
	}
	_ = p.signal(syscall.SIGKILL)
	<-p.done
	return fmt.Errorf("worker %s did not stop and was killed; the end of its log %s: %s", p.cfg.ID, p.log, tail(p.log))
}

// tail is the last lines of a log, on one line.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return "(empty)"
	}
	if len(b) > 2000 {
		b = b[len(b)-2000:]
	}
	return strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", " | ")
}
