package clock

import "slices"

// Solution is what readings say about the instants of all events: a set of bounds
// that some offsets fit.
type Solution struct {
	t            *Trace
	grid         *grid
	lower, upper vectors
	// dist bounds, for two points of the grid, how far the instant of the first
	// lies after that of the second; closed, so that dist[a,c] ≤ dist[a,b] +
	// dist[b,c].
	dist []int64
	next []int32 // the point after a on the way that gives dist[a,b]
	why  []int32 // what gives the bound of two points that are next to each other
}

// What a bound comes from: an event, whose earlier events on the first clock
// bound it, a comparison, or, on a grid, the clock itself.
const bySelf = int32(-1 << 31)

func byComparison(i int) int32 { return -1 - int32(i) }

// Solve takes in a trace. The cycle is nil if some offsets fit, and else proves
// that none do.
func Solve(t *Trace) (*Solution, Cycle) {
	if t.Clocks <= 1 && t.DriftPPM > 0 {
		one := *t // a clock does not drift against itself
		one.DriftPPM = 0
		t = &one
	}
	s := &Solution{t: t, grid: newGrid(t)}
	s.lower = t.propagate(t.Order, t.Preds, t.From)
	if c := s.bounds(); c != nil {
		return nil, c
	}
	if c := s.close(); c != nil {
		return nil, c
	}
	back := slices.Clone(t.Order)
	slices.Reverse(back)
	s.upper = t.propagate(back, t.Succs, s.before)
	return s, nil
}

// before is Till, so that the earliest is the maximum.
func (s *Solution) before(e int32) int64 { return -s.t.Till(e) }

// bounds fills dist with what each event and comparison says by itself.
func (s *Solution) bounds() Cycle {
	n := s.grid.points()
	s.dist, s.next, s.why = make([]int64, n*n), make([]int32, n*n), make([]int32, n*n)
	for i := range s.dist {
		s.dist[i], s.next[i], s.why[i] = Unbounded, int32(i)%n, bySelf
	}
	s.links()
	for p := range n {
		s.dist[p*n+p] = 0
	}
	for i := range s.t.Compared {
		if c := s.compare(i); c != nil {
			return c
		}
	}
	clocks := int32(s.t.Clocks)
	for _, e := range s.t.Order {
		d, till := s.t.Of[e], s.t.Till(e)
		for c := range clocks {
			low := s.Lower(e, c)
			switch {
			case low == -Unbounded:
			case c != d:
				s.tighten(c, low, d, till, e)
			case till < low:
				return Cycle{s.ordered(e, c)}
			}
		}
	}
	return nil
}

// links bound the neighbours on each grid against each other.
func (s *Solution) links() {
	g := s.grid
	for p := int32(1); p < g.points(); p++ {
		if g.clock[p] == g.clock[p-1] {
			s.raise(p, p-1, g.since(p-1, g.reading(p)), bySelf)
			s.raise(p-1, p, g.to(p-1, g.reading(p)), bySelf)
		}
	}
}

func (s *Solution) raise(p, q int32, w int64, why int32) {
	if i := p*s.grid.points() + q; w < s.dist[i] {
		s.dist[i], s.why[i] = w, why
	}
}

// tighten takes in that clock c reads low no later than clock d reads till.
func (s *Solution) tighten(c int32, low int64, d int32, till int64, why int32) {
	g := s.grid
	if g.drift == 0 {
		s.raise(c, d, till-low, why)
		return
	}
	p1, p2 := g.around(c, low)
	q1, q2 := g.around(d, till)
	for _, p := range [2]int32{p1, p2} {
		for _, q := range [2]int32{q1, q2} {
			s.raise(p, q, plus(g.to(p, low), g.since(q, till)), why)
		}
	}
}

// compare takes in a comparison. The reading of This is anything from From to
// Till of the event; that of That is between Lo and Hi more.
func (s *Solution) compare(i int) Cycle {
	cmp, g := &s.t.Compared[i], s.grid
	from, till := s.t.From(cmp.Event), s.t.Till(cmp.Event)
	if cmp.This == cmp.That {
		b := Bound{From: cmp.This, To: cmp.This, Path: []int32{cmp.Event}, Compared: true, Spread: till - from}
		switch {
		case cmp.Hi < 0:
			b.Early, b.Late = from, from+cmp.Hi
		case cmp.Lo > 0:
			b.Early, b.Late = from+cmp.Lo, from
		default:
			return nil
		}
		return Cycle{b}
	}
	// most is how far a reading of c can be from a point.
	most := func(p int32, low, high int64) int64 {
		r := g.reading(p)
		return max(relax(low-r, g.drift), relax(high-r, g.drift))
	}
	add := func(c, d int32, w, cLow, cHigh, dLow, dHigh int64) {
		p1, p2 := g.around(c, cLow)
		q1, q2 := g.around(d, dLow)
		for _, p := range [2]int32{p1, p2} {
			for _, q := range [2]int32{q1, q2} {
				bound := w + g.reading(p) - g.reading(q)
				bound = plus(bound, plus(most(p, cLow, cHigh), most(q, dLow, dHigh)))
				s.raise(p, q, bound, byComparison(i))
			}
		}
	}
	if cmp.Hi < Unbounded {
		add(cmp.This, cmp.That, cmp.Hi, from, till, from+cmp.Hi, till+cmp.Hi)
	}
	if cmp.Lo > -Unbounded {
		add(cmp.That, cmp.This, -cmp.Lo, from+cmp.Lo, till+cmp.Lo, from, till)
	}
	return nil
}

// close computes the shortest paths of dist, or finds a cycle below zero.
func (s *Solution) close() Cycle {
	n := s.grid.points()
	for k := range n {
		toAll := s.dist[k*n : k*n+n]
		for i := range n {
			row := s.dist[i*n : i*n+n]
			viaK := row[k]
			if viaK >= Unbounded || i == k {
				continue
			}
			hop := s.next[i*n+k]
			for j, rest := range toAll {
				if w := plus(viaK, rest); w < row[j] {
					row[j] = w
					s.next[i*n+int32(j)] = hop
				}
			}
			if row[i] < 0 {
				return append(s.walk(i, k), s.walk(k, i)...)
			}
		}
	}
	return nil
}

// walk lists the bounds on the way between two points, but for those that a
// clock gives against itself.
func (s *Solution) walk(p, q int32) []Bound {
	n := s.grid.points()
	var out []Bound
	for p != q {
		to := s.next[p*n+q]
		if s.why[p*n+to] != bySelf {
			out = append(out, s.bound(p, to))
		}
		p = to
	}
	return out
}

// Lower is the latest that clock c is known to have read when the event took
// effect: the latest From on it of the event and those before it; -Unbounded if
// there is none.
func (s *Solution) Lower(e, c int32) int64 { return s.lower.on(e, c) }

// Upper is the earliest that clock c is known to have read only later: the
// earliest Till on it of the event and those after it; Unbounded if there is
// none.
func (s *Solution) Upper(e, c int32) int64 { return -s.upper.on(e, c) }

// Slack bounds how far event u can lie after event v, by readings alone.
//
// Two bounds by one clock need no offset. With drift they are sharper than the
// grid, and may, for a trace that no drift allows and in which the grid is too
// coarse to see it, contradict each other where [Solution.Across] does not.
func (s *Solution) Slack(u, v int32) int64 {
	if s.t.Clocks == 1 {
		return plus(s.Upper(u, 0), -s.Lower(v, 0))
	}
	best := s.Across(u, v)
	if s.grid.drift > 0 {
		for c := range int32(s.t.Clocks) {
			best = min(best, s.alone(u, v, c))
		}
	}
	return best
}

// alone is the slack by one clock. The least that it can be certain of, one ns,
// is not lost to rounding: a sum of less than 1/ρ such terms keeps its sign.
func (s *Solution) alone(u, v, c int32) int64 {
	up, low := s.Upper(u, c), s.Lower(v, c)
	if up >= Unbounded || low <= -Unbounded {
		return Unbounded
	}
	if up < low {
		return min(-1, Elapsed(up-low, s.grid.drift))
	}
	return Elapsed(up-low, s.grid.drift)
}

// Across is the slack by offsets alone. No two of them contradict each other.
func (s *Solution) Across(u, v int32) int64 {
	best := Unbounded
	for c := range int32(s.t.Clocks) {
		up := s.Upper(u, c)
		if up >= Unbounded {
			continue
		}
		for d := range int32(s.t.Clocks) {
			if low := s.Lower(v, d); low > -Unbounded {
				w, _, _ := s.via(c, up, d, low)
				best = min(best, w)
			}
		}
	}
	return best
}

// via bounds how far the instant at which clock c reads up can lie after that at
// which clock d reads low, and says by which points.
func (s *Solution) via(c int32, up int64, d int32, low int64) (best int64, p, q int32) {
	g, n := s.grid, s.grid.points()
	if g.drift == 0 {
		return plus(plus(up, s.dist[c*n+d]), -low), c, d
	}
	best = Unbounded
	p1, p2 := g.around(c, up)
	q1, q2 := g.around(d, low)
	for _, i := range [2]int32{p1, p2} {
		for _, j := range [2]int32{q1, q2} {
			if w := plus(plus(g.since(i, up), s.dist[i*n+j]), g.to(j, low)); w < best {
				best, p, q = w, i, j
			}
		}
	}
	return best, p, q
}
