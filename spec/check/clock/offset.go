package clock

// Offset is what clock d may have read minus what clock c read, at any instant of
// the trace: at one and the same instant without drift, else at the instants of
// c's grid, between which it changes by no more than the drift. -Unbounded and
// Unbounded are no bound.
func (s *Solution) Offset(c, d int32) (lo, hi int64) {
	g := s.grid
	lo, hi = Unbounded, -Unbounded
	for p := g.first[c]; p < g.first[c+1]; p++ {
		low, high := s.readingAt(p, d)
		r := g.reading(p)
		lo, hi = min(lo, plus(low, -r)), max(hi, plus(high, -r))
	}
	return lo, hi
}

// readingAt bounds what a clock reads at the instant of a point.
func (s *Solution) readingAt(p, d int32) (lo, hi int64) {
	g, n := s.grid, s.grid.points()
	lo, hi = -Unbounded, Unbounded
	for q := g.first[d]; q < g.first[d+1]; q++ {
		if w := s.dist[q*n+p]; w < Unbounded {
			lo = max(lo, s.atLeast(q, -w))
		}
		if w := s.dist[p*n+q]; w < Unbounded {
			hi = min(hi, s.atMost(q, w))
		}
	}
	return lo, hi
}

// atLeast is the least that the point's clock reads when the time since the point
// is w or more; atMost the most that it reads when it is w or less.
func (s *Solution) atLeast(p int32, w int64) int64 {
	return s.grid.reading(p) + advance(w, s.grid.drift)
}

func (s *Solution) atMost(p int32, w int64) int64 {
	return s.grid.reading(p) - advance(-w, s.grid.drift)
}

// Interval bounds what a clock read when the event took effect, by all that is
// before and after it; -Unbounded and Unbounded are no bound.
//
// An order that the intervals of some clock rule out is one that Slack rules out
// too, so that who searches for an order within intervals accepts whatever the
// solver does: all readings of other clocks are converted at one point.
func (s *Solution) Interval(e, clock int32) (low, high int64) {
	g, n := s.grid, s.grid.points()
	low, high = s.Lower(e, clock), s.Upper(e, clock)
	m := g.middle(clock)
	for c := range int32(s.t.Clocks) {
		if c == clock {
			continue
		}
		if l := s.Lower(e, c); l > -Unbounded {
			p1, p2 := g.around(c, l)
			for _, p := range [2]int32{p1, p2} {
				if d := plus(g.to(p, l), s.dist[m*n+p]); d < Unbounded {
					low = max(low, s.atLeast(m, -d))
				}
			}
		}
		if u := s.Upper(e, c); u < Unbounded {
			p1, p2 := g.around(c, u)
			for _, p := range [2]int32{p1, p2} {
				if d := plus(g.since(p, u), s.dist[p*n+m]); d < Unbounded {
					high = min(high, s.atMost(m, d))
				}
			}
		}
	}
	return low, high
}

// Timeline is one choice of offsets that fits: all clocks' readings as instants of
// one clock. Without drift, what fits no offsets does not fit these either. With
// drift the offsets are those at the middle of each clock's grid, about right elsewhere.
type Timeline struct {
	s    *Solution
	zero []int64 // of each clock: the instant at which it reads 0
}

// Timeline gives the timeline of the solution's own offsets.
func (s *Solution) Timeline() *Timeline {
	g, n := s.grid, s.grid.points()
	t := &Timeline{s, make([]int64, s.t.Clocks)}
	for c := range t.zero {
		p := g.middle(int32(c))
		w := int64(0)
		for q := range n {
			w = min(w, s.dist[p*n+q])
		}
		t.zero[c] = w - g.reading(p)
	}
	return t
}

// Span bounds the instant of an event by all that is before and after it.
func (t *Timeline) Span(e int32) (low, high int64) {
	low, high = -Unbounded, Unbounded
	for c, zero := range t.zero {
		if r := t.s.Lower(e, int32(c)); r > -Unbounded {
			low = max(low, plus(zero, r))
		}
		if r := t.s.Upper(e, int32(c)); r < Unbounded {
			high = min(high, plus(zero, r))
		}
	}
	return low, high
}

// Instants gives each event an instant such that none decreases along the known
// order: about when it took effect, if the offsets are as this solution has them.
func (s *Solution) Instants() []int64 {
	t := s.Timeline()
	at := make([]int64, len(s.t.Of))
	for _, e := range s.t.Order {
		at[e], _ = t.Span(e)
	}
	return at
}
