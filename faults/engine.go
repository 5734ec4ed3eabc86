package faults

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"conform/spec"
)

// Clock is what the engine knows of time, so that a test can set it.
type Clock interface {
	Now() time.Time
	// After delivers once, when d has passed.
	After(d time.Duration) <-chan time.Time
}

type wallClock struct{}

func (wallClock) Now() time.Time                         { return time.Now() }
func (wallClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Processes lets process faults act. A worker is named as the plan names it: by
// role or by id.
type Processes interface {
	// Pause stops the worker's processes where they are (SIGSTOP).
	Pause(ctx context.Context, worker string) error
	// Resume lets a paused worker go on (SIGCONT).
	Resume(ctx context.Context, worker string) error
	// Kill ends the worker at once, with no chance to tidy up (SIGKILL).
	Kill(ctx context.Context, worker string) error
	// Restart starts the worker again, killing it first if it lives.
	Restart(ctx context.Context, worker string) error
}

// EngineOptions are what an engine acts through. The zero value serves a plan
// without process faults.
type EngineOptions struct {
	// Record receives each fault event at the moment it acts, and a note when a
	// process fault could not be carried out. Source, sequence number and time
	// are for the recorder to fill in. It is called from many goroutines at once,
	// must not wait for the engine, and may still be called by those who are in
	// Pass while the engine is closed.
	Record func(spec.Event)
	// Processes is needed by a plan with pause, kill or restart.
	Processes Processes
	// GiveUp is needed by a plan with abort or leave: the client of a request asks
	// to stop it (at a stage, if at is not ""), or leaves. It must not wait.
	GiveUp func(req string, leave bool, at string)
	// Clock is the wall's by default.
	Clock Clock
}

// Count says how often one rule of the plan acted.
type Count struct {
	Rule  string
	Do    string
	Fired int
	// Seen counts what its `when` matched, nth, probability and count aside.
	Seen int
	// Failed counts process faults that could not be carried out; they are not
	// in Fired.
	Failed int
}

// ErrNoProcesses is returned for a plan with process faults when nothing can
// carry them out.
var ErrNoProcesses = errors.New("faults: the plan has process faults, but nothing here can carry them out")

// ErrNoClients is returned for a plan with abort or leave when there is no client
// here to do that.
var ErrNoClients = errors.New("faults: the plan lets clients give requests up, but there are no clients here")

// Engine decides, by one plan and one seed, what happens to what passes by.
//
// Decisions depend on the plan, the seed and the order in which points come,
// and on nothing else: each rule draws from a stream of its own, named by the
// rule, once for each of its matches, whether or not another rule acts there.
// So a rule that is added or taken away leaves the others' draws as they were.
type Engine struct {
	plan   *Plan
	record func(spec.Event)
	procs  Processes
	giveUp func(req string, leave bool, at string)
	clock  Clock

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // process faults, resumes, heals

	kinds  map[string]bool    // that the plan has use for
	events map[spec.Kind]bool // and of recorded events

	mu         sync.Mutex
	closed     bool
	match      matcher
	rules      []*ruleState
	off        map[string]bool // rules that are switched off
	holds      map[*hold]struct{}
	partitions []*partition   // that are on
	paused     map[string]int // worker -> pauses not yet over
	flights    map[*flight]struct{}
}

// ruleState is a rule with what has happened to it.
type ruleState struct {
	*Rule
	besides bool // it acts beside what passes, not on it
	random  *rand.Rand
	after   *armed // nil without `after`
	seen    int
	fired   int
	failed  int
}

// NewEngine starts an engine. It must be closed.
func NewEngine(plan *Plan, seed uint64, opt EngineOptions) (*Engine, error) {
	e := &Engine{
		plan:   plan,
		record: opt.Record, procs: opt.Processes, giveUp: opt.GiveUp, clock: opt.Clock,
		kinds: map[string]bool{}, events: map[spec.Kind]bool{}, match: newMatcher(), off: map[string]bool{},
		holds: map[*hold]struct{}{}, paused: map[string]int{}, flights: map[*flight]struct{}{},
	}
	if e.record == nil {
		e.record = func(spec.Event) {}
	}
	if e.clock == nil {
		e.clock = wallClock{}
	}
	for i := range plan.Rules {
		r := &plan.Rules[i]
		if e.procs == nil && (r.Do == DoPause || r.Do == DoKill || r.Do == DoRestart) {
			return nil, fmt.Errorf("%w: rule %q does %s", ErrNoProcesses, r.Name, r.Do)
		}
		if e.giveUp == nil && (r.Do == DoAbort || r.Do == DoLeave) {
			return nil, fmt.Errorf("%w: rule %q does %s", ErrNoClients, r.Name, r.Do)
		}
		f, _ := faultByName(r.Do)
		state := &ruleState{Rule: r, besides: f.process, random: rand.New(rand.NewPCG(seed, streamOf(r.Name)))}
		if r.After != nil {
			state.after = newArmed(r.After)
		}
		e.rules = append(e.rules, state)
	}
	for _, k := range []string{KindSignal, KindAccess, KindHTTP, KindEvent} {
		e.kinds[k] = plan.Wants(k)
	}
	for _, k := range plan.Events() {
		e.events[spec.Kind(k)] = true
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// streamOf names a rule's stream of random numbers.
func streamOf(rule string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(rule))
	return h.Sum64()
}

// Plan is the engine's plan.
func (e *Engine) Plan() *Plan { return e.plan }

// Pass decides about p, and blocks for a delay or a hold until it is over, ctx
// ends, or the engine is closed; then what was held passes. A process fault that
// p triggers has been carried out when Pass returns, whether or not ctx has ended
// meanwhile: it may well be the asking worker that is killed.
//
// A message counts as seen by `until`, `behind` and `after` once it has passed:
// an access or a request when Pass returns, a signal when its carrier, having
// written it, calls [Engine.Passed].
func (e *Engine) Pass(ctx context.Context, p Point) Action {
	return e.Decide(p).Wait(ctx)
}

// Passed says that the signal p has now been written to its receiver. It
// releases what waits behind it.
func (e *Engine) Passed(p Point) {
	if e.kinds[p.Kind] {
		e.feed(&p)
	}
}

// Observe takes in a recorded event: it releases holds, triggers process
// faults, and never waits for them.
func (e *Engine) Observe(ev *spec.Event) {
	if !e.events[ev.K] && ev.K != spec.KindSource {
		return
	}
	e.mu.Lock()
	e.match.learn(ev)
	p := e.match.point(ev)
	e.mu.Unlock()
	d := e.Decide(p)
	e.feed(&p)
	if len(d.process) > 0 {
		e.spawn(d.carryOut)
	}
}

// feed shows p, which has passed or been recorded, to all that waits for it.
func (e *Engine) feed(p *Point) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.rules {
		if r.after != nil && e.match.matches(r.After, p) {
			r.after.see(p)
		}
	}
	for h := range e.holds {
		if !e.match.matches(h.until, p) || !e.match.same(h.until.Same, &h.point, p) {
			continue
		}
		if h.left--; h.left <= 0 {
			delete(e.holds, h)
			close(h.over)
		}
	}
}

// Counts says for each rule of the plan, in its order, how often it acted.
func (e *Engine) Counts() []Count {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := make([]Count, 0, len(e.rules))
	for _, r := range e.rules {
		counts = append(counts, Count{r.Name, r.Do, r.fired, r.seen, r.failed})
	}
	return counts
}

// Spent reports whether the plan has nothing left to do: each rule has acted, as
// often as it may where that is bounded, and nothing is held.
func (e *Engine) Spent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.rules {
		if r.fired < max(r.Count, 1) {
			return false
		}
	}
	return len(e.holds) == 0
}

// Close releases every hold, lets paused workers go on, heals partitions, and
// waits for the engine's goroutines. Afterwards everything passes. It comes
// before the proxies' and the failpoint server's, which then have nothing to
// wait for.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wg.Wait()
}

// spawn runs f in a goroutine that Close waits for; not after Close.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Go(f)
	return true
}

// wait lets d pass, unless the engine is closed first.
func (e *Engine) wait(d time.Duration) bool {
	select {
	case <-e.clock.After(d):
		return true
	case <-e.ctx.Done():
		return false
	}
}
