package launch

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed forkserver.py
var serverScript string

// loader reads the script itself and its orders from the first line of standard
// input, so that nothing has to lie in a file.
const loader = `import json, sys
orders = json.loads(sys.stdin.buffer.raw.readline())
scope = {"__name__": "conform_forkserver"}
exec(compile(orders.pop("server"), "forkserver.py", "exec"), scope)
scope["main"](orders)`

// patience bounds how long the server may take to read an order, and processes to
// be gone after SIGKILL. Only a machine in trouble needs more.
const patience = 15 * time.Second

// orders are the first line that the server reads.
type orders struct {
	Server  string   `json:"server"`
	Entry   string   `json:"entry,omitempty"`
	Name    string   `json:"name,omitempty"`
	Preload []string `json:"preload,omitempty"`
}

// order is a worker to start.
type order struct {
	ID   string            `json:"id"`
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env"`
	Log  string            `json:"log"`
	Dir  string            `json:"dir"`
	Exec bool              `json:"exec"`
}

// report is a line of the server.
type report struct {
	ID     string   `json:"id"`
	Ready  *float64 `json:"ready"`
	Failed *string  `json:"failed"`
	Error  *string  `json:"error"`
	PID    int      `json:"pid"`
	Guard  int      `json:"guard"`
	Exit   *int     `json:"exit"`
	Signal int      `json:"signal"`
	Gone   bool     `json:"gone"`
}

// A server is a running forkserver.py.
type server struct {
	cmd  *exec.Cmd
	in   *os.File
	out  *os.File
	came chan error    // its ready or failed line, once
	done chan struct{} // closed when it and all guards have ended
	wg   sync.WaitGroup

	mu      sync.Mutex
	writing sync.Mutex
	workers map[string]*Process
	next    int
	closed  bool
	ended   bool
	said    []string // the last lines that were no reports
}

// startServer starts the server; stderr is where it and its modules print, nil for
// the pipe of the reports.
func startServer(python string, flags, env []string, stderr *os.File, o orders) (*server, error) {
	o.Server = serverScript
	first, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	inRead, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inRead.Close()
	out, outWrite, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer outWrite.Close()
	s := &server{in: in, out: out, came: make(chan error, 1), done: make(chan struct{}), workers: map[string]*Process{}}
	s.cmd = exec.Command(python, slices.Concat(flags, []string{"-u", "-c", loader, "conform-launcher"})...)
	s.cmd.Env, s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = env, inRead, outWrite, outWrite
	if stderr != nil {
		s.cmd.Stderr = stderr
	}
	s.cmd.SysProcAttr = serverAttributes()
	if err := s.run(); err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("start %s: %w", python, err)
	}
	if err := s.write(first); err != nil {
		s.kill()
		return nil, errors.Join(fmt.Errorf("give the launcher its script: %w", err), s.close())
	}
	return s, nil
}

// run starts the process from an operating-system thread that lives as long as the
// server: the kernel ties the parent-death signal to the thread that forked.
func (s *server) run() error {
	started := make(chan error, 1)
	s.wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.read()
		}
	})
	return <-started
}

// read hands out the reports until the server and all guards have ended.
func (s *server) read() {
	defer close(s.done)
	lines := bufio.NewReaderSize(s.out, 8<<10)
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimSpace(line); line != "" {
			s.dispatch(line)
		}
		if err != nil {
			break
		}
	}
	_ = s.cmd.Wait() // how the launcher ended does not matter; that it did does
	s.mu.Lock()
	s.ended = true
	left := s.workers
	s.workers = map[string]*Process{}
	s.mu.Unlock()
	for _, p := range left {
		p.left(s.over())
	}
}

// dispatch takes one line of the server. What is no report is kept for errors.
func (s *server) dispatch(line string) {
	var r report
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.said = append(s.said, line)
		s.said = s.said[max(0, len(s.said)-tailLines):]
		return
	}
	switch {
	case r.Ready != nil:
		s.offer(nil)
		return
	case r.Failed != nil:
		s.offer(errors.New(*r.Failed))
		return
	}
	s.mu.Lock()
	p := s.workers[r.ID]
	if r.Gone || r.Error != nil {
		delete(s.workers, r.ID)
	}
	s.mu.Unlock()
	if p == nil {
		return
	}
	switch {
	case r.Error != nil:
		p.left(errors.New(*r.Error))
	case r.Gone:
		p.left(nil)
	case r.Exit != nil:
		p.ended(*r.Exit, r.Signal)
	case r.PID > 1 && r.Guard > 1:
		p.started(r.PID, r.Guard)
	}
}

func (s *server) offer(err error) {
	select {
	case s.came <- err:
	default:
	}
}

func (s *server) write(line []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.in.SetWriteDeadline(time.Now().Add(patience))
	_, err := s.in.Write(append(line, '\n'))
	return err
}

// order asks for a worker, which the returned Process stands for.
func (s *server) order(spec Spec, o order) (*Process, error) {
	p := newProcess(spec)
	s.mu.Lock()
	if s.closed || s.ended {
		s.mu.Unlock()
		return nil, s.over()
	}
	s.next++
	o.ID = strconv.Itoa(s.next)
	s.workers[o.ID] = p
	s.mu.Unlock()
	line, err := json.Marshal(o)
	if err == nil {
		// After a line that was cut off by its deadline this one begins anew.
		err = s.write(append([]byte{'\n'}, line...))
	}
	if err == nil {
		return p, nil
	}
	s.mu.Lock()
	delete(s.workers, o.ID)
	s.mu.Unlock()
	return nil, fmt.Errorf("ask the launcher for the worker: %w", err)
}

// adopt runs the watch of a worker that serves. It says no if close has begun, which
// does not wait for watches that begin later.
func (s *server) adopt(p *Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Go(p.watch)
	}
	return !s.closed
}

// over is why nothing can be started any more.
func (s *server) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return fmt.Errorf("%w: its process %d ended: %v%s", ErrClosed, s.cmd.Process.Pid, s.cmd.ProcessState, s.words())
}

// words are what the server said besides reports. s.mu is held.
func (s *server) words() string {
	if len(s.said) == 0 {
		return ""
	}
	return "\n" + strings.Join(s.said, "\n")
}

func (s *server) kill() { _ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGKILL) }

// close ends the workers and the server, and waits for all of them.
func (s *server) close() error {
	s.mu.Lock()
	s.closed = true
	var workers []*Process
	for _, p := range s.workers {
		workers = append(workers, p)
	}
	s.mu.Unlock()
	for _, p := range workers {
		_ = p.Kill()
	}
	s.in.Close()
	if !s.waitDone() {
		s.kill() // the guards go on without it
		if !s.waitDone() {
			return fmt.Errorf("processes of the launcher %d do not end: %v", s.cmd.Process.Pid, s.remaining(workers))
		}
	}
	s.wg.Wait()
	s.out.Close()
	return nil
}

func (s *server) waitDone() bool {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-s.done:
		return true
	case <-t.C:
		return false
	}
}

func (s *server) remaining(workers []*Process) []Member {
	var out []Member
	for _, p := range workers {
		out = append(out, p.Members()...)
	}
	return out
}
