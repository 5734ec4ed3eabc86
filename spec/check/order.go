package check

import (
	"cmp"
	"slices"

	"conform/spec/check/clock"
)

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
// The second question is that of [clock.Solve], whatever the clocks' offsets are.
type order struct {
	h       *history
	out, in map[int32][]int32 // added edges
	topo    []int32
	rank    []int32 // position in topo
	clocks  *clock.Solution
	open    [][][]edge // what can be in one of several ways: the edges of each way
	before  lanes
	after   lanes
	search  search
}

// newOrder solves the trace with some edges added. The conflict is nil if there
// is a legal order, and then the order is not nil.
func newOrder(h *history, added []edge) (*order, *conflict) {
	o := &order{h: h, out: map[int32][]int32{}, in: map[int32][]int32{}}
	for _, e := range slices.Concat(h.slice.imposed(orderTold), h.slice.imposed(orderBase), added) {
		o.out[e.from] = append(o.out[e.from], e.to)
		o.in[e.to] = append(o.in[e.to], e.from)
	}
	if cycle := o.sort(); cycle != nil {
		return nil, o.cycleConflict(cycle)
	}
	var cycle clock.Cycle
	if o.clocks, cycle = clock.Solve(o.seenByClocks()); cycle != nil {
		return nil, o.clockConflict(cycle)
	}
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

// sortByTime replaces topo by the topological order that follows the solved
// instants. Most questions of reachability are then answered by it: nothing
// leads from an event to one before it.
//
// Events at one instant keep the order of the trace if that is a topological one, so
// that it does not depend on what else is in the trace.
func (o *order) sortByTime() {
	at := o.clocks.Instants()
	if o.given() {
		slices.Sort(o.topo)
	}
	slices.SortStableFunc(o.topo, func(a, b int32) int { return cmp.Compare(at[a], at[b]) })
	o.rank = make([]int32, len(o.topo))
	for i, e := range o.topo {
		o.rank[e] = int32(i)
	}
}

// given reports whether the order of the trace is a topological one.
func (o *order) given() bool {
	var buf []int32
	for e := range int32(len(o.h.ev)) {
		buf = o.preds(buf[:0], e)
		if slices.ContainsFunc(buf, func(p int32) bool { return p > e }) {
			return false
		}
	}
	return true
}
