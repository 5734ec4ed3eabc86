package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/adapters/engines/launch"
	"conform/adapters/engines/unknown"
	"conform/adapters/vllm/wire"
	"conform/faults"
	"conform/spec"
	"conform/traces"
)

// stack is a running set of workers with the proxies before them.
type stack struct {
	a      *Adapter
	cfg    adapters.Config
	limits adapters.Limits
	clock  string
	temp   string // for its workers' temporary files
	client *http.Client
	active atomic.Int64 // legs whose answer has not come

	*fleet.Fleet
	members []*member // in the order of workers
	still   fleet.Stillness

	mu         sync.Mutex
	open       map[leg]context.CancelCauseFunc // legs whose answer has not come
	references map[string]json.RawMessage      // by handoff: what prefill answered
	kept       []string                        // the keys of references, oldest first
}

// leg is one request to one stage.
type leg struct {
	req  string
	role spec.Role
}

// member is one worker of the topology, and the proxies that stay when it is restarted.
type member struct {
	*fleet.Member
	worker  worker
	http    *faults.HTTPProxy
	between *wire.Interposer // of a prefill worker
}

func newStack(a *Adapter, cfg adapters.Config) *stack {
	s := &stack{
		a: a, cfg: cfg, limits: limitsOf(cfg.Limits), Fleet: fleet.New(a.session.Launcher, cfg.OnExit),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		open:   map[leg]context.CancelCauseFunc{}, references: map[string]json.RawMessage{},
	}
	_, s.clock = traces.Monotonic()
	for _, w := range workers(cfg.Topology) {
		s.members = append(s.members, &member{Member: s.Add(w.id, w.role, 1), worker: w})
	}
	return s
}

// start opens the proxies and starts all workers at once.
func (s *stack) start(ctx context.Context) error {
	var err error
	if s.temp, err = os.MkdirTemp(s.a.session.Temp, ""); err != nil {
		return err
	}
	taken, err := fleet.FreePorts(2 * len(s.members))
	if err != nil {
		return err
	}
	for i, m := range s.members {
		m.worker.ports = ports{http: taken[2*i], side: taken[2*i+1]}
	}
	if err := s.openProxies(); err != nil {
		return fmt.Errorf("open the stack's proxies: %w", err)
	}
	if err := fleet.StartAll(s.members, func(m *member) error { return s.startWorker(ctx, m) }); err != nil {
		return err
	}
	return s.warm(ctx)
}

func (s *stack) openProxies() error {
	var decodes []string
	for _, m := range fleet.Of(s.members, spec.RoleDecode) {
		decodes = append(decodes, m.worker.id)
	}
	for _, m := range s.members {
		var err error
		m.http, err = faults.NewHTTPProxy(faults.HTTPProxyOptions{
			Upstream: fleet.Local(m.worker.ports.http), From: "router", To: m.worker.id, Engine: s.cfg.Engine, Decode: pointOf,
		})
		if err == nil && m.worker.role == spec.RolePrefill {
			m.between, err = wire.Open(wire.Options{
				Connector: wire.Connector(s.cfg.Mode), Engine: s.cfg.Engine, Side: fleet.Local(m.worker.ports.side),
				Prefill: m.worker.id, Decodes: decodes,
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pointOf says which request an HTTP body speaks of.
func pointOf(_ *http.Request, content []byte) faults.Point {
	var b body
	if json.Unmarshal(content, &b) != nil || b.ID == "" {
		return faults.Point{}
	}
	return faults.Point{Req: b.ID, Handoff: handoffOf(b.ID)}
}

// handoffOf is how a request's handoff is called in traces.
func handoffOf(req string) string { return "kv-" + req }

// startWorker starts the present incarnation of a worker.
func (s *stack) startWorker(ctx context.Context, m *member) error {
	w := m.worker
	w.id = m.Name()
	dir, err := filepath.Abs(s.cfg.Dir)
	if err != nil {
		return err
	}
	argv, err := w.argv(s.cfg, s.a.session.Model)
	if err != nil {
		return err
	}
	variable, err := w.probe(s.cfg, s.clock)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "events"), 0o755); err != nil {
		return err
	}
	env := slices.Concat(s.a.session.Env.Environ(os.Environ(), s.a.session.Probe), w.environment(s.cfg, s.temp), s.a.cached(), []string{variable})
	ready := readyText
	if s.cfg.Mode == Mooncake { // whose bootstrap server says the same as vLLM's own, and earlier
		ready = routesText
	}
	err = s.Start(ctx, m.Member, launch.Spec{
		Argv: argv, Env: env, Dir: s.temp, Log: filepath.Join(dir, "logs", w.id+".log"), Ready: ready, Failed: failedTexts,
	})
	if err == nil && s.cfg.Mode == Mooncake {
		err = s.serves(ctx, w)
	}
	if err != nil {
		return err
	}
	return fleet.Probed(dir, w.id, w.sources(s.cfg)...)
}

// serves waits until a worker that has told its routes answers.
func (s *stack) serves(ctx context.Context, w worker) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+fleet.Local(w.ports.http)+"/health", nil)
		if err != nil {
			return err
		}
		resp, err := s.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("GET /health: %s", resp.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("worker %s does not serve: %w", w.id, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Restart starts the next incarnation of a worker, on the same ports.
func (s *stack) Restart(ctx context.Context, name string) error {
	next, err := s.Next(ctx, name)
	if err != nil {
		return err
	}
	m, err := fleet.Find(s.members, next.ID)
	if err != nil {
		return err
	}
	for _, p := range fleet.Of(s.members, spec.RolePrefill) {
		p.between.Rename(m.worker.id, m.Name())
	}
	return s.startWorker(ctx, m)
}

func (s *stack) Limits() adapters.Limits { return s.limits }

// Reference is the right answer, if it was taken.
func (s *stack) Reference(prompt []int32, n int) []int32 { return s.a.session.Answers.Get(prompt, n) }

// Unknown counts the messages between workers that no row of the frame table is for.
func (s *stack) Unknown() int {
	n := 0
	for _, m := range fleet.Of(s.members, spec.RolePrefill) {
		n += unknown.Sum(m.between.Unknown())
	}
	return n
}

// Idle asks each recorder what its worker holds.
func (s *stack) Idle(ctx context.Context) (bool, string, error) {
	patience := s.limits.Lease
	if !featuresOf(s.cfg.Version).lease {
		patience = 0 // a prefill worker without work looks at no clock: what it keeps, it keeps
	}
	return s.still.Idle(ctx, s.cfg.Probes, s.active.Load(), patience+5*time.Second)
}

// Served is what the probes' hooks did, by source.
func (s *stack) Served() map[string]any { return fleet.Served(s.cfg.Dir) }

// Stop ends every process, whatever it does, and closes the proxies. It may be called
// again.
func (s *stack) Stop(ctx context.Context) error {
	again, err := s.Fleet.Stop(ctx)
	if again {
		return nil
	}
	errs := []error{err}
	if err == nil { // nobody writes any more
		errs = append(errs, fleet.CutSpools(s.cfg.Dir))
	}
	for _, m := range s.members {
		if m.http != nil {
			errs = append(errs, m.http.Close())
		}
		if m.between != nil {
			errs = append(errs, m.between.Close())
		}
	}
	s.client.CloseIdleConnections()
	if s.temp != "" {
		errs = append(errs, os.RemoveAll(s.temp))
	}
	return errors.Join(errs...)
}
