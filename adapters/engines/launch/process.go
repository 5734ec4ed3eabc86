package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	readEvery = 20 * time.Millisecond // how often a log is read for readiness
	lookEvery = 50 * time.Millisecond // how often the parts of a worker are looked at
	lastWords = 2 * time.Second       // how long a worker may go on without one of its parts
)

// A Process is a worker that was started: its main process, and all that belong to it.
type Process struct {
	spec Spec

	up     chan struct{} // closed when its main process runs
	exited chan struct{} // closed when its main process has ended
	gone   chan struct{} // closed when nothing of it is left
	done   chan struct{} // closed when that has been told

	mu       sync.Mutex
	main     int
	guard    Member
	parts    []Member
	exit     Exit
	expected bool
	refused  error // why it was never started
}

func newProcess(s Spec) *Process {
	return &Process{
		spec: s, up: make(chan struct{}), exited: make(chan struct{}),
		gone: make(chan struct{}), done: make(chan struct{}),
	}
}

// PID is the id of the main process, which is also that of its session and group.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.main
}

// Done is closed when all processes of the worker have ended and OnExit has returned.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how the worker ended, once Done is closed.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Tail is the last n lines of the worker's log, at most 16 KiB.
func (p *Process) Tail(n int) string { return tail(p.spec.Log, n) }

// Running says whether the main process has not ended.
func (p *Process) Running() bool { return !closed(p.exited) }

// Members are the processes of the worker now, by their ids: the main process and all
// below it, in whichever session. There are none where the system has no /proc.
func (p *Process) Members() []Member {
	if closed(p.gone) || !closed(p.up) {
		return nil
	}
	p.mu.Lock()
	guard, main := p.guard, p.main
	p.mu.Unlock()
	if closed(p.exited) {
		main = 0 // its id may be another's by now
	}
	if !guard.lives() {
		return nil
	}
	return family(processes(), guard.PID, main)
}

// Parts are the processes that the worker had when it became ready. The worker ends
// with any of them.
func (p *Process) Parts() []Member { return p.parts }

// Signal sends a signal to every process of the worker. It is no error if there is
// none any more.
func (p *Process) Signal(sig syscall.Signal) error {
	var failed error
	sent := map[Member]bool{}
	for again := true; again; { // until no new ones have come meanwhile
		again = false
		for _, m := range p.Members() {
			key := Member{PID: m.PID, started: m.started}
			if !sent[key] {
				sent[key], again = true, true
				failed = errors.Join(failed, m.signal(sig))
			}
		}
	}
	if main := p.PID(); len(sent) == 0 && main > 1 && p.Running() {
		if err := syscall.Kill(-main, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			failed = err
		}
	}
	return failed
}

// Expect says that the worker's end, by whatever means, is no surprise.
func (p *Process) Expect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = true
}

// Kill ends all processes of the worker by SIGKILL, as expected. It does not wait for
// their end: see Done.
func (p *Process) Kill() error {
	p.Expect()
	return p.Signal(syscall.SIGKILL)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// started, ended and left are what the launcher's server reports, in this order; all
// of them come from one goroutine.

func (p *Process) started(pid, guard int) {
	p.mu.Lock()
	p.main = pid
	p.guard, _ = readMember(guard)
	doomed := p.expected
	p.mu.Unlock()
	close(p.up)
	if doomed { // it was killed before it was there
		_ = p.Signal(syscall.SIGKILL)
	}
}

func (p *Process) ended(code, signal int) {
	if closed(p.exited) {
		return
	}
	p.mu.Lock()
	p.exit.Worker, p.exit.Code, p.exit.SignalNo, p.exit.Expected = p.spec.Worker, code, signal, p.expected
	p.mu.Unlock()
	close(p.exited)
}

// left is also called without ended, if a guard was killed; its worker is then, too.
func (p *Process) left(refused error) {
	p.mu.Lock()
	p.refused = refused
	p.mu.Unlock()
	p.ended(0, int(syscall.SIGKILL))
	close(p.gone)
}

// start asks for a worker and waits until it serves.
func start(ctx context.Context, s *server, spec Spec, o order) (*Process, error) {
	fail := func(err error) error {
		return &StartError{Worker: spec.Worker, Path: spec.Log, Log: tail(spec.Log, tailLines), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return nil, fail(err)
	}
	if err := createLog(spec.Log); err != nil {
		return nil, fail(err)
	}
	p, err := s.order(spec, o)
	if err != nil {
		return nil, fail(err)
	}
	err = p.awaitReady(ctx)
	if err == nil && !s.adopt(p) {
		err = ErrClosed
	}
	if err != nil {
		err = fail(err) // with the log as it is now
		_ = p.Kill()
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-p.gone:
		case <-t.C:
			err = errors.Join(err, errors.New("and its processes do not end"))
		}
		return nil, err
	}
	return p, nil
}

func createLog(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// awaitReady reads the log until it says that the worker serves, or fails.
func (p *Process) awaitReady(ctx context.Context) error {
	select {
	case <-p.up:
	case <-p.gone:
		return p.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	texts := append([]string{p.spec.Ready}, p.spec.Failed...)
	log := &scanner{path: p.spec.Log, texts: texts}
	defer log.close()
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		over := closed(p.exited) // before the look at the log, which then is complete
		found, err := log.next()
		switch {
		case err != nil:
			return err
		case found > 0:
			return &FailedError{Text: texts[found]}
		case over:
			return p.why()
		case found == 0:
			p.parts = p.Members()
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// why is why a worker ended before it served.
func (p *Process) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused != nil {
		return p.refused
	}
	return &ExitError{Exit: p.exit}
}

// watch looks after a worker that serves, and tells of its end.
func (p *Process) watch() {
	defer close(p.done)
	p.awaitExit()
	p.mu.Lock()
	p.exit.Log = tail(p.spec.Log, tailLines)
	e := p.exit
	p.mu.Unlock()
	if p.spec.OnExit != nil {
		p.spec.OnExit(e)
	}
	<-p.gone
}

// awaitExit returns when the main process has ended. If a part goes before it, it is
// given some time to say why.
func (p *Process) awaitExit() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var enough <-chan time.Time
	for {
		select {
		case <-p.exited:
			return
		case <-enough:
			_ = p.Signal(syscall.SIGKILL)
		case <-tick.C:
			if m, lost := p.lost(); lost && enough == nil {
				p.mu.Lock()
				p.exit.Part = m.String()
				p.mu.Unlock()
				t := time.NewTimer(lastWords)
				defer t.Stop()
				enough = t.C
			}
		}
	}
}

// lost is a part that has ended although nobody asked for it and the main process
// has not.
func (p *Process) lost() (Member, bool) {
	p.mu.Lock()
	expected := p.expected
	p.mu.Unlock()
	for _, m := range p.parts {
		if !expected && m.PID != p.main && !m.lives() {
			return m, true
		}
	}
	return Member{}, false
}
