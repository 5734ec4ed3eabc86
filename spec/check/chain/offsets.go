package chain

import (
	"math"
	"math/bits"
)

// Bound says that one clock's offset exceeds another's by at most Most ns, where
// a clock's offset is the instant less its reading. Operation First, on clock
// From, comes before operation Second, on clock To, and that is why.
type Bound struct {
	From, To uint16
	Most     int64
	Pair
}

// unbounded is no bound at all.
const unbounded = int64(math.MaxInt64)

// Offsets collects bounds between the offsets of clocks. Only the tightest of
// each pair matters, so that it takes K² memory for K clocks, however many bounds
// there are. The zero value is of no use; see [NewOffsets].
type Offsets struct {
	clocks int
	most   []int64 // of From and To: offset(From) − offset(To) ≤ most
	why    []Pair
}

// NewOffsets makes room for clocks numbered from 0.
func NewOffsets(clocks int) *Offsets {
	o := &Offsets{clocks: clocks, most: make([]int64, clocks*clocks), why: make([]Pair, clocks*clocks)}
	for i := range o.most {
		o.most[i] = unbounded
	}
	return o
}

// Tighten adds the bound offset(from) − offset(to) ≤ most.
func (o *Offsets) Tighten(from, to uint16, most int64, why Pair) {
	if at := int(from)*o.clocks + int(to); most < o.most[at] {
		o.most[at], o.why[at] = most, why
	}
}

// Contradiction returns bounds that no offsets satisfy: a cycle whose sum is
// negative. It is nil if offsets exist. It takes K³ time.
func (o *Offsets) Contradiction() []Bound {
	n := o.clocks
	dist := make([]length, n*n)
	next := make([]int, n*n) // the clock after i on the way from i to j
	for i := range n {
		for j := range n {
			dist[i*n+j], next[i*n+j] = lengthOf(o.most[i*n+j]), j
		}
		if o.most[i*n+i] < 0 {
			return o.cycle([]int{i, i})
		}
		dist[i*n+i] = length{}
	}
	for k := range n {
		for i := range n {
			a := dist[i*n+k]
			if a == noWay {
				continue
			}
			for j := range n {
				b := dist[k*n+j]
				if b == noWay {
					continue
				}
				if w := a.plus(b); w.less(dist[i*n+j]) {
					dist[i*n+j], next[i*n+j] = w, next[i*n+k]
				}
			}
			if dist[i*n+i].less(length{}) {
				return o.cycleFrom(i, next)
			}
		}
	}
	return nil
}

// length is a sum of bounds, in 128 bits: that of a few far ones takes more than 64.
type length struct {
	hi int64
	lo uint64
}

// noWay is longer than any sum.
var noWay = length{hi: math.MaxInt64}

func lengthOf(most int64) length {
	if most == unbounded {
		return noWay
	}
	return length{most >> 63, uint64(most)}
}

func (a length) plus(b length) length {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return length{a.hi + b.hi + int64(carry), lo}
}

func (a length) less(b length) bool {
	return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo
}

// cycleFrom follows the ways from a clock back to itself. They may pass a clock
// twice before that; the part between the two is then the cycle.
func (o *Offsets) cycleFrom(start int, next []int) []Bound {
	seen := map[int]int{}
	var path []int
	at := start
	for {
		if i, ok := seen[at]; ok && len(path) > i {
			return o.cycle(append(path[i:], at))
		}
		seen[at] = len(path)
		path = append(path, at)
		at = next[at*o.clocks+start]
	}
}

func (o *Offsets) cycle(path []int) []Bound {
	var out []Bound
	for i := 0; i+1 < len(path); i++ {
		at := path[i]*o.clocks + path[i+1]
		out = append(out, Bound{From: uint16(path[i]), To: uint16(path[i+1]), Most: o.most[at], Pair: o.why[at]})
	}
	return out
}
