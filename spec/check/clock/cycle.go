package clock

import "slices"

// Bound says that the instant at which clock From reads Early is not after the
// one at which clock To reads Late.
type Bound struct {
	From, To    int32
	Early, Late int64
	// Path proves it: each event comes before the next, clock From read Early or
	// more at the first, and clock To read Late or less at the last. Of a
	// comparison it is the one event that compared.
	Path []int32
	// Compared marks a comparison. What the event's own clock read is then known
	// within Spread only: both readings may be later by up to it, by the same.
	Compared bool
	Spread   int64
}

// First and Last are the events that set the bound, the same for a comparison.
func (b *Bound) First() int32 { return b.Path[0] }

// Last is the event at which To read Late or less.
func (b *Bound) Last() int32 { return b.Path[len(b.Path)-1] }

// Cycle proves that no offsets fit: bounds, the To of each being the From of the
// next and that of the last the From of the first, that add up to less than
// zero.
type Cycle []Bound

// Sum is how much time would have to go by on the way round: less than zero.
// Each bound leaves time from its Late to the Early of the next.
func (c Cycle) Sum(driftPPM int64) int64 {
	if len(c) == 1 && c[0].Compared {
		return c[0].Late - c[0].Early // of one clock at one instant
	}
	total := int64(0)
	for i := range c {
		b, next := &c[i], &c[(i+1)%len(c)]
		s := b.Late - next.Early
		farthest := max(relax(s, driftPPM), relax(s+b.Spread, driftPPM), relax(s-next.Spread, driftPPM))
		if s < 0 && farthest > 0 && b.Spread == 0 && next.Spread == 0 {
			farthest = min(farthest, -s-1) // see alone
		}
		total = plus(total, s+farthest)
	}
	return total
}

// Clocks lists the clocks that take part, each once.
func (c Cycle) Clocks() []int32 {
	var out []int32
	for i := range c {
		out = append(out, c[i].From, c[i].To)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ordered is the bound that an event sets by what comes before it on a clock.
func (s *Solution) ordered(e, c int32) Bound {
	path := s.t.trail(&s.lower, e, c, s.t.Preds, s.t.From)
	slices.Reverse(path)
	return Bound{From: c, To: s.t.Of[e], Early: s.Lower(e, c), Late: s.t.Till(e), Path: path}
}

// bound is what bounds two neighbouring points against each other.
func (s *Solution) bound(p, q int32) Bound {
	why := s.why[p*s.grid.points()+q]
	if why >= 0 {
		return s.ordered(why, s.grid.clock[p])
	}
	cmp := &s.t.Compared[-1-why]
	from := s.t.From(cmp.Event)
	b := Bound{From: s.grid.clock[p], To: s.grid.clock[q], Path: []int32{cmp.Event}, Compared: true, Spread: s.t.Till(cmp.Event) - from}
	b.Early, b.Late = from, from+cmp.Hi
	if b.From != cmp.This {
		b.Early, b.Late = from+cmp.Lo, from
	}
	return b
}

// Route is why Slack is what it is: After leads from u to an event that some
// clock read no later than it bounds, Before from one to v, and between the two
// are bounds.
type Route struct {
	After  []int32
	Bounds []Bound
	Before []int32
	// End is the clock on which After ends, and Late what it reads; Start and Early
	// those on which Before begins.
	End, Start  int32
	Late, Early int64
}

// Route explains Slack(u, v), which must be a bound.
func (s *Solution) Route(u, v int32) Route {
	best, r := Unbounded, Route{}
	var p, q int32
	for c := range int32(s.t.Clocks) {
		up := s.Upper(u, c)
		if up >= Unbounded {
			continue
		}
		for d := range int32(s.t.Clocks) {
			low := s.Lower(v, d)
			if low <= -Unbounded {
				continue
			}
			w, i, j := s.via(c, up, d, low)
			if c == d {
				if one := s.alone(u, v, c); one <= w {
					w, i, j = one, s.grid.middle(c), s.grid.middle(c)
				}
			}
			if w < best {
				best, p, q = w, i, j
				r.End, r.Start, r.Late, r.Early = c, d, up, low
			}
		}
	}
	r.Bounds = s.walk(p, q)
	r.After = s.t.trail(&s.upper, u, r.End, s.t.Succs, s.before)
	r.Before = s.t.trail(&s.lower, v, r.Start, s.t.Preds, s.t.From)
	slices.Reverse(r.Before)
	return r
}
