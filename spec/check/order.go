package check

import (
	"math"
	"slices"
)

// farFuture is past every relative time; unbounded is no bound at all. Sums of
// times are clamped to it, so that no input overflows.
const (
	farFuture = int64(1) << 60
	unbounded = int64(1) << 62
)

func plus(a, b int64) int64 {
	if a >= unbounded || b >= unbounded {
		return unbounded
	}
	return max(a+b, -unbounded)
}

// edge says that one event comes before another.
type edge struct{ from, to int32 }

// order is a precedence graph over the events of a trace together with the
// solution of its clocks: what is known about every legal order.
//
// The graph's edges are program order, pool order, each emit before its
// observes, and edges added on top. An edge is strict in order and not in time:
// of two events at one instant, the first is still the first. That makes the
// question "is there a legal order?" fall into two that are easy:
//
//   - the graph has no cycle, and
//   - instants can be given to the events, each within its interval, that do not
//     decrease along an edge.
//
// Both together suffice: sort the events by instant, and those of one instant
// by any topological order of the graph.
//
// An instant x of an event on clock c obeys θc + t ≤ x ≤ θc + t2 with one
// unknown θc per clock, so the second question is a system of difference
// constraints. It needs no variable per event. Let lb(c, e) be the latest t
// among e and its ancestors that are on c, and ub(c, e) the earliest t2 among e
// and its descendants on c. Each event e on clock d then bounds a pair of
// clocks, θc − θd ≤ t2(e) − lb(c, e), and a negative cycle among these few
// bounds is the only way to be infeasible. One pass over the trace in
// topological order and one over the clocks, whatever the length of the trace.
type order struct {
	h       *history
	out, in map[int32][]int32 // added edges
	topo    []int32
	rank    []int32 // position in topo
	lb, ub  bounds
	dist    []int64 // of clocks c, d: the bound of θc − θd, closed
	before  lanes
	after   lanes
	search  search
}

// bounds holds the bounds of every event by clock. That on the event's own clock
// changes at each event and is stored for each; those on other clocks change
// only where threads meet, and events between share one list.
type bounds struct {
	own   []int64
	other [][]int64
}

// newOrder solves the trace with some edges added. The conflict is nil if there
// is a legal order, and then the order is not nil.
func newOrder(h *history, added []edge) (*order, *conflict) {
	o := &order{h: h, out: map[int32][]int32{}, in: map[int32][]int32{}}
	for _, e := range added {
		o.out[e.from] = append(o.out[e.from], e.to)
		o.in[e.to] = append(o.in[e.to], e.from)
	}
	if cycle := o.sort(); cycle != nil {
		return nil, o.cycleConflict(cycle)
	}
	o.lb = o.propagate(o.topo, o.preds, h.from)
	if c := o.solveClocks(); c != nil {
		return nil, c
	}
	back := slices.Clone(o.topo)
	slices.Reverse(back)
	o.ub = o.propagate(back, o.succs, func(e int32) int64 { return -h.till(e) })
	o.sortByTime()
	o.fillLanes()
	return o, nil
}

// preds appends the direct predecessors of an event.
func (o *order) preds(buf []int32, e int32) []int32 {
	h := o.h
	if p := h.pos[e]; p > 0 {
		buf = append(buf, h.threads[h.thread[e]][p-1])
	}
	if p := h.poolOf[e]; p != none && h.poolPos[e] > 0 {
		buf = append(buf, h.pools[p].muts[h.poolPos[e]-1])
	}
	if s := h.emitOf[e]; s != none {
		buf = append(buf, s)
	}
	return append(buf, o.in[e]...)
}

// succs appends the direct successors of an event.
func (o *order) succs(buf []int32, e int32) []int32 {
	th := o.h.threads[o.h.thread[e]]
	if p := int(o.h.pos[e]) + 1; p < len(th) {
		buf = append(buf, th[p])
	}
	return o.crossing(buf, e)
}

// crossing appends the direct successors of an event that program order does not
// give.
func (o *order) crossing(buf []int32, e int32) []int32 {
	h := o.h
	if p := h.poolOf[e]; p != none && int(h.poolPos[e])+1 < len(h.pools[p].muts) {
		buf = append(buf, h.pools[p].muts[h.poolPos[e]+1])
	}
	buf = append(buf, h.observes[e]...)
	return append(buf, o.out[e]...)
}

// sort fills topo, or returns a cycle.
func (o *order) sort() []int32 {
	n := len(o.h.ev)
	indegree := make([]int32, n)
	o.topo = make([]int32, 0, n)
	var buf []int32
	for e := range int32(n) {
		buf = o.preds(buf[:0], e)
		indegree[e] = int32(len(buf))
		if len(buf) == 0 {
			o.topo = append(o.topo, e)
		}
	}
	for i := 0; i < len(o.topo); i++ {
		buf = o.succs(buf[:0], o.topo[i])
		for _, s := range buf {
			if indegree[s]--; indegree[s] == 0 {
				o.topo = append(o.topo, s)
			}
		}
	}
	if len(o.topo) == n {
		return nil
	}
	return o.findCycle(indegree)
}

// findCycle walks backwards among the events that no topological order holds;
// each has a predecessor among them.
func (o *order) findCycle(indegree []int32) []int32 {
	at := int32(slices.IndexFunc(indegree, func(d int32) bool { return d > 0 }))
	seen := map[int32]int{}
	var path, buf []int32
	for {
		if i, ok := seen[at]; ok {
			cycle := path[i:]
			slices.Reverse(cycle)
			return cycle
		}
		seen[at] = len(path)
		path = append(path, at)
		buf = o.preds(buf[:0], at)
		at = buf[slices.IndexFunc(buf, func(p int32) bool { return indegree[p] > 0 })]
	}
}

// propagate computes, in the given order, the maximum of start over each event
// and all that sources lead to it, by clock.
func (o *order) propagate(seq []int32, sources func([]int32, int32) []int32, start func(int32) int64) bounds {
	n := len(o.h.ev)
	b := bounds{own: make([]int64, n)}
	if len(o.h.clocks) > 1 {
		b.other = make([][]int64, n)
	}
	var buf []int32
	for _, e := range seq {
		c := o.h.clockOf[e]
		own := start(e)
		m := merge{}
		buf = sources(buf[:0], e)
		for _, p := range buf {
			d := o.h.clockOf[p]
			if d == c {
				own = max(own, b.own[p])
			}
			if b.other == nil {
				continue
			}
			if d != c {
				if v := b.other[p]; v != nil {
					own = max(own, v[c])
				}
				m.raise(d, b.own[p], len(o.h.clocks))
			}
			m.raiseAll(b.other[p], d)
		}
		b.own[e] = own
		if b.other != nil {
			b.other[e] = m.vec
		}
	}
	return b
}

// merge is a list of maxima that is shared until it must change.
type merge struct {
	vec   []int64
	owned bool
}

func (m *merge) raise(i int32, v int64, n int) {
	if m.vec == nil {
		m.vec, m.owned = make([]int64, n), true
		for j := range m.vec {
			m.vec[j] = -unbounded
		}
	}
	if m.vec[i] >= v {
		return
	}
	if !m.owned {
		m.vec, m.owned = slices.Clone(m.vec), true
	}
	m.vec[i] = v
}

// raiseAll takes in a whole list but for one place, whose value is another's.
func (m *merge) raiseAll(vec []int64, but int32) {
	if vec == nil {
		return
	}
	if m.vec == nil {
		m.vec = vec
		return
	}
	if &m.vec[0] == &vec[0] {
		return
	}
	for i, v := range vec {
		if int32(i) != but && v > m.vec[i] {
			m.raise(int32(i), v, len(vec))
		}
	}
}

// lower is the latest t, on clock c, of the event and its ancestors, −unbounded
// if there is none.
func (o *order) lower(e, c int32) int64 { return o.lb.on(o.h, e, c) }

// upper is the earliest t2, on clock c, of the event and its descendants,
// unbounded if there is none.
func (o *order) upper(e, c int32) int64 { return -o.ub.on(o.h, e, c) }

func (b *bounds) on(h *history, e, c int32) int64 {
	if h.clockOf[e] == c {
		return b.own[e]
	}
	if b.other == nil || b.other[e] == nil {
		return -unbounded
	}
	return b.other[e][c]
}

// slack bounds how far event u can lie after event v, by their clocks alone.
func (o *order) slack(u, v int32) int64 {
	n := int32(len(o.h.clocks))
	if n == 1 {
		return o.upper(u, 0) - o.lower(v, 0)
	}
	best := unbounded
	for c := range n {
		up := o.upper(u, c)
		if up >= unbounded {
			continue
		}
		for d := range n {
			if low := o.lower(v, d); low > -unbounded {
				best = min(best, plus(plus(up, o.dist[c*n+d]), -low))
			}
		}
	}
	return best
}

// sortByTime replaces topo by the topological order that follows the solved
// instants. Most questions of reachability are then answered by it: nothing
// leads from an event to one before it.
func (o *order) sortByTime() {
	n := int32(len(o.h.clocks))
	offset := make([]int64, n)
	for c := range n {
		for d := range n {
			offset[c] = min(offset[c], o.dist[c*n+d])
		}
	}
	at := make([]int64, len(o.topo))
	for _, e := range o.topo {
		at[e] = math.MinInt64
		for c := range n {
			if low := o.lower(e, c); low > -unbounded {
				at[e] = max(at[e], plus(offset[c], low))
			}
		}
	}
	slices.SortStableFunc(o.topo, func(a, b int32) int {
		switch {
		case at[a] < at[b]:
			return -1
		case at[a] > at[b]:
			return 1
		}
		return 0
	})
	o.rank = make([]int32, len(o.topo))
	for i, e := range o.topo {
		o.rank[e] = int32(i)
	}
}
