package clock

import "slices"

// vectors holds a maximum per event and clock. That of the event's own clock
// changes at each event and is stored for each; those of other clocks change only
// where threads meet, and events between share one list.
type vectors struct {
	of    []int32
	own   []int64
	other [][]int64
}

// propagate computes, in the given order, the maximum of start over each event
// and all that sources lead to it, by clock.
func (t *Trace) propagate(seq []int32, sources func([]int32, int32) []int32, start func(int32) int64) vectors {
	n := len(t.Of)
	v := vectors{of: t.Of, own: make([]int64, n)}
	if t.Clocks > 1 {
		v.other = make([][]int64, n)
	}
	var buf []int32
	for _, e := range seq {
		c := t.Of[e]
		own := start(e)
		m := merge{}
		buf = sources(buf[:0], e)
		for _, p := range buf {
			d := t.Of[p]
			if d == c {
				own = max(own, v.own[p])
			}
			if v.other == nil {
				continue
			}
			if d != c {
				if from := v.other[p]; from != nil {
					own = max(own, from[c])
				}
				m.raise(d, v.own[p], t.Clocks)
			}
			m.raiseAll(v.other[p], d)
		}
		v.own[e] = own
		if v.other != nil {
			v.other[e] = m.vec
		}
	}
	return v
}

// on is the maximum of an event for a clock, -Unbounded if there is none.
func (v *vectors) on(e, c int32) int64 {
	if v.of[e] == c {
		return v.own[e]
	}
	if v.other == nil || v.other[e] == nil {
		return -Unbounded
	}
	return v.other[e][c]
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
			m.vec[j] = -Unbounded
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

// trail leads from an event to one on the clock at which the event's maximum for
// that clock starts, along next, which leads where the maxima came from.
func (t *Trace) trail(v *vectors, e, c int32, next func([]int32, int32) []int32, start func(int32) int64) []int32 {
	want := v.on(e, c)
	path := []int32{e}
	var buf []int32
	for at := e; t.Of[at] != c || start(at) != want; path = append(path, at) {
		buf = next(buf[:0], at)
		at = buf[slices.IndexFunc(buf, func(p int32) bool { return v.on(p, c) == want })]
	}
	return path
}
