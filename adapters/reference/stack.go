package reference

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"conform/adapters"
	"conform/faults"
	"conform/spec"
)

// Adapter starts the reference stack.
type Adapter struct{}

var _ adapters.Adapter = Adapter{}

// Info says what it is.
func (Adapter) Info() adapters.Info {
	return adapters.Info{
		Name: "reference", Title: "the stack that ships with Conform: router, prefill and decode as processes, a toy model",
		Modes: []string{Push, Pull}, Level: spec.L3,
	}
}

// Limits are the defaults where cfg asks for nothing else.
func (Adapter) Limits(cfg adapters.Config) adapters.Limits {
	limits := defaultLimits(cfg.Limits)
	if d, _ := DefectByName(cfg.Defect); d.Clockless { // as engines have them: nobody lives to see one run out
		limits.HandoffTimeout, limits.Lease, limits.AbortTimeout = 300*time.Second, 300*time.Second, 300*time.Second
	}
	return limits
}

// Pace is that of processes that start in milliseconds.
func (Adapter) Pace() adapters.Pace {
	return adapters.Pace{
		Start: 20 * time.Second, Work: 60 * time.Second, Settle: 15 * time.Second, Stop: 10 * time.Second, Answer: 8 * time.Second,
		Vocab: [2]int32{0, 31999}, PageTokens: BlockTokens,
	}
}

// argPrefixCache is the one argument that the stack takes.
const argPrefixCache = "--prefix-cache"

// ErrConfig marks a configuration that the stack can't be started with.
var ErrConfig = errors.New("the reference stack can't be started like this")

func check(cfg adapters.Config) error {
	if cfg.Mode != Push && cfg.Mode != Pull {
		return fmt.Errorf("%w: mode %q, expected push or pull", ErrConfig, cfg.Mode)
	}
	if _, ok := DefectByName(cfg.Defect); cfg.Defect != "" && !ok {
		return fmt.Errorf("%w: unknown defect %q", ErrConfig, cfg.Defect)
	}
	for _, a := range cfg.Args {
		if a != argPrefixCache {
			return fmt.Errorf("%w: argument %q, expected %s or none", ErrConfig, a, argPrefixCache)
		}
	}
	switch t := cfg.Topology.Filled(); {
	case t.Prefill > 1 || t.Decode > 1 || t.PrefillTP > maxRanks || t.DecodeTP > maxRanks:
		return fmt.Errorf("%w: it has one worker of each role, of %d ranks at most", ErrConfig, maxRanks)
	case cfg.Mode == Pull && (t.PrefillTP > 1 || t.DecodeTP > 1):
		return fmt.Errorf("%w: in pull mode each role has one rank", ErrConfig)
	}
	return nil
}

// stack is a running reference stack.
type stack struct {
	cfg    adapters.Config
	limits adapters.Limits
	forker *forker
	client *http.Client // of the harness: load and the like
	users  *http.Client // of the clients

	clientHTTP *faults.HTTPProxy
	http       map[place]*faults.HTTPProxy // to each worker but the router
	ctl        map[place]*faults.ZMTPProxy

	mu           sync.Mutex
	procs        map[place]*process // the present incarnations
	all          []*process
	incarnations map[place]int
	stopped      bool
	lastLoad     load // as Idle saw it last
	stillSince   time.Time
}

// Start starts the proxies, then the workers.
func (Adapter) Start(ctx context.Context, cfg adapters.Config) (adapters.Stack, error) {
	if err := check(cfg); err != nil {
		return nil, err
	}
	s := newStack(cfg)
	err := s.openProxies()
	for _, at := range s.places(spec.RolePrefill, spec.RoleDecode, spec.RoleRouter) {
		if err == nil {
			err = s.startWorker(ctx, at)
		}
	}
	if err == nil {
		err = s.awaitServing(ctx)
	}
	if err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return nil, errors.Join(err, s.Stop(stopCtx))
	}
	return s, nil
}

// place is where a worker stands, whichever incarnation of it.
type place struct {
	role spec.Role
	rank int
}

// id names the first incarnation there.
func (p place) id() string {
	if p.rank > 0 {
		return fmt.Sprintf("%s-0.r%d", p.role, p.rank)
	}
	return string(p.role) + "-0"
}

// proxied is what fault plans know it by: a role is its first rank's name too.
func (p place) proxied() string {
	if p.rank > 0 {
		return p.id()
	}
	return string(p.role)
}

// places are those of the roles, in the order given and by rank.
func (s *stack) places(roles ...spec.Role) []place {
	t := s.cfg.Topology.Filled()
	ranks := map[spec.Role]int{spec.RolePrefill: t.PrefillTP, spec.RoleDecode: t.DecodeTP, spec.RoleRouter: 1}
	var all []place
	for _, role := range roles {
		for rank := range ranks[role] {
			all = append(all, place{role, rank})
		}
	}
	return all
}

func newStack(cfg adapters.Config) *stack {
	return &stack{
		cfg: cfg, limits: Adapter{}.Limits(cfg), forker: newForker(), client: &http.Client{Timeout: 2 * time.Second},
		users: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		http:  map[place]*faults.HTTPProxy{}, ctl: map[place]*faults.ZMTPProxy{},
		procs: map[place]*process{}, incarnations: map[place]int{},
	}
}

func (s *stack) openProxies() error {
	const listen = "127.0.0.1:0"
	openHTTP := func(at, from, to string) (*faults.HTTPProxy, error) {
		return faults.NewHTTPProxy(faults.HTTPProxyOptions{Listen: at, From: from, To: to, Engine: s.cfg.Engine, Decode: decodeHTTP})
	}
	var err error
	if s.clientHTTP, err = openHTTP(cmp.Or(s.cfg.Listen, listen), "client", "router"); err != nil {
		return fmt.Errorf("open the proxy before the router: %w", err)
	}
	peer := map[spec.Role]string{spec.RolePrefill: "decode", spec.RoleDecode: "prefill"}
	for _, at := range s.places(spec.RolePrefill, spec.RoleDecode) {
		if s.http[at], err = openHTTP(listen, "router", at.proxied()); err == nil {
			s.ctl[at], err = faults.NewZMTPProxy(faults.ZMTPProxyOptions{Listen: listen, From: peer[at.role], To: at.proxied(), Engine: s.cfg.Engine, Decode: decodePoint})
		}
		if err != nil {
			return fmt.Errorf("open the proxies before %s: %w", at.id(), err)
		}
	}
	return nil
}

// decodeHTTP tells the proxies which request an HTTP body speaks of.
func decodeHTTP(_ *http.Request, body []byte) faults.Point {
	var b struct {
		Req     string `json:"req"`
		Client  string `json:"rid"`
		Handoff string `json:"handoff"`
	}
	if json.Unmarshal(body, &b) != nil {
		return faults.Point{}
	}
	if b.Req == "" {
		b.Req = b.Client
	}
	return faults.Point{Req: b.Req, Handoff: b.Handoff}
}

// decodeClock is how far decode's clock stands off prefill's.
const decodeClock = -time.Hour

func (s *stack) workerConfig(at place, id, nic string) workerConfig {
	t := s.cfg.Topology.Filled()
	c := workerConfig{
		ID: id, Role: at.role, Rank: at.rank, Mode: s.cfg.Mode, Defect: s.cfg.Defect, Dir: s.cfg.Dir, Host: s.cfg.Host,
		Failpoint: s.cfg.Failpoint, Limits: s.limits, PrefixCache: slices.Contains(s.cfg.Args, argPrefixCache),
		NIC: nic, PrefillRanks: t.PrefillTP, DecodeRanks: t.DecodeTP,
	}
	if at.role == spec.RoleDecode {
		c.Clock = decodeClock
	}
	if len(s.http) == 0 { // it is described only
		return c
	}
	for _, p := range s.places(spec.RolePrefill) {
		c.PrefillHTTP, c.PrefillCtl = append(c.PrefillHTTP, s.http[p].Addr()), append(c.PrefillCtl, s.ctl[p].Addr())
	}
	for _, p := range s.places(spec.RoleDecode) {
		c.DecodeHTTP = append(c.DecodeHTTP, s.http[p].Addr())
	}
	if ctl := s.ctl[at]; ctl != nil {
		c.Ctl = ctl.Addr()
	}
	return c
}

// startWorker starts the next incarnation at a place. Its NIC listens where that of
// the one before did, as on a host that keeps its address.
func (s *stack) startWorker(ctx context.Context, at place) error {
	s.mu.Lock()
	n, nic := s.incarnations[at], ""
	s.incarnations[at]++
	if p := s.procs[at]; p != nil {
		nic = p.ready.NIC
	}
	s.mu.Unlock()
	id := at.id()
	if n > 0 {
		id = fmt.Sprintf("%s.%d", id, n)
	}
	p, err := startProcess(ctx, s.forker, s.workerConfig(at, id, nic), s.cfg.Env, s.cfg.OnExit)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs[at] = p
	s.all = append(s.all, p)
	if at.role == spec.RoleRouter {
		s.clientHTTP.SetUpstream(p.ready.HTTP)
		return nil
	}
	s.http[at].SetUpstream(p.ready.HTTP)
	s.ctl[at].SetUpstream(p.ready.Ctl)
	return nil
}

// awaitServing waits until decode knows prefill's incarnation, that is, until the
// first request would not have to wait.
func (s *stack) awaitServing(ctx context.Context) error {
	for {
		if _, _, err := s.Idle(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the stack's workers run but do not answer: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *stack) Limits() adapters.Limits { return s.limits }

func (s *stack) Reference(prompt []int32, n int) []int32 { return Generate(prompt, n) }

func (s *stack) Unknown() (n int) {
	for _, p := range s.ctl {
		n += p.Unknown()
	}
	return n
}

func (s *stack) Workers() []adapters.Worker {
	var ws []adapters.Worker
	for _, p := range s.present() {
		ws = append(ws, adapters.Worker{ID: p.cfg.ID, Role: p.cfg.Role, PID: p.cmd.Process.Pid, Pools: p.cfg.Role != spec.RoleRouter})
	}
	return ws
}

// Idle asks each worker what is in flight there, past the proxies. What has not
// changed for longer than any clock of the stack runs, and moves no bytes, will
// never move again: it is held, not in flight.
func (s *stack) Idle(ctx context.Context) (bool, string, error) {
	var total load
	var busy []string
	for _, p := range s.present() {
		var l load
		if err := getJSON(ctx, s.client, "http://"+p.ready.HTTP+"/load", &l); err != nil {
			return false, "", fmt.Errorf("ask worker %s for its load: %w", p.cfg.ID, err)
		}
		total.Requests, total.Handoffs, total.Transfers = total.Requests+l.Requests, total.Handoffs+l.Handoffs, total.Transfers+l.Transfers
		if !l.idle() {
			busy = append(busy, fmt.Sprintf("%s: %d requests, %d handoffs, %d transfers", p.cfg.ID, l.Requests, l.Handoffs, l.Transfers))
		}
	}
	slices.Sort(busy)
	return total.idle() || s.stuck(total), strings.Join(busy, "; "), nil
}

// stuck reports whether the load has stood still for too long to move again.
func (s *stack) stuck(l load) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l != s.lastLoad || l.Transfers > 0 {
		s.lastLoad, s.stillSince = l, time.Now()
		return false
	}
	c := defaultLimits(s.cfg.Limits)
	return time.Since(s.stillSince) > max(c.HandoffTimeout, c.Lease)+c.AbortTimeout+c.PeerTimeout
}

// present are the incarnations that run.
func (s *stack) present() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ps []*process
	for _, at := range s.places(spec.RoleRouter, spec.RolePrefill, spec.RoleDecode) {
		if p := s.procs[at]; p != nil && p.running() {
			ps = append(ps, p)
		}
	}
	return ps
}

// find resolves a role, which is its first rank, or a worker's id to the present
// incarnation.
func (s *stack) find(worker string) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, p := range s.procs {
		if p != nil && (at.proxied() == worker || p.cfg.ID == worker) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no worker %q: expected router, prefill or decode", worker)
}

func (s *stack) Pause(_ context.Context, worker string) error {
	p, err := s.find(worker)
	if err != nil {
		return err
	}
	return p.signal(syscall.SIGSTOP)
}

func (s *stack) Resume(_ context.Context, worker string) error {
	p, err := s.find(worker)
	if err != nil {
		return err
	}
	return p.signal(syscall.SIGCONT)
}

// Kill ends a worker at once, as a crash does, and waits until it is gone.
func (s *stack) Kill(ctx context.Context, worker string) error {
	p, err := s.find(worker)
	if err != nil {
		return err
	}
	p.kill()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Restart starts a new incarnation; one that still runs is killed first.
func (s *stack) Restart(ctx context.Context, worker string) error {
	p, err := s.find(worker)
	if err != nil {
		return err
	}
	if err := s.Kill(ctx, worker); err != nil {
		return err
	}
	return s.startWorker(ctx, place{p.cfg.Role, p.cfg.Rank})
}

// Stop ends the workers, the router first so that no new work begins, then the
// proxies.
func (s *stack) Stop(ctx context.Context) error {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil
	}
	s.stopped = true
	var order []*process
	for _, at := range s.places(spec.RoleRouter, spec.RoleDecode, spec.RolePrefill) {
		if p := s.procs[at]; p != nil && p.running() {
			order = append(order, p)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, p := range order {
		errs = append(errs, p.end(ctx))
	}
	s.forker.close()
	s.users.CloseIdleConnections()
	if s.clientHTTP != nil {
		errs = append(errs, s.clientHTTP.Close())
	}
	for _, at := range s.places(spec.RolePrefill, spec.RoleDecode) {
		if p := s.http[at]; p != nil {
			errs = append(errs, p.Close())
		}
		if p := s.ctl[at]; p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// Describe lists what Start would start.
func (Adapter) Describe(cfg adapters.Config) (string, error) {
	if err := check(cfg); err != nil {
		return "", err
	}
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	s := newStack(cfg)
	s.forker.close()
	var b strings.Builder
	for _, at := range s.places(spec.RolePrefill, spec.RoleDecode, spec.RoleRouter) {
		text, err := json.Marshal(s.workerConfig(at, at.id(), ""))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s='%s' %s %s\n", workerEnv, text, strings.Join(cfg.Env, " "), exe)
	}
	return b.String(), nil
}
