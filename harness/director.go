package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"conform/adapters"
	"conform/faults"
	"conform/spec"
)

// part is one request of a play. It is sent once, when the play says so.
type part struct {
	name           string // as the play calls it
	prompt, output int    // tokens; the prompt is drawn from the seed
	stream         bool
	samples        int    // answers to the one prompt; 0 is one
	handoff        string // a key to use; "" lets the stack choose
	prefill        int    // which worker of each role serves it, from 0
	decode         int
}

// chorus is n parts that are alike: name-0, name-1, … Their prompts differ.
func chorus(name string, n, prompt, output int) []part {
	parts := make([]part, n)
	for i := range parts {
		parts[i] = part{name: fmt.Sprintf("%s-%d", name, i), prompt: prompt, output: output}
	}
	return parts
}

// drawCast makes the requests of a play from a seed, in the order of its parts.
func drawCast(parts []part, seed uint64, pace adapters.Pace) []request {
	rng := rand.New(rand.NewPCG(seed, 0x706c6179))
	reqs := make([]request, len(parts))
	for i, p := range parts {
		prompt := make([]int32, p.prompt)
		for j := range prompt {
			prompt[j] = pace.Vocab[0] + rng.Int32N(pace.Vocab[1]-pace.Vocab[0]+1)
		}
		reqs[i] = request{
			id: requestID(i), prompt: prompt, output: p.output, stream: p.stream,
			samples: p.samples, handoff: p.handoff, prefill: p.prefill, decode: p.decode,
		}
	}
	return reqs
}

// director leads a play: it forces one order of events on a stack, where clients
// that come at random would rarely meet it. A play sends the parts of its cast,
// waits for what the recorders report, and does what it waits for to happen next:
//
//	victim, err := d.send(ctx, "victim")            // asynchronous
//	begun, err := d.await(ctx, d.at(spec.RolePrefill, spec.KindBegin, ofReq(victim.id)))
//	err = d.abort(ctx, victim, spec.RoleDecode)      // returns when it was taken in
//	err = d.release("hold-the-transfer")             // a rule of the plan lets go
//	told, err := victim.wait(ctx)
//
// Every event on the client's side is recorded as that of any client. Its methods
// may be called from many goroutines. What they wait for, ctx bounds; it ends with
// the adapter's [adapters.Pace].Work. When the play returns, rules are switched off,
// what is held or paused goes on, and requests that are still in flight are waited for.
type director struct {
	l     *lab
	log   *hearing
	stack adapters.Stack
	load  *clients
	cast  map[string]request

	wg sync.WaitGroup // of the requests in flight

	mu     sync.Mutex
	sent   map[string]*sent
	paused map[string]bool
}

func newDirector(l *lab, parts []part, reqs []request) *director {
	d := &director{
		l: l, log: l.heard, stack: l.stack, load: l.load,
		cast: map[string]request{}, sent: map[string]*sent{}, paused: map[string]bool{},
	}
	for i, p := range parts {
		d.cast[p.name] = reqs[i]
	}
	return d
}

// sent is a request that was sent.
type sent struct {
	id   string // in the trace
	name string
	done chan struct{} // closed once told is set
	told told
}

// wait gives what the client was told in the end. The error is ctx's alone.
func (s *sent) wait(ctx context.Context) (told, error) {
	select {
	case <-s.done:
		return s.told, nil
	case <-ctx.Done():
		return told{}, fmt.Errorf("%s (%s) was not answered: %w", s.name, s.id, ctx.Err())
	}
}

// send sends a part of the cast, as a client of its own, and returns at once.
func (d *director) send(ctx context.Context, name string) (*sent, error) {
	q, ok := d.cast[name]
	if !ok {
		return nil, fmt.Errorf("the cast has no part %q", name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent[name] != nil {
		return nil, fmt.Errorf("the part %q was sent already", name)
	}
	s := &sent{id: q.id, name: name, done: make(chan struct{})}
	d.sent[name] = s
	d.l.own.record(spec.Event{K: spec.KindNote, Text: q.id + " is the play's " + name})
	d.wg.Go(func() {
		defer close(s.done)
		s.told = d.load.one(ctx, name, q)
	})
	return s, nil
}

// abort asks to give a request up: "" through the client's own API, a role at
// that stage alone. It returns when the question has been taken in. Giving up a
// request that has ended is errEnded.
func (d *director) abort(ctx context.Context, s *sent, at spec.Role) error {
	return d.giveUp(ctx, s, ask{how: abort, at: at, done: make(chan error, 1)})
}

// leave closes the client's connections, and returns when that is done. Giving up
// a request that has ended is errEnded.
func (d *director) leave(ctx context.Context, s *sent) error {
	return d.giveUp(ctx, s, ask{how: leave, done: make(chan error, 1)})
}

func (d *director) giveUp(ctx context.Context, s *sent, a ask) error {
	ended := fmt.Errorf("%s (%s): %w", s.name, s.id, errEnded)
	asks, err := d.inFlight(ctx, s)
	if err != nil {
		return err
	}
	if asks == nil {
		return ended
	}
	select {
	case asks <- a:
	case <-s.done:
		return ended
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-a.done:
		return err
	case <-s.done:
		select {
		case err := <-a.done: // both at once
			return err
		default:
			return ended
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inFlight waits until a request is in flight, and gives the way to its client;
// nil if it has ended.
func (d *director) inFlight(ctx context.Context, s *sent) (chan<- ask, error) {
	for {
		d.load.mu.Lock()
		asks := d.load.giveUps[s.id]
		d.load.mu.Unlock()
		if asks != nil {
			return asks, nil
		}
		select {
		case <-s.done:
			return nil, nil
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fill uses up free blocks of one worker with a request that it alone serves,
// without a handoff, and returns when it has been served. The error is
// [adapters.ErrUnsupported] on a stack that can't.
func (d *director) fill(ctx context.Context, worker string, tokens, output int) error {
	f, ok := d.stack.(adapters.Filler)
	if !ok {
		return fmt.Errorf("fill %s: %w", worker, adapters.ErrUnsupported)
	}
	return f.Fill(ctx, worker, tokens, output)
}

// await gives the first event since the stack was started that f picks, however
// long ago it came. It hears the harness's own sources, and of the workers' events
// those of the kinds that the shape's hears or the plan name.
func (d *director) await(ctx context.Context, f func(*spec.Event) bool) (spec.Event, error) {
	return d.log.await(ctx, f)
}

// heard reports whether such an event has come so far, and gives the first.
func (d *director) heard(f func(*spec.Event) bool) (bool, spec.Event) {
	events, _, _ := d.log.since(0)
	if i := slices.IndexFunc(events, func(e spec.Event) bool { return f(&e) }); i >= 0 {
		return true, events[i]
	}
	return false, spec.Event{}
}

// fired waits until a rule of the plan has acted so many times, and gives its event
// (of a hold: that it began).
func (d *director) fired(ctx context.Context, rule string, times int) (spec.Event, error) {
	n := 0
	e, err := d.await(ctx, func(e *spec.Event) bool {
		if e.K == spec.KindFault && e.Rule == rule && !followsUp[e.Do] {
			n++
		}
		return n == times
	})
	if err != nil {
		return e, fmt.Errorf("rule %s has not acted %d times: %w", rule, times, err)
	}
	return e, nil
}

// rule puts a rule of the plan on or off; each is on at first.
func (d *director) rule(name string, on bool) error { return d.l.engine.Switch(name, on) }

// release ends what a rule of the plan holds at present. It is an error if it
// holds nothing.
func (d *director) release(rule string) error {
	n, err := d.l.engine.Release(rule)
	if err == nil && n == 0 {
		err = fmt.Errorf("rule %s holds nothing", rule)
	}
	return err
}

// playRule is what fault events of a play are recorded under.
const playRule = "play"

// pause stops a worker's processes where they are. A worker is named by its role
// or its id.
func (d *director) pause(ctx context.Context, worker string) error {
	d.mu.Lock()
	d.paused[worker] = true
	d.mu.Unlock()
	d.l.own.record(spec.Event{K: spec.KindFault, Rule: playRule, Do: faults.DoPause})
	return d.stack.Pause(ctx, worker)
}

// resume lets a paused worker go on.
func (d *director) resume(ctx context.Context, worker string) error {
	d.mu.Lock()
	delete(d.paused, worker)
	d.mu.Unlock()
	d.l.own.record(spec.Event{K: spec.KindFault, Rule: playRule, Do: faults.DoResume})
	return d.stack.Resume(ctx, worker)
}

// kill ends a worker at once.
func (d *director) kill(ctx context.Context, worker string) error {
	d.l.own.record(spec.Event{K: spec.KindFault, Rule: playRule, Do: faults.DoKill})
	return d.stack.Kill(ctx, worker)
}

// restart starts a worker again, killing it first if it lives.
func (d *director) restart(ctx context.Context, worker string) error {
	d.l.own.record(spec.Event{K: spec.KindFault, Rule: playRule, Do: faults.DoRestart})
	return d.stack.Restart(ctx, worker)
}

// limits are the stack's effective ones.
func (d *director) limits() adapters.Limits { return d.stack.Limits() }

// settled waits until nothing is in flight at any worker.
func (d *director) settled(ctx context.Context) error {
	_, busy := d.l.quiet(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("the stack did not become idle: %s: %w", busy, ctx.Err())
	}
	return nil
}

// at picks events of a kind by workers of a role, that also satisfy every other.
func (d *director) at(role spec.Role, k spec.Kind, others ...func(*spec.Event) bool) func(*spec.Event) bool {
	rest := all(others...)
	return func(e *spec.Event) bool {
		if e.K != k {
			return false
		}
		r, _ := d.log.roleOf(e.Src)
		return r == role && rest(e)
	}
}

// by picks events of one worker, by its id.
func (d *director) by(worker string) func(*spec.Event) bool {
	return func(e *spec.Event) bool {
		_, w := d.log.roleOf(e.Src)
		return w == worker
	}
}

// all picks events that satisfy every f.
func all(fs ...func(*spec.Event) bool) func(*spec.Event) bool {
	return func(e *spec.Event) bool {
		return !slices.ContainsFunc(fs, func(f func(*spec.Event) bool) bool { return !f(e) })
	}
}

func ofKind(k spec.Kind) func(*spec.Event) bool { return isKind(k) }

// ofReq picks events that name a request.
func ofReq(id string) func(*spec.Event) bool {
	return func(e *spec.Event) bool { return e.Req == id }
}

// ofHandoff picks events that name a handoff.
func ofHandoff(key string) func(*spec.Event) bool {
	return func(e *spec.Event) bool { return e.Handoff == key }
}

// ofSignal picks emissions and observations of a kind of signal.
func ofSignal(signal string) func(*spec.Event) bool {
	return func(e *spec.Event) bool { return e.Signal == signal }
}

// inPool picks events about a pool.
func inPool(pool string) func(*spec.Event) bool {
	return func(e *spec.Event) bool { return e.Pool == pool }
}

// end lets everything go on that the play has stopped, and waits for its requests:
// each ends with the limit of an answer, and with the play's time.
func (d *director) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.l.pace.Stop)
	defer cancel()
	var errs []error
	for _, n := range d.l.engine.Counts() {
		_, err := d.l.engine.Release(n.Rule)
		errs = append(errs, d.l.engine.Switch(n.Rule, false), err)
	}
	d.mu.Lock()
	paused := slices.Sorted(maps.Keys(d.paused))
	d.mu.Unlock()
	for _, worker := range paused {
		errs = append(errs, d.resume(ctx, worker))
	}
	d.wg.Wait()
	return errors.Join(errs...)
}
