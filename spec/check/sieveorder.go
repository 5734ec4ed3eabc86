package check

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"strings"

	"conform/spec"
)

// sieveOrder keeps the events of the core, and what Judge needs to know of the order
// that the rest of the trace imposes on them.
//
// # Why that is all
//
// What a trace imposes is precedence, and instants within intervals on clocks whose
// offsets are unknown: bounds on differences. Judge asks whether more edges between
// events of the core are possible. They are unless they close a cycle, or a negative
// cycle of bounds, with what is imposed. Whatever way such a cycle takes through the
// rest of the trace, it enters and leaves it at events of the core or at clocks, so
// that of the rest these matter and no more:
//
//   - which events of the core it puts before which,
//   - for each of them and each clock the latest event before it, and the event
//     after it that is over first,
//   - for each two clocks the events that bound their offsets most.
//
// Precedence is kept as a vector clock for each thread, pool and signal. Events that
// are not of the core and say one of these things are carriers: Judge sees them in
// their threads, knows what they come before or after, and judges nothing by them.
//
// It keeps three such orders: what a thread was told (program order and signals),
// what the trace imposes (with the order of each pool), and what any legal order has:
// also the end of each access outside the core after its begin. That such an access
// comes after its lease began and before that ended needs no edge: the sieve saw a
// path of signals for both.
type sieveOrder struct {
	kept    []keptEvent
	keptOf  [][]int32 // of each thread: the positions of its events that are kept
	threads []orderThread
	edges   [orders][]edge // by positions
	wants   map[int32]bool // positions of carriers
	bounds  [orders][maxSieveClocks][maxSieveClocks]orderBound
}

const (
	orderTold = iota
	orderBase
	orderLegal
	orders
)

// What a hostile trace may ask for, and no other does.
const (
	maxKept         = 150_000 // events of a core and its carriers
	maxOrderThreads = 256
	maxOrderCells   = 1 << 20 // threads times signals under way
	maxTrackers     = 1024    // of one thread
)

type keptEvent struct {
	at   int32
	ev   spec.Event
	gens []blockGen
}

// lineage is what comes before something: of each thread the last event, of each
// clock the event with the latest time. Positions count from 1.
type lineage struct {
	upTo   []int32
	latest []latestAt
}

type latestAt struct {
	t  int64 // since the first time of the clock
	at int32
}

type orderThread struct {
	after    [orders]lineage
	linked   [orders][]int32 // of each thread: how many of its kept events are known to come before
	cited    [orders][]int32 // of each clock: the carrier that was named last
	trackers []orderTracker
	fresh    []orderTracker // begun by the current event
}

// orderTracker looks for the event of a thread, from where an event of the core first
// leads to it, that is over first.
type orderTracker struct {
	order    int
	of, best int32
	till     int64
}

type orderBound struct {
	set      bool
	by       int64
	from, to int32
}

func newSieveOrder() *sieveOrder { return &sieveOrder{wants: map[int32]bool{}} }

func (l *lineage) emptied() lineage { return lineage{l.upTo[:0], l.latest[:0]} }

// copyTo makes a copy, in the memory of an old one.
func (l *lineage) copyTo(to *lineage) {
	to.upTo, to.latest = append(to.upTo[:0], l.upTo...), append(to.latest[:0], l.latest...)
}

func (o *sieveOrder) thread(th int32) *orderThread {
	for int(th) >= len(o.threads) {
		o.threads = append(o.threads, orderThread{})
		o.keptOf = append(o.keptOf, nil)
	}
	return &o.threads[th]
}

// join has what comes before something come before the event of a thread.
func (o *sieveOrder) join(order int, th int32, from *lineage) {
	t := o.thread(th)
	to := &t.after[order]
	for i, p := range from.upTo {
		if i == len(to.upTo) {
			to.upTo = append(to.upTo, 0)
		}
		if was := to.upTo[i]; p > was {
			to.upTo[i] = p
			if u := o.lastKept(int32(i), p); order != orderTold && u > was && int32(i) != th {
				t.fresh = append(t.fresh, orderTracker{order: order, of: u})
			}
		}
	}
	for i, l := range from.latest {
		to.take(i, l)
	}
}

func (l *lineage) take(clock int, x latestAt) {
	for clock >= len(l.latest) {
		l.latest = append(l.latest, latestAt{})
	}
	if was := &l.latest[clock]; x.at > 0 && (was.at == 0 || x.t > was.t || x.t == was.t && x.at > was.at) {
		*was = x
	}
}

// lastKept is the last event of a thread that is kept, up to a position; 0 if none.
func (o *sieveOrder) lastKept(th, upTo int32) int32 {
	if n := o.countKept(th, upTo); n > 0 {
		return o.keptOf[th][n-1]
	}
	return 0
}

func (o *sieveOrder) countKept(th, upTo int32) int {
	if int(th) >= len(o.keptOf) {
		return 0
	}
	list := o.keptOf[th]
	if n := len(list); n == 0 || list[n-1] <= upTo {
		return n
	}
	return sort.Search(len(list), func(i int) bool { return list[i] > upTo })
}

// place takes in an event, after what its pool and signal have come to.
func (o *sieveOrder) place(s *Sieve, e *spec.Event, at *sievePlace) {
	if p := at.pool; p != nil {
		o.join(orderBase, at.thread, &p.after[orderBase])
		o.join(orderLegal, at.thread, &p.after[orderLegal])
	}
	if sig := at.observed; sig != nil {
		for order := range orders {
			o.join(order, at.thread, &sig.after[order])
		}
	}
	t := o.thread(at.thread)
	if n := len(o.threads); n > maxOrderThreads || n*len(s.signals.open) > maxOrderCells || len(t.trackers) > maxTrackers {
		s.stop("an order of many threads")
		return
	}
	on := s.threads[at.thread].clock
	o.track(t, e, s.n)
	now := latestAt{e.T - s.times.zero[on], s.n}
	for order := range orders {
		l := &t.after[order]
		for int(at.thread) >= len(l.upTo) {
			l.upTo = append(l.upTo, 0)
		}
		l.upTo[at.thread] = s.n
		l.take(int(on), now)
		if order != orderTold {
			o.bound(order, l, on, e.T2-s.times.zero[on], s.n)
		}
	}
	o.hand(t, at)
}

// hand leaves what comes before the event with what later events come to.
func (o *sieveOrder) hand(t *orderThread, at *sievePlace) {
	if at.pool != nil {
		t.after[orderBase].copyTo(&at.pool.after[orderBase])
		t.after[orderLegal].copyTo(&at.pool.after[orderLegal])
	}
	if at.emitted != nil {
		for order := range orders {
			t.after[order].copyTo(&at.emitted.after[order])
		}
	}
	if at.begun != nil {
		t.after[orderLegal].copyTo(&at.begun.after)
	}
}

// bound notes where an event bounds the offsets of two clocks more than any before.
func (o *sieveOrder) bound(order int, l *lineage, on int32, till int64, n int32) {
	for c, from := range l.latest {
		if from.at == 0 || int32(c) == on {
			continue
		}
		if b := &o.bounds[order][c][on]; !b.set || till-from.t < b.by {
			*b = orderBound{true, till - from.t, from.at, n}
		}
	}
}

// track goes on with the trackers of a thread at its next event.
func (o *sieveOrder) track(t *orderThread, e *spec.Event, n int32) {
	left := t.trackers[:0]
	for _, tr := range t.trackers {
		if e.T >= tr.till {
			o.tracked(tr)
			continue
		}
		if e.T2 < tr.till {
			tr.best, tr.till = n, e.T2
		}
		left = append(left, tr)
	}
	for _, tr := range t.fresh {
		tr.best, tr.till = n, e.T2
		left = append(left, tr)
	}
	t.trackers, t.fresh = left, t.fresh[:0]
}

func (o *sieveOrder) tracked(tr orderTracker) {
	if tr.best != tr.of {
		o.edges[tr.order] = append(o.edges[tr.order], edge{tr.of, tr.best})
		o.wants[tr.best] = true
	}
}

// keep keeps an event that is of the core, or that says what there is.
func (o *sieveOrder) keep(s *Sieve, e *spec.Event, at *sievePlace) {
	switch e.K {
	case spec.KindSource, spec.KindPool, spec.KindSeal, spec.KindClockCmp, spec.KindIdle, spec.KindCapacity:
	default:
		if !at.core {
			return
		}
	}
	if len(o.kept) == maxKept {
		s.stop("a core that is too large")
		return
	}
	n := s.n
	o.kept = append(o.kept, keptEvent{n, cloned(e), at.gens})
	t := o.thread(at.thread)
	for order := range orders {
		o.link(t, order, at.thread, n)
	}
	o.keptOf[at.thread] = append(o.keptOf[at.thread], n)
	t.trackers = append(t.trackers, orderTracker{orderBase, n, n, e.T2})
}

// link notes what comes before an event that is kept. What a weaker order says
// already is not said again.
func (o *sieveOrder) link(t *orderThread, order int, th, n int32) {
	l := &t.after[order]
	linked, cited := t.linked[order], t.cited[order]
	for i, p := range l.upTo {
		if i == len(linked) {
			linked = append(linked, 0)
		}
		if order > 0 && i < len(t.linked[order-1]) {
			linked[i] = max(linked[i], t.linked[order-1][i])
		}
		if k := int32(o.countKept(int32(i), p)); int32(i) != th && k > linked[i] {
			linked[i] = k
			o.edges[order] = append(o.edges[order], edge{o.keptOf[i][k-1], n})
		}
	}
	for c, from := range l.latest {
		if order == orderTold {
			break
		}
		for c >= len(cited) {
			cited = append(cited, 0)
		}
		if from.at == 0 || from.at == n || from.at == cited[c] {
			continue
		}
		cited[c] = from.at
		o.edges[order] = append(o.edges[order], edge{from.at, n})
		o.wants[from.at] = true
	}
	t.linked[order], t.cited[order] = linked, cited
}

// close ends the pass: what is still looked for is what was found.
func (o *sieveOrder) close() {
	for i := range o.threads {
		for _, tr := range o.threads[i].trackers {
			o.tracked(tr)
		}
		o.threads[i].trackers = nil
	}
	for order := range orders {
		for c := range maxSieveClocks {
			for d := range maxSieveClocks {
				if b := &o.bounds[order][c][d]; b.set && b.from != b.to {
					o.edges[order] = append(o.edges[order], edge{b.from, b.to})
					o.wants[b.from], o.wants[b.to] = true, true
				}
			}
		}
	}
	for i := range o.kept {
		delete(o.wants, o.kept[i].at)
	}
}

// slice makes the trace that Judge is to judge, given the carriers.
func (o *sieveOrder) slice(carriers []keptEvent) (*spec.Trace, *sliceOf) {
	all := slices.Concat(o.kept, carriers)
	isKept := map[int32]bool{}
	for i := range o.kept {
		isKept[o.kept[i].at] = true
	}
	slices.SortFunc(all, func(a, b keptEvent) int { return cmp.Compare(a.at, b.at) })
	tr, sl := &spec.Trace{Events: make([]spec.Event, len(all))}, &sliceOf{carrier: make([]bool, len(all)), at: make([]int32, len(all)), gens: map[genKey]int{}}
	index := make(map[int32]int32, len(all))
	for i := range all {
		k := &all[i]
		index[k.at], sl.at[i] = int32(i), k.at
		tr.Events[i], sl.carrier[i] = k.ev, !isKept[k.at]
		for _, g := range k.gens {
			sl.gens[genKey{int32(i), g.number}] = g.gen
		}
	}
	for order := range orders {
		for _, e := range o.edges[order] {
			sl.ties[order] = append(sl.ties[order], edge{index[e.from], index[e.to]})
		}
	}
	return tr, sl
}

// cloned is an event that shares nothing with what lent it.
func cloned(e *spec.Event) spec.Event {
	c := *e
	for _, s := range []*string{
		&c.Src, &c.Th, &c.Worker, &c.Host, &c.Clock, &c.Probe, &c.Engine, &c.Pool, &c.What, &c.Holder, &c.Req, &c.Handoff, &c.Why, &c.By,
		&c.To, &c.Mode, &c.Access, &c.Target, &c.Via, &c.Sig, &c.Signal, &c.Asks, &c.Stage, &c.Unit, &c.Prompt, &c.Side, &c.Sum, &c.Expect,
		&c.Rule, &c.Do, &c.Text,
	} {
		*s = strings.Clone(*s)
	}
	c.K, c.Role = spec.Kind(strings.Clone(string(e.K))), spec.Role(strings.Clone(string(e.Role)))
	c.Claims, c.Result = spec.Predicate(strings.Clone(string(e.Claims))), spec.Outcome(strings.Clone(string(e.Result)))
	c.Hooks, c.Blocks = bytes.Clone(e.Hooks), slices.Clone(e.Blocks)
	c.Accesses, c.Workers = clonedTexts(e.Accesses), clonedTexts(e.Workers)
	if e.Need != nil {
		n := *e.Need
		c.Need = &n
	}
	if e.OK != nil {
		ok := *e.OK
		c.OK = &ok
	}
	c.Extra = nil
	return c
}

func clonedTexts(list []string) []string {
	out := slices.Clone(list)
	for i := range out {
		out[i] = strings.Clone(out[i])
	}
	return out
}
