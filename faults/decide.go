package faults

import (
	"context"
	"time"

	"conform/spec"
)

// maxKeys bounds what one `after` with `same` remembers; the oldest goes first.
const maxKeys = 1 << 16

// armed is the state of one `after`.
type armed struct {
	match *Match
	left  int // matches still to come, without Same
	keys  map[string]bool
	order []string
}

func newArmed(m *Match) *armed {
	return &armed{match: m, left: max(m.Nth, 1), keys: map[string]bool{}}
}

func (a *armed) key(p *Point) string {
	if a.match.Same == "req" {
		return p.Req
	}
	return p.Handoff
}

// see takes in a point that matches.
func (a *armed) see(p *Point) {
	if a.match.Same == "" {
		a.left = max(a.left-1, 0)
		return
	}
	k := a.key(p)
	if k == "" || a.keys[k] {
		return
	}
	if len(a.order) == maxKeys {
		delete(a.keys, a.order[0])
		a.order = a.order[1:]
	}
	a.keys[k] = true
	a.order = append(a.order, k)
}

// open reports whether p comes after what was asked for.
func (a *armed) open(p *Point) bool {
	if a == nil {
		return true
	}
	if a.match.Same == "" {
		return a.left == 0
	}
	return a.keys[a.key(p)]
}

// hold is one point that waits for another.
type hold struct {
	rule  string
	point Point
	until *Match
	left  int // matches still to come
	over  chan struct{}
}

// partition is one that is on.
type partition struct {
	rule   *ruleState
	healed chan struct{}
}

// Decision is what the engine made of one point, before any waiting.
type Decision struct {
	e       *Engine
	point   Point
	action  Action
	rule    *ruleState // that acts on the message, nil if none does
	delay   time.Duration
	hold    *hold        // of the message, or of its copy
	process []*ruleState // that act besides: on processes, the network, a client
	cut     *partition   // that keeps the message from passing
}

// Blocks reports whether [Decision.Wait] may take a while.
func (d *Decision) Blocks() bool {
	held := d.hold != nil && d.action.Do == Forward
	return d.delay > 0 || held || len(d.process) > 0
}

// Decide is the first half of [Engine.Pass]: it settles everything about p that
// depends on the order of points, at once, and opens the hold, so that what
// comes next can already end it. [Decision.Wait] must follow, from any goroutine.
func (e *Engine) Decide(p Point) *Decision {
	d := &Decision{e: e, point: p}
	if !e.kinds[p.Kind] {
		return d
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return d
	}
	for _, part := range e.partitions {
		if d.cut == nil && p.Kind != KindEvent && e.between(part.rule.Between, &p) {
			d.cut = part
		}
	}
	for _, r := range e.rules {
		if e.off[r.Name] || !e.match.matches(&r.When, &p) || !r.after.open(&p) {
			continue
		}
		fires, length := r.draw()
		switch {
		case !fires || r.Count > 0 && r.fired >= r.Count:
		case r.besides:
			r.fired++
			d.process = append(d.process, r)
		case d.rule == nil && d.cut == nil:
			r.fired++
			d.rule = r
			e.shape(d, length)
		}
	}
	if d.cut != nil {
		d.action.Do = Drop
		if p.Kind == KindAccess {
			d.action.Do = Fail
		}
	}
	return d
}

func (e *Engine) between(pair [2]string, p *Point) bool {
	return p.From != "" && p.To != "" &&
		(e.match.isWorker(pair[0], p.From) && e.match.isWorker(pair[1], p.To) ||
			e.match.isWorker(pair[1], p.From) && e.match.isWorker(pair[0], p.To))
}

// draw counts a match and says whether the rule acts on it, and for how long.
// It takes the same from the stream at each match.
func (r *ruleState) draw() (fires bool, length time.Duration) {
	r.seen++
	chance, share := r.random.Float64(), r.random.Float64()
	length = r.For + time.Duration(share*float64(r.ForMax-r.For))
	switch {
	case r.Nth > 0 && r.Every > 0:
		fires = r.seen >= r.Nth && (r.seen-r.Nth)%r.Every == 0
	case r.Nth > 0:
		fires = r.seen == r.Nth
	case r.Every > 0:
		fires = r.seen%r.Every == 0
	default:
		fires = true
	}
	return fires && chance < r.Probability, length
}

// shape fills in what the rule does to the message.
func (e *Engine) shape(d *Decision, length time.Duration) {
	r := d.rule
	switch r.Do {
	case DoDelay:
		d.delay = length
	case DoHold:
		d.hold = e.open(r, d.point, r.Until)
	case DoReorder:
		d.hold = e.open(r, d.point, r.Behind)
	case DoDrop:
		d.action.Do = Drop
	case DoFail:
		d.action.Do = Fail
	case DoDuplicate:
		d.action = Action{Do: Duplicate, Copies: r.Copies, After: length}
		if r.Until != nil {
			d.hold = e.open(r, d.point, r.Until)
		}
	}
}

func (e *Engine) open(r *ruleState, p Point, until *Match) *hold {
	h := &hold{rule: r.Name, point: p, until: until, left: max(until.Nth, 1), over: make(chan struct{})}
	e.holds[h] = struct{}{}
	return h
}

// Wait is the second half of [Engine.Pass]: it records what acts, carries out
// process faults, and waits as decided. It is called once.
func (d *Decision) Wait(ctx context.Context) Action {
	d.announce()
	d.carryOut()
	switch {
	case d.delay > 0:
		d.pause(ctx, d.delay)
	case d.hold != nil && d.action.Do == Forward:
		d.await(ctx)
	case d.hold != nil && d.point.Kind == KindSignal:
		// A carrier of the engine's own asks awaitCopy; another one gets the
		// longest time that the copy could wait.
		d.action.After = d.rule.Limit
	}
	d.passed()
	return d.action
}

// passed shows the point to what waits for it, if it is one that nobody else
// reports.
func (d *Decision) passed() {
	through := d.action.Do == Forward || d.action.Do == Duplicate
	if through && (d.point.Kind == KindAccess || d.point.Kind == KindHTTP) {
		d.e.feed(&d.point)
	}
}

// announce records the fault at the moment it acts.
func (d *Decision) announce() {
	switch {
	case d.cut != nil:
		d.e.fault(d.cut.rule, DoCut, d.point, 0)
	case d.rule != nil:
		length := d.delay
		if d.action.Do == Duplicate {
			length = d.action.After
		}
		d.e.fault(d.rule, d.rule.Do, d.point, length)
	}
}

func (e *Engine) fault(r *ruleState, do string, p Point, length time.Duration) {
	e.record(spec.Event{
		K: spec.KindFault, Rule: r.Name, Do: do,
		Sig: p.Sig, Access: p.Access, Req: p.Req, Handoff: p.Handoff, MS: length.Milliseconds(),
	})
}

func (d *Decision) pause(ctx context.Context, length time.Duration) {
	select {
	case <-d.e.clock.After(length):
	case <-ctx.Done():
	case <-d.e.ctx.Done():
	}
}

// await ends with the hold, and records how.
func (d *Decision) await(ctx context.Context) {
	e, began, how := d.e, d.e.clock.Now(), DoRelease
	select {
	case <-d.hold.over:
	case <-e.clock.After(d.rule.Limit):
		how = DoReleaseLimit
	case <-ctx.Done():
		how = DoReleaseEnd
	case <-e.ctx.Done():
		how = DoReleaseEnd
	}
	e.mu.Lock()
	delete(e.holds, d.hold)
	e.mu.Unlock()
	e.fault(d.rule, how, d.point, e.clock.Now().Sub(began))
}

// awaitCopy waits until the copy of a duplicated message may go. It reports
// whether it may go at all.
func (d *Decision) awaitCopy(ctx context.Context) bool {
	if d.hold != nil {
		d.await(ctx)
	} else if d.action.After > 0 {
		d.pause(ctx, d.action.After)
	}
	return ctx.Err() == nil && d.e.ctx.Err() == nil
}
