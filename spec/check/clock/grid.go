package clock

import "slices"

// maxPoints bounds the points of all grids together: the matrix has their square.
const maxPoints = 512

// fewPoints is how many a clock has at least where it needs any; beyond them, it
// has no more than it has events.
const fewPoints = 16

// step is what distances of grid points are a multiple of: at it, half of any
// drift in whole ppm is a whole number of ns.
const step = 2_000_000

// grid holds the readings at which the clocks' offsets are variables: of a clock
// without drift, one.
type grid struct {
	drift int64
	first []int32 // the first point of each clock, and behind the last clock's
	from  []int64 // the reading of each clock's first point
	step  []int64
	clock []int32 // of each point
}

func newGrid(t *Trace) *grid {
	g := &grid{drift: t.DriftPPM, first: make([]int32, t.Clocks+1), from: make([]int64, t.Clocks), step: make([]int64, t.Clocks)}
	span, events := make([]int64, t.Clocks), make([]int, t.Clocks)
	if g.drift > 0 {
		g.spans(t, span, events)
	}
	for c := range t.Clocks {
		n := int64(1)
		if most := int64(min(maxPoints/t.Clocks-1, max(fewPoints, events[c]))); span[c] > 0 && most > 0 {
			g.step[c] = (span[c]/most/step + 1) * step
			n = span[c]/g.step[c] + 2
		}
		g.first[c+1] = g.first[c] + int32(n)
		for range n {
			g.clock = append(g.clock, int32(c))
		}
	}
	return g
}

// spans finds the readings between which the clocks need points. A few absurd
// ones, such as a first line stamped 0, are beyond them and lose precision, no
// more.
func (g *grid) spans(t *Trace, span []int64, events []int) {
	seen := make([]bool, t.Clocks)
	last := make([]int64, t.Clocks)
	look := func(c int32, r int64) {
		if r <= -Far/2 || r >= Far/2 {
			return
		}
		if !seen[c] {
			seen[c], g.from[c], last[c] = true, r, r
		}
		g.from[c], last[c] = min(g.from[c], r), max(last[c], r)
	}
	for _, e := range t.Order {
		look(t.Of[e], t.From(e))
		events[t.Of[e]]++
	}
	read := slices.Clone(seen)
	for _, c := range t.Compared {
		if !read[c.That] {
			look(c.That, plus(t.From(c.Event), c.Lo))
			look(c.That, plus(t.From(c.Event), c.Hi))
		}
	}
	for c := range span {
		span[c] = last[c] - g.from[c]
	}
}

// points is how many there are in all.
func (g *grid) points() int32 { return g.first[len(g.first)-1] }

// reading is what the point's clock reads at it.
func (g *grid) reading(p int32) int64 {
	c := g.clock[p]
	return g.from[c] + int64(p-g.first[c])*g.step[c]
}

// around are the points next to a reading, the same twice if there is one only.
func (g *grid) around(c int32, r int64) (below, above int32) {
	first, last := g.first[c], g.first[c+1]-1
	switch {
	case first == last || r <= g.from[c]:
		return first, first
	case r >= g.reading(last):
		return last, last
	}
	below = first + int32((r-g.from[c])/g.step[c])
	return below, below + 1
}

// middle is a point in the midst of a clock's grid.
func (g *grid) middle(c int32) int32 { return (g.first[c] + g.first[c+1] - 1) / 2 }

// to and since are the most that time advances from a reading to a point, and
// from a point to a reading.
func (g *grid) to(p int32, r int64) int64    { return Elapsed(g.reading(p)-r, g.drift) }
func (g *grid) since(p int32, r int64) int64 { return Elapsed(r-g.reading(p), g.drift) }
