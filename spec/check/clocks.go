package check

import (
	"fmt"
	"slices"
	"strings"

	"conform/spec"
	"conform/spec/check/clock"
)

// seenByClocks is the order as the solver of clocks sees it.
func (o *order) seenByClocks() *clock.Trace {
	h := o.h
	t := &clock.Trace{
		Clocks: len(h.clocks), Of: h.clockOf, Order: o.topo, Preds: o.preds, Succs: o.succs,
		From: h.from, Till: h.till, DriftPPM: h.driftPPM,
	}
	for _, e := range h.byKind[spec.KindClockCmp] {
		t.Compared = append(t.Compared, h.comparison(e))
	}
	return t
}

// comparison is a clockcmp in relative readings: that clock minus this source's
// clock is within [lo, hi].
func (h *history) comparison(e int32) clock.Comparison {
	this, that := h.clockOf[e], h.clockID[h.ev[e].Clock]
	c := clock.Comparison{Event: e, This: this, That: that, Lo: -clock.Unbounded, Hi: clock.Unbounded}
	if hi, ok := sum(h.ev[e].Hi, h.zero[this], h.zero[that]); ok {
		c.Hi = hi
	}
	if lo, ok := sum(h.ev[e].Lo, h.zero[this], h.zero[that]); ok {
		c.Lo = lo
	}
	return c
}

// sum is a + b − c, if it is a time that can be told from unbounded.
func sum(a, b, c int64) (int64, bool) {
	f := float64(a) + float64(b) - float64(c)
	if f > float64(clock.Far) || f < -float64(clock.Far) {
		return 0, false
	}
	return a + b - c, true // wraps on the way at most, and comes back
}

// conflict says why there is no legal order.
type conflict struct {
	events []int32     // that contradict, in the order of the argument
	added  []edge      // the added edges that take part
	cycle  clock.Cycle // the bounds that contradict, where times do and not the order alone
}

func (o *order) cycleConflict(cycle []int32) *conflict {
	c := &conflict{events: cycle}
	for i, e := range cycle {
		c.addIfAdded(o, e, cycle[(i+1)%len(cycle)])
	}
	return c
}

func (o *order) clockConflict(cycle clock.Cycle) *conflict {
	c := &conflict{cycle: cycle}
	for i := range cycle {
		b := &cycle[i]
		for j, e := range b.Path[1:] {
			c.addIfAdded(o, b.Path[j], e)
		}
		c.events = append(c.events, b.First())
		if b.Last() != b.First() {
			c.events = append(c.events, b.Last())
		}
	}
	return c
}

// addIfAdded notes the edge if it is an added one.
func (c *conflict) addIfAdded(o *order, from, to int32) {
	if slices.Contains(o.out[from], to) {
		c.added = append(c.added, edge{from, to})
	}
}

// whyNot proves that edges are not feasible, by the readings of clocks. It is nil
// if the order alone, without any time, refuses them, and if they are feasible.
func (o *order) whyNot(edges ...edge) clock.Cycle {
	q, ok := o.ask(edges)
	if !ok {
		return nil
	}
	for i := range q.n {
		for j := range q.n {
			q.first[i][j] = q.first[i][j] || i != j && o.reaches(q.ends[i], q.ends[j])
		}
	}
	asked := q.first
	if !q.close() {
		return nil
	}
	hops := q.negative()
	if hops == nil {
		return nil
	}
	// Begin at a bound, then join each to the next by what comes before what.
	for !q.bounded(hops[0]) {
		hops = append(hops[1:], hops[0])
	}
	var routes []clock.Route
	var joints [][]int32
	for _, h := range hops {
		if q.bounded(h) {
			routes = append(routes, o.clocks.Route(q.ends[h[0]], q.ends[h[1]]))
			joints = append(joints, []int32{q.ends[h[1]]})
			continue
		}
		joint := &joints[len(joints)-1]
		*joint = append(*joint, o.lead(&q, &asked, h[0], h[1])...)
	}
	var out clock.Cycle
	for i := range routes {
		r, next := &routes[i], &routes[(i+1)%len(routes)]
		path := slices.Concat(r.Before, joints[i][1:], next.After[1:])
		out = append(out, r.Bounds...)
		out = append(out, clock.Bound{From: r.Start, To: next.End, Early: r.Early, Late: next.Late, Path: path})
	}
	return slices.DeleteFunc(out, func(b clock.Bound) bool { return b.From == b.To && b.Early <= b.Late }) // says nothing
}

// lead lists the events on the way from end i to end j of a question, without the
// first: asked edges as they are, what the graph orders step by step.
func (o *order) lead(q *question, asked *[maxEnds][maxEnds]bool, i, j int) []int32 {
	prev := [maxEnds]int{}
	seen := [maxEnds]bool{}
	seen[i] = true
	for queue := []int{i}; len(queue) > 0; queue = queue[1:] {
		for k := range q.n {
			if asked[queue[0]][k] && !seen[k] {
				seen[k], prev[k] = true, queue[0]
				queue = append(queue, k)
			}
		}
	}
	var out []int32
	for at := j; at != i; at = prev[at] {
		from, to := q.ends[prev[at]], q.ends[at]
		step := []int32{to}
		if o.reaches(from, to) {
			step = o.path(from, to)[1:]
		}
		out = append(step, out...)
	}
	return out
}

// cite tells in words why edges are not feasible where it takes more than one
// clock to see it, with the events that prove it; nothing otherwise.
func (c *court) cite(o *order, edges []edge) (string, []int32) {
	if c.cited++; len(c.h.clocks) == 1 || c.cited > 2*c.opt.MaxFindings {
		return "", nil
	}
	cycle := o.whyNot(edges...)
	if len(cycle.Clocks()) < 2 {
		return "", nil
	}
	var events []int32
	for i := range cycle {
		for _, e := range []int32{cycle[i].First(), cycle[i].Last()} {
			if !slices.Contains(events, e) {
				events = append(events, e)
			}
		}
	}
	return "; " + c.circle(o, cycle, edges), events
}

// circle tells a cycle of bounds: what comes before what, on which clocks, and by
// how much that can't be.
func (c *court) circle(o *order, cycle clock.Cycle, needed []edge) string {
	said := make([]string, len(cycle))
	for i := range cycle {
		b := &cycle[i]
		from, to := c.h.clocks[b.From], c.h.clocks[b.To]
		switch {
		case b.Compared:
			said[i] = fmt.Sprintf("%s compares clocks %s and %s", c.say(b.First()), from, to)
		default:
			said[i] = fmt.Sprintf("%s on clock %s %s %s on clock %s", c.say(b.First()), from, c.before(o, b, needed), c.say(b.Last()), to)
		}
	}
	text := "no offset of the clocks lets it: " + strings.Join(said, ", and ")
	if n := len(cycle); n > 1 {
		text += fmt.Sprintf("; taken together these are %d ns short", -cycle.Sum(c.h.driftPPM))
	}
	return text
}

// before says whether a bound is what is known or what the rule needs.
func (c *court) before(o *order, b *clock.Bound, needed []edge) string {
	for i, e := range b.Path[1:] {
		step := edge{b.Path[i], e}
		if slices.Contains(needed, step) && (o == nil || !o.reaches(step.from, step.to)) {
			return "would have to be before"
		}
	}
	return "is before"
}

// clockResults is what the trace says about the clocks' offsets.
func (c *court) clockResults() []ClockResult {
	var out []ClockResult
	names := c.h.clocks
	for i := range names {
		for j := i + 1; j < len(names); j++ {
			if i > 0 && len(names) > maxClockPairs {
				return out
			}
			lo, hi := c.base.clocks.Offset(int32(i), int32(j))
			r := ClockResult{Clock: names[j], Minus: names[i]}
			// Relative readings to absolute ones: the reverse of comparison's.
			if abs, ok := sum(lo, c.h.zero[j], c.h.zero[i]); ok && lo > -clock.Far {
				r.Lo = &abs
			}
			if abs, ok := sum(hi, c.h.zero[j], c.h.zero[i]); ok && hi < clock.Far {
				r.Hi = &abs
			}
			out = append(out, r)
		}
	}
	return out
}

// maxClockPairs is up to how many clocks each is set against each other, and not
// only against the first.
const maxClockPairs = 16
