package check

import "slices"

// lanes tells for every event how far along each pool's chain it reaches: by
// how many mutations it is preceded (or followed), itself included.
type lanes struct{ of [][]int32 }

// maxLaneCells bounds the memory of the lanes, 4 bytes a cell. Beyond it the
// questions that they answer are answered by search.
const maxLaneCells = 64 << 20

// fillLanes computes the lanes in both directions.
func (o *order) fillLanes() {
	crossings := 0
	for _, p := range o.h.pools {
		crossings += len(p.muts)
	}
	for _, obs := range o.h.observes {
		crossings += len(obs)
	}
	for _, out := range o.out {
		crossings += len(out)
	}
	if len(o.h.pools) == 0 || crossings*len(o.h.pools) > maxLaneCells {
		return
	}
	o.before = o.lane(o.preds, false)
	o.after = o.lane(o.succs, true)
}

func (o *order) lane(sources func([]int32, int32) []int32, back bool) lanes {
	n := len(o.topo)
	l := lanes{make([][]int32, n)}
	var buf []int32
	for i := range n {
		e := o.topo[i]
		if back {
			e = o.topo[n-1-i]
		}
		buf = sources(buf[:0], e)
		var vec []int32
		owned := false
		raise := func(p, v int32) {
			if vec == nil {
				vec, owned = make([]int32, len(o.h.pools)), true
			}
			if vec[p] < v {
				if !owned {
					vec, owned = append([]int32(nil), vec...), true
				}
				vec[p] = v
			}
		}
		for _, s := range buf {
			from := l.of[s]
			switch {
			case from == nil || len(vec) > 0 && &vec[0] == &from[0]:
			case vec == nil:
				vec = from
			default:
				for p, v := range from {
					raise(int32(p), v)
				}
			}
		}
		if p := o.h.poolOf[e]; p != none {
			v := o.h.poolPos[e] + 1
			if back {
				v = int32(len(o.h.pools[p].muts)) - o.h.poolPos[e]
			}
			raise(p, v)
		}
		l.of[e] = vec
	}
	return l
}

func (l *lanes) at(e, p int32) int32 {
	if l.of[e] == nil {
		return 0
	}
	return l.of[e][p]
}

// precededBy counts the mutations of the pool that the graph puts before the
// event, itself included: they are the first of its chain. It needs lanes.
func (o *order) precededBy(e, p int32) int32 { return o.before.at(e, p) }

// followedFrom is the place in the pool's chain of the first mutation that the
// graph puts after the event, itself included; the chain's length if there is
// none. It needs lanes.
func (o *order) followedFrom(e, p int32) int32 {
	return int32(len(o.h.pools[p].muts)) - o.after.at(e, p)
}

// search is the scratch memory of reaches.
type search struct {
	stamp []int32 // of a thread: the search that last came there
	first []int32 // the earliest place that it came to
	now   int32
	stack []int32
	buf   []int32
}

// reaches reports whether the graph puts u before v.
func (o *order) reaches(u, v int32) bool {
	h := o.h
	switch {
	case u == v || o.rank[u] >= o.rank[v]:
		return false
	case h.thread[u] == h.thread[v]:
		return h.pos[u] < h.pos[v]
	case h.poolOf[u] != none && h.poolOf[u] == h.poolOf[v]:
		return h.poolPos[u] < h.poolPos[v]
	case o.before.of != nil && h.poolOf[u] != none:
		return o.precededBy(v, h.poolOf[u]) > h.poolPos[u]
	case o.after.of != nil && h.poolOf[v] != none:
		return o.followedFrom(u, h.poolOf[v]) <= h.poolPos[v]
	}
	return o.find(u, v, o.crossing)
}

// leads reports whether program order and signals lead from u to v: that who did v
// knew of u. Pool order is no path.
func (o *order) leads(u, v int32) bool {
	switch {
	case u == v || o.rank[u] >= o.rank[v]:
		return false
	case o.h.thread[u] == o.h.thread[v]:
		return o.h.pos[u] < o.h.pos[v]
	}
	return o.find(u, v, func(buf []int32, e int32) []int32 {
		return append(append(buf, o.h.observes[e]...), o.h.slice.told(e)...)
	})
}

// find searches forward from u, through events of lower rank than v only, along
// program order and what crosses from one thread to another.
func (o *order) find(u, v int32, crossing func([]int32, int32) []int32) bool {
	h, s := o.h, &o.search
	if s.stamp == nil {
		s.stamp, s.first = make([]int32, len(h.threads)), make([]int32, len(h.threads))
	}
	s.now++
	s.stack = append(s.stack[:0], u)
	for len(s.stack) > 0 {
		e := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		th := h.thread[e]
		if th == h.thread[v] && h.pos[e] <= h.pos[v] {
			return true
		}
		until := int32(len(h.threads[th]))
		if s.stamp[th] == s.now {
			until = s.first[th]
		}
		if h.pos[e] >= until {
			continue
		}
		s.stamp[th], s.first[th] = s.now, h.pos[e]
		for _, x := range h.threads[th][h.pos[e]:until] {
			if o.rank[x] > o.rank[v] {
				break
			}
			s.buf = crossing(s.buf[:0], x)
			for _, y := range s.buf {
				if o.rank[y] <= o.rank[v] {
					s.stack = append(s.stack, y)
				}
			}
		}
	}
	return false
}

// path lists the events that lead from u to v, both included; u must reach v.
func (o *order) path(u, v int32) []int32 {
	from := map[int32]int32{u: none}
	var buf []int32
	for queue := []int32{u}; len(queue) > 0; queue = queue[1:] {
		e := queue[0]
		if e == v {
			break
		}
		buf = o.succs(buf[:0], e)
		for _, s := range buf {
			if _, seen := from[s]; !seen && o.rank[s] <= o.rank[v] {
				from[s] = e
				queue = append(queue, s)
			}
		}
	}
	var out []int32
	for at := v; at != none; at = from[at] {
		out = append(out, at)
	}
	slices.Reverse(out)
	return out
}
