package check

import (
	"conform/spec"
)

// solveClocks computes dist, or finds that no offsets fit.
func (o *order) solveClocks() *conflict {
	n := int32(len(o.h.clocks))
	o.dist = make([]int64, n*n)
	why := make([]int32, n*n) // the event that gives a bound, none for a bound that follows
	for i := range o.dist {
		o.dist[i], why[i] = unbounded, none
	}
	tighten := func(c, d int32, w int64, e int32) {
		if w < o.dist[c*n+d] {
			o.dist[c*n+d], why[c*n+d] = w, e
		}
	}
	for _, e := range o.topo {
		d, till := o.h.clockOf[e], o.h.till(e)
		for c := range n {
			if low := o.lower(e, c); low > -unbounded {
				tighten(c, d, plus(till, -low), e)
			}
		}
		if o.h.ev[e].K == spec.KindClockCmp {
			o.compare(e, tighten)
		}
	}
	next := make([]int32, n*n)
	for c := range n {
		for d := range n {
			next[c*n+d] = d
		}
		if w := c*n + c; o.dist[w] < 0 {
			return o.clockConflict([]int32{why[w]}, []int32{c})
		}
		o.dist[c*n+c] = 0
	}
	for k := range n {
		for i := range n {
			if o.dist[i*n+k] >= unbounded {
				continue
			}
			for j := range n {
				if w := plus(o.dist[i*n+k], o.dist[k*n+j]); w < o.dist[i*n+j] {
					o.dist[i*n+j] = w
					next[i*n+j] = next[i*n+k]
				}
			}
			if o.dist[i*n+i] < 0 {
				return o.negativeCycle(i, next, why)
			}
		}
	}
	return nil
}

// compare takes in a clockcmp: that clock minus this source's clock is within
// [lo, hi]. The reading of a clock is the instant minus its θ, so that the
// difference of readings is θ(this) − θ(that).
func (o *order) compare(e int32, tighten func(c, d int32, w int64, e int32)) {
	this, that := o.h.clockOf[e], o.h.clockID[o.h.ev[e].Clock]
	zeroThis, zeroThat := o.h.zero[this], o.h.zero[that]
	if zeroThat == unusedZero {
		// A clock that no source reads: its zero may be anywhere.
		o.h.zero[that], zeroThat = zeroThis, zeroThis
	}
	// In relative times θ' = θ + zero: θ'(this) − θ'(that) is in [lo, hi] + zero(this) − zero(that).
	if hi, ok := sum(o.h.ev[e].Hi, zeroThis, zeroThat); ok {
		tighten(this, that, hi, e)
	}
	if lo, ok := sum(o.h.ev[e].Lo, zeroThis, zeroThat); ok {
		tighten(that, this, -lo, e)
	}
}

// unusedZero is the zero of a clock that no event is on.
const unusedZero = int64(1<<63 - 1)

// sum is a + b − c, if it is a time that can be told from unbounded.
func sum(a, b, c int64) (int64, bool) {
	f := float64(a) + float64(b) - float64(c)
	if f > float64(farFuture) || f < -float64(farFuture) {
		return 0, false
	}
	return a + b - c, true // wraps on the way at most, and comes back
}

// negativeCycle follows the shortest paths from a clock back to itself.
func (o *order) negativeCycle(start int32, next, why []int32) *conflict {
	n := int32(len(o.h.clocks))
	var events, from []int32
	for at, steps := start, int32(0); steps <= n; steps++ {
		to := next[at*n+start]
		if e := why[at*n+to]; e != none {
			events, from = append(events, e), append(from, at)
		}
		if at = to; at == start {
			break
		}
	}
	return o.clockConflict(events, from)
}

// conflict says why there is no legal order.
type conflict struct {
	events []int32 // that contradict, in the order of the argument
	added  []edge  // the added edges that take part
}

func (o *order) cycleConflict(cycle []int32) *conflict {
	c := &conflict{events: cycle}
	for i, e := range cycle {
		c.addIfAdded(o, e, cycle[(i+1)%len(cycle)])
	}
	return c
}

// clockConflict explains bounds: event i bounds its clock against clock from[i]
// by an ancestor on that clock, or is a clockcmp.
func (o *order) clockConflict(events, from []int32) *conflict {
	c := &conflict{}
	var buf []int32
	for i, e := range events {
		at, clock := e, from[i]
		low := o.lower(e, clock)
		for steps := 0; steps < len(o.topo) && low > -unbounded; steps++ {
			if o.h.clockOf[at] == clock && o.h.from(at) == low {
				break
			}
			buf = o.preds(buf[:0], at)
			for _, p := range buf {
				if o.lower(p, clock) == low {
					c.addIfAdded(o, p, at)
					at = p
					break
				}
			}
		}
		if at != e {
			c.events = append(c.events, at)
		}
		c.events = append(c.events, e)
	}
	return c
}

// addIfAdded notes the edge if it is an added one and nothing else orders the
// two events directly.
func (c *conflict) addIfAdded(o *order, from, to int32) {
	for _, t := range o.out[from] {
		if t == to {
			c.added = append(c.added, edge{from, to})
			return
		}
	}
}
