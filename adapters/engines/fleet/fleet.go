package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"conform/adapters"
	"conform/adapters/engines/launch"
	"conform/spec"
)

// ErrStopped is the error of a start on a fleet that was stopped.
var ErrStopped = errors.New("the stack was stopped")

// A Fleet is the workers of one running stack. Members are added before the first is
// started; its other methods may be called from many goroutines.
type Fleet struct {
	launcher launch.Launcher
	onExit   func(adapters.Exit)
	members  []*Member
	fills    atomic.Int64

	mu      sync.Mutex
	all     []*launch.Process
	stopped bool
}

// New is an empty fleet. onExit is told of each process that ends; it may be nil.
func New(launcher launch.Launcher, onExit func(adapters.Exit)) *Fleet {
	return &Fleet{launcher: launcher, onExit: onExit}
}

// A Member is one worker, through all its incarnations.
type Member struct {
	ID          string // such as prefill-0
	Role        spec.Role
	Ranks       int // processes of tensor parallelism
	incarnation atomic.Int64
	process     atomic.Pointer[launch.Process] // nil until it was started
}

// Add adds a worker.
func (f *Fleet) Add(id string, role spec.Role, ranks int) *Member {
	m := &Member{ID: id, Role: role, Ranks: ranks}
	f.members = append(f.members, m)
	return m
}

// Name is the name of the present incarnation, such as prefill-0.1 after a restart.
func (m *Member) Name() string {
	if n := m.incarnation.Load(); n > 0 {
		return fmt.Sprintf("%s.%d", m.ID, n)
	}
	return m.ID
}

// Called reports whether a name means this worker: its role, its id, or the name of its
// present incarnation.
func (m *Member) Called(name string) bool {
	return string(m.Role) == name || m.ID == name || m.Name() == name
}

// RankName is the name of one rank of a worker: each is a worker of its own in a trace.
func RankName(worker string, rank int) string {
	if rank == 0 {
		return worker
	}
	return fmt.Sprintf("%s.r%d", worker, rank)
}

// Start starts the present incarnation of a worker and waits until it serves. The
// error wraps [ErrStopped] where the stack was stopped meanwhile.
func (f *Fleet) Start(ctx context.Context, m *Member, s launch.Spec) error {
	s.Worker, s.OnExit = m.Name(), f.exited
	p, err := f.launcher.Start(ctx, s)
	if err != nil {
		return err
	}
	f.mu.Lock()
	m.process.Store(p)
	f.all = append(f.all, p)
	stopped := f.stopped
	f.mu.Unlock()
	if stopped { // meanwhile: Stop has not seen this one
		return errors.Join(fmt.Errorf("start worker %s: %w", s.Worker, ErrStopped), end(ctx, p))
	}
	return nil
}

// end ends a worker's processes and waits until they are gone.
func end(ctx context.Context, p *launch.Process) error {
	if err := p.Kill(); err != nil {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a worker's processes do not end: %w", ctx.Err())
	}
}

// exited passes the end of a worker on.
func (f *Fleet) exited(e launch.Exit) {
	if f.onExit != nil {
		f.onExit(adapters.Exit{Worker: e.Worker, Code: e.Code, SignalNo: e.SignalNo, Expected: e.Expected, Log: e.Log})
	}
}

// Workers are the present incarnations that run, each rank as a worker of its own.
func (f *Fleet) Workers() []adapters.Worker {
	var all []adapters.Worker
	for _, m := range f.members {
		p := m.process.Load()
		if p == nil || !p.Running() {
			continue
		}
		for rank := range m.Ranks {
			all = append(all, adapters.Worker{ID: RankName(m.Name(), rank), Role: m.Role, PID: p.PID(), Pools: true})
		}
	}
	return all
}

// Find resolves a name to a worker; of several of a role, the first.
func (f *Fleet) Find(name string) (*Member, error) {
	return Find(f.members, name)
}

// running is a worker's process; an error says that there has been none.
func (f *Fleet) running(name string) (*Member, *launch.Process, error) {
	m, err := f.Find(name)
	if err != nil {
		return nil, nil, err
	}
	p := m.process.Load()
	if p == nil {
		return nil, nil, fmt.Errorf("worker %s was not started", m.Name())
	}
	return m, p, nil
}

func (f *Fleet) signal(name string, sig syscall.Signal) error {
	_, p, err := f.running(name)
	if err != nil {
		return err
	}
	return p.Signal(sig)
}

// Pause stops all processes of a worker where they are.
func (f *Fleet) Pause(_ context.Context, name string) error { return f.signal(name, syscall.SIGSTOP) }

// Resume lets them go on.
func (f *Fleet) Resume(_ context.Context, name string) error { return f.signal(name, syscall.SIGCONT) }

// Kill ends a worker at once, as a crash does, and waits until it is gone.
func (f *Fleet) Kill(ctx context.Context, name string) error {
	_, p, err := f.running(name)
	if err != nil {
		return err
	}
	return end(ctx, p)
}

// Next ends the present incarnation of a worker and counts on: [Fleet.Start] starts
// the next one.
func (f *Fleet) Next(ctx context.Context, name string) (*Member, error) {
	m, p, err := f.running(name)
	if err != nil {
		return nil, err
	}
	if err := end(ctx, p); err != nil {
		return nil, err
	}
	m.incarnation.Add(1)
	return m, nil
}

// Stop ends every process, whatever it does, and waits until all are gone. It may be
// called again: then it does nothing, and again is true.
func (f *Fleet) Stop(ctx context.Context) (again bool, err error) {
	f.mu.Lock()
	if f.stopped {
		f.mu.Unlock()
		return true, nil
	}
	f.stopped = true
	all := slices.Clone(f.all)
	f.mu.Unlock()
	var errs []error
	for _, p := range all {
		p.Expect()
		errs = append(errs, p.Kill())
	}
	for _, p := range all {
		select {
		case <-p.Done():
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("a worker's processes do not end: %w", ctx.Err()))
		}
	}
	return false, errors.Join(errs...)
}
