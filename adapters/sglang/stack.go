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
	"strconv"
	"sync/atomic"
	"time"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/adapters/engines/launch"
	"conform/adapters/engines/unknown"
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

	*fleet.Fleet
	members []*member // in the order of workers
	still   fleet.Stillness
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
		a: a, cfg: cfg, limits: limitsOf(cfg.Limits),
		legs: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	_, s.clock = traces.Monotonic()
	s.Fleet = fleet.New(a.session.Launcher, cfg.OnExit)
	for _, w := range workers(cfg.Topology) {
		s.members = append(s.members, &member{Member: s.Add(w.id, w.role, w.ranks), worker: w})
	}
	return s
}

// start opens the proxies and starts all workers at once.
func (s *stack) start(ctx context.Context) error {
	var err error
	if s.temp, err = os.MkdirTemp(s.a.session.Temp, ""); err != nil {
		return err
	}
	taken, err := fleet.FreePorts(3 * len(s.members))
	if err != nil {
		return err
	}
	for i, m := range s.members {
		m.worker.ports = ports{http: taken[3*i], bootstrap: taken[3*i+1], nccl: taken[3*i+2]}
	}
	if err := s.openProxies(); err != nil {
		return fmt.Errorf("open the stack's proxies: %w", err)
	}
	return fleet.StartAll(s.members, func(m *member) error { return s.startWorker(ctx, m) })
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
		if err != nil {
			return err
		}
		if m.worker.role != spec.RolePrefill {
			continue
		}
		m.between, err = wire.Open(wire.Options{
			Backend: wire.Backend(s.cfg.Mode), Engine: s.cfg.Engine, Bootstrap: fleet.Local(m.worker.ports.bootstrap),
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
	w.id = m.Name()
	variable, err := s.variable(w)
	if err != nil {
		return err
	}
	env := s.a.session.Env.Environ(os.Environ(), s.a.session.Probe)
	env = append(env, w.environment(s.cfg, s.temp)...)
	dir, err := filepath.Abs(s.cfg.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "events"), 0o755); err != nil {
		return err
	}
	err = s.Start(ctx, m.Member, launch.Spec{
		Argv: w.argv(s.cfg, s.a.session.Model), Env: append(env, variable), Dir: s.temp,
		Log: filepath.Join(dir, "logs", w.id+".log"), Ready: readyText, Failed: failedTexts,
	})
	if err != nil {
		return err
	}
	var ranks []string
	for rank := range w.ranks {
		ranks = append(ranks, fleet.RankName(w.id, rank))
	}
	return fleet.Probed(dir, w.id, ranks...)
}

// variable is what tells a worker's processes how they are probed.
func (s *stack) variable(w worker) (string, error) {
	return w.probe(s.cfg, s.clock, s.prefills())
}

// prefills is which prefill worker decode's requests mean by a bootstrap port.
func (s *stack) prefills() map[string]string {
	table := map[string]string{}
	for _, p := range fleet.Of(s.members, spec.RolePrefill) {
		for _, d := range fleet.Of(s.members, spec.RoleDecode) {
			if _, port, err := net.SplitHostPort(p.between.Bootstrap(d.worker.id)); err == nil {
				table[port] = p.Name()
			}
		}
	}
	return table
}

func (s *stack) Limits() adapters.Limits { return s.limits }

// Reference is the right answer, if it was taken.
func (s *stack) Reference(prompt []int32, n int) []int32 { return s.a.session.Answers.Get(prompt, n) }

// Unknown counts the messages that no row of the frame table is for.
func (s *stack) Unknown() int {
	n := 0
	for _, m := range fleet.Of(s.members, spec.RolePrefill) {
		n += unknown.Sum(m.between.Unknown())
	}
	return n
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

// Idle asks each recorder what its worker holds.
func (s *stack) Idle(ctx context.Context) (bool, string, error) {
	return s.still.Idle(ctx, s.cfg.Probes, s.active.Load(), s.limits.HandoffTimeout+s.limits.AbortTimeout+5*time.Second)
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
	s.legs.CloseIdleConnections()
	if s.temp != "" {
		errs = append(errs, os.RemoveAll(s.temp))
	}
	return errors.Join(errs...)
}
