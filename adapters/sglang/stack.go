package sglang

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"conform/adapters"
	"conform/adapters/engines/launch"
	"conform/adapters/sglang/wire"
	"conform/faults"
	"conform/spec"
	"conform/traces"
)

// stack is a running set of workers with the proxies between them.
type stack struct {
	a      *Adapter
	cfg    adapters.Config
	limits adapters.Limits
	clock  string
	temp   string // for its workers' temporary files
	legs   *http.Client
	active atomic.Int64 // legs whose answer has not come

	mu      sync.Mutex
	members []*member // in the order of workers
	all     []*launch.Process
	stopped bool
	fills   int
	still   stillness
}

// member is one worker of the topology: its present incarnation, and the proxies
// that stay when it is restarted.
type member struct {
	worker      worker
	incarnation atomic.Int64
	process     atomic.Pointer[launch.Process] // nil until it was started
	http        *faults.HTTPProxy
	between     *wire.Interposer // of a prefill worker
}

func newStack(a *Adapter, cfg adapters.Config) *stack {
	s := &stack{
		a: a, cfg: cfg, limits: limitsOf(cfg.Limits),
		legs: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	_, s.clock = traces.Monotonic()
	for _, w := range workers(cfg.Topology) {
		s.members = append(s.members, &member{worker: w})
	}
	return s
}

// start opens the proxies and starts all workers at once.
func (s *stack) start(ctx context.Context) error {
	var err error
	if s.temp, err = os.MkdirTemp(s.a.temp, ""); err != nil {
		return err
	}
	taken, err := freePorts(3 * len(s.members))
	if err != nil {
		return err
	}
	for i, m := range s.members {
		m.worker.ports = ports{http: taken[3*i], bootstrap: taken[3*i+1], nccl: taken[3*i+2]}
	}
	if err := s.openProxies(); err != nil {
		return fmt.Errorf("open the stack's proxies: %w", err)
	}
	errs := make([]error, len(s.members))
	var wg sync.WaitGroup
	for i, m := range s.members {
		wg.Go(func() { errs[i] = s.startWorker(ctx, m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (s *stack) of(role spec.Role) []*member {
	return slices.DeleteFunc(slices.Clone(s.members), func(m *member) bool { return m.worker.role != role })
}

func (s *stack) openProxies() error {
	var decodes []string
	for _, m := range s.of(spec.RoleDecode) {
		decodes = append(decodes, m.worker.id)
	}
	for _, m := range s.members {
		var err error
		m.http, err = faults.NewHTTPProxy(faults.HTTPProxyOptions{
			Upstream: local(m.worker.ports.http), From: "router", To: m.worker.id, Engine: s.cfg.Engine, Decode: pointOf,
		})
		if err != nil {
			return err
		}
		if m.worker.role != spec.RolePrefill {
			continue
		}
		m.between, err = wire.Open(wire.Options{
			Backend: wire.Backend(s.cfg.Mode), Engine: s.cfg.Engine, Bootstrap: local(m.worker.ports.bootstrap),
			Prefill: m.worker.id, Decodes: decodes,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pointOf says which request an HTTP body speaks of.
func pointOf(_ *http.Request, body []byte) faults.Point {
	var b struct {
		ID   string  `json:"rid"`
		Room *uint64 `json:"bootstrap_room"`
	}
	if json.Unmarshal(body, &b) != nil {
		return faults.Point{}
	}
	p := faults.Point{Req: b.ID}
	if b.Room != nil {
		p.Handoff = handoffOf(*b.Room)
	}
	return p
}

func handoffOf(room uint64) string { return "room-" + strconv.FormatUint(room, 10) }

// startWorker starts the present incarnation of a worker, and its recorder.
func (s *stack) startWorker(ctx context.Context, m *member) error {
	w := m.worker
	w.id = m.id()
	variable, err := s.variable(w)
	if err != nil {
		return err
	}
	env := s.a.env.Environ(os.Environ(), s.a.probe)
	env = append(env, w.environment(s.cfg, s.temp)...)
	dir, err := filepath.Abs(s.cfg.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "events"), 0o755); err != nil {
		return err
	}
	p, err := s.a.launcher.Start(ctx, launch.Spec{
		Worker: w.id, Argv: w.argv(s.cfg, s.a.model), Env: append(env, variable), Dir: s.temp,
		Log: filepath.Join(dir, "logs", w.id+".log"), Ready: readyText, Failed: failedTexts, OnExit: s.exited,
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	m.process.Store(p)
	s.all = append(s.all, p)
	stopped := s.stopped
	s.mu.Unlock()
	if stopped { // meanwhile: Stop has not seen this one
		return errors.Join(fmt.Errorf("start worker %s: %w", w.id, errStopped), end(ctx, p))
	}
	return s.probed(dir, w)
}

var errStopped = errors.New("the stack was stopped")

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

// variable is what tells a worker's processes how they are probed.
func (s *stack) variable(w worker) (string, error) {
	return w.probe(s.cfg, s.clock, s.prefills())
}

// probed makes sure that the probe records in each rank: a stack without its
// recorder would pass for want of evidence.
func (s *stack) probed(dir string, w worker) error {
	// The file comes first: a recorder may have failed after it had made its source.
	word, failed := os.ReadFile(filepath.Join(dir, "probe-"+w.id+".error"))
	why := "it left no word why"
	if failed == nil {
		why = strings.TrimSpace(string(word))
	}
	for rank := range w.ranks {
		id := rankName(w.id, rank)
		if _, err := os.Stat(filepath.Join(dir, "events", id+".jsonl")); err == nil && failed != nil {
			continue
		}
		return fmt.Errorf("the probe does not record in worker %s: %s; see the worker's log below %s", id, why, filepath.Join(dir, "logs"))
	}
	return nil
}

func rankName(worker string, rank int) string {
	if rank == 0 {
		return worker
	}
	return fmt.Sprintf("%s.r%d", worker, rank)
}

// prefills is which prefill worker decode's requests mean by a bootstrap port.
func (s *stack) prefills() map[string]string {
	table := map[string]string{}
	for _, p := range s.of(spec.RolePrefill) {
		for _, d := range s.of(spec.RoleDecode) {
			if _, port, err := net.SplitHostPort(p.between.Bootstrap(d.worker.id)); err == nil {
				table[port] = p.id()
			}
		}
	}
	return table
}

// id is the name of the present incarnation.
func (m *member) id() string {
	if n := m.incarnation.Load(); n > 0 {
		return fmt.Sprintf("%s.%d", m.worker.id, n)
	}
	return m.worker.id
}

// exited passes the end of a worker on.
func (s *stack) exited(e launch.Exit) {
	if s.cfg.OnExit != nil {
		s.cfg.OnExit(adapters.Exit{Worker: e.Worker, Code: e.Code, SignalNo: e.SignalNo, Expected: e.Expected, Log: e.Log})
	}
}

func (s *stack) Limits() adapters.Limits { return s.limits }

// Reference is the right answer, if it was taken.
func (s *stack) Reference(prompt []int32, n int) []int32 { return s.a.answers.get(prompt, n) }

// Unknown counts the messages that no row of the frame table is for.
func (s *stack) Unknown() int {
	n := 0
	for _, m := range s.of(spec.RolePrefill) {
		for _, u := range m.between.Unknown() {
			n += u.Count
		}
	}
	return n
}

// Workers are the present incarnations, each rank as a worker of its own.
func (s *stack) Workers() []adapters.Worker {
	var all []adapters.Worker
	for _, m := range s.members {
		p := m.process.Load()
		if p == nil || !p.Running() {
			continue
		}
		for rank := range m.worker.ranks {
			all = append(all, adapters.Worker{ID: rankName(m.id(), rank), Role: m.worker.role, PID: p.PID(), Pools: true})
		}
	}
	return all
}

// find resolves a role or a worker's id to a worker; of several of a role, the first.
func (s *stack) find(name string) (*member, error) {
	for _, m := range s.members {
		if string(m.worker.role) == name || m.worker.id == name || m.id() == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no worker %q: expected a role or an id such as prefill-0", name)
}

// running is a worker's process; an error says that there has been none.
func (s *stack) running(name string) (*member, *launch.Process, error) {
	m, err := s.find(name)
	if err != nil {
		return nil, nil, err
	}
	p := m.process.Load()
	if p == nil {
		return nil, nil, fmt.Errorf("worker %s was not started", m.id())
	}
	return m, p, nil
}

func (s *stack) signal(name string, sig syscall.Signal) error {
	_, p, err := s.running(name)
	if err != nil {
		return err
	}
	return p.Signal(sig)
}

// Pause stops all processes of a worker where they are.
func (s *stack) Pause(_ context.Context, name string) error { return s.signal(name, syscall.SIGSTOP) }

// Resume lets them go on.
func (s *stack) Resume(_ context.Context, name string) error { return s.signal(name, syscall.SIGCONT) }

// Kill ends a worker at once, as a crash does, and waits until it is gone.
func (s *stack) Kill(ctx context.Context, name string) error {
	_, p, err := s.running(name)
	if err != nil {
		return err
	}
	return end(ctx, p)
}

// Restart starts the next incarnation of a worker, on the same ports.
func (s *stack) Restart(ctx context.Context, name string) error {
	m, p, err := s.running(name)
	if err != nil {
		return err
	}
	if err := end(ctx, p); err != nil {
		return err
	}
	m.incarnation.Add(1)
	for _, p := range s.of(spec.RolePrefill) {
		p.between.Rename(m.worker.id, m.id())
	}
	return s.startWorker(ctx, m)
}

// stillness remembers since when the same things have been in flight.
type stillness struct {
	load  string
	since time.Time
}

// Idle asks each recorder what its worker holds. What has not changed for longer
// than any clock of the stack runs will not change any more: it is held, not in flight.
func (s *stack) Idle(ctx context.Context) (bool, string, error) {
	if s.cfg.Probes == nil {
		return false, "", errors.New("nobody can say what is in flight: the stack was started without a failpoint server")
	}
	askCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	loads, err := s.cfg.Probes.Loads(askCtx)
	if err != nil {
		return false, "", err
	}
	var busy []string
	for worker, l := range loads {
		if l.Leased > 0 || l.Open > 0 {
			busy = append(busy, fmt.Sprintf("%s: %d blocks held by requests, %d accesses open", worker, l.Leased, l.Open))
		}
	}
	if n := s.active.Load(); n > 0 {
		busy = append(busy, fmt.Sprintf("%d legs are not answered", n))
	}
	if len(busy) == 0 {
		return true, "", nil
	}
	slices.Sort(busy)
	text := strings.Join(busy, "; ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != s.still.load {
		s.still = stillness{text, time.Now()}
	}
	return time.Since(s.still.since) > s.limits.HandoffTimeout+s.limits.AbortTimeout+5*time.Second, text, nil
}

// Served is what the probes' hooks did, by source, as they left it when they sealed.
func (s *stack) Served() map[string]any {
	served := map[string]any{}
	names, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "hooks", "*.json"))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		var v any
		if json.Unmarshal(b, &v) == nil {
			served[strings.TrimSuffix(filepath.Base(name), ".json")] = v
		}
	}
	return served
}

// Stop ends every process, whatever it does, and closes the proxies. It may be called
// again.
func (s *stack) Stop(ctx context.Context) error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil
	}
	s.stopped = true
	all := slices.Clone(s.all)
	s.mu.Unlock()
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
	for _, m := range s.members {
		if m.http != nil {
			errs = append(errs, m.http.Close())
		}
		if m.between != nil {
			errs = append(errs, m.between.Close())
		}
	}
	s.legs.CloseIdleConnections()
	if s.temp != "" {
		errs = append(errs, os.RemoveAll(s.temp))
	}
	return errors.Join(errs...)
}
