package clock_test

import (
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec/check/clock"
)

// world is a trace for tests: intervals, and edges from earlier to later events.
type world struct {
	clock.Trace
	from, till []int64
	after      [][]int32 // of each event
	prior      [][]int32
}

func newWorld(clocks int) *world {
	w := &world{}
	w.Clocks = clocks
	w.From = func(e int32) int64 { return w.from[e] }
	w.Till = func(e int32) int64 { return w.till[e] }
	w.Succs = func(buf []int32, e int32) []int32 { return append(buf, w.after[e]...) }
	w.Preds = func(buf []int32, e int32) []int32 { return append(buf, w.prior[e]...) }
	return w
}

func (w *world) event(c int32, from, till int64) int32 {
	e := int32(len(w.from))
	w.from, w.till, w.after, w.Of = append(w.from, from), append(w.till, till), append(w.after, nil), append(w.Of, c)
	w.prior = append(w.prior, nil)
	w.Order = append(w.Order, e)
	return e
}

func (w *world) before(a, b int32) {
	w.after[a], w.prior[b] = append(w.after[a], b), append(w.prior[b], a)
}

func (w *world) String() string {
	return fmt.Sprintf("clocks %v\nfrom   %v\ntill   %v\nafter  %v\ncompared %v\ndrift %d", w.Of, w.from, w.till, w.after, w.Compared, w.DriftPPM)
}

// refutes is the verifier of certificates: it knows nothing of the solver.
func refutes(t require.TestingT, w *world, c clock.Cycle) {
	require.NotEmpty(t, c, "%s", w)
	if len(c) == 1 && c[0].Compared { // a clock, at one instant, with itself
		k := w.Compared[slices.IndexFunc(w.Compared, func(k clock.Comparison) bool { return k.Event == c[0].Path[0] })]
		require.True(t, k.This == k.That && (k.Hi < 0 || k.Lo > 0), "%s", w)
		require.Negative(t, c.Sum(w.DriftPPM))
		return
	}
	sum, spread := big.NewInt(0), big.NewInt(0)
	add := func(to *big.Int, n int64) { to.Add(to, big.NewInt(n)) }
	for i, b := range c {
		next := c[(i+1)%len(c)]
		require.Equal(t, b.To, next.From, "%v\n%s", c, w)
		s := b.Late - next.Early
		add(sum, s)
		add(spread, max(abs(s), abs(s+b.Spread), abs(s-next.Spread)))
		if b.Compared {
			require.True(t, slices.ContainsFunc(w.Compared, func(k clock.Comparison) bool {
				at := w.from[k.Event]
				return k.Event == b.Path[0] && b.Spread == w.till[k.Event]-at &&
					(b.From == k.This && b.To == k.That && b.Early == at && b.Late == at+k.Hi ||
						b.From == k.That && b.To == k.This && b.Early == at+k.Lo && b.Late == at)
			}), "%v\n%s", b, w)
			continue
		}
		first, last := b.Path[0], b.Path[len(b.Path)-1]
		require.True(t, w.Of[first] == b.From && w.from[first] >= b.Early && w.Of[last] == b.To && w.till[last] <= b.Late, "%v\n%s", b, w)
		for j, e := range b.Path[1:] {
			require.Contains(t, w.after[b.Path[j]], e, "%s", w)
		}
	}
	// The least time that must go by: sum + ρ/2·spread, in units of 0.5e-6 ns.
	sum.Mul(sum, big.NewInt(2_000_000)).Add(sum, spread.Mul(spread, big.NewInt(w.DriftPPM)))
	require.Negative(t, sum.Sign(), "%v\n%s", c, w)
	require.Negative(t, c.Sum(w.DriftPPM))
}

func abs(n int64) int64 { return max(n, -n) }

// small draws a world in which every choice of offsets can be tried.
func small(t *rapid.T) *world {
	num := func(lo, hi int, label string) int64 { return int64(rapid.IntRange(lo, hi).Draw(t, label)) }
	w := newWorld(rapid.IntRange(1, 3).Draw(t, "clocks"))
	for range num(1, 8, "events") {
		at := num(0, 10, "from")
		e := w.event(int32(rapid.IntRange(0, w.Clocks-1).Draw(t, "clock")), at, at+num(0, 3, "width"))
		for p := range e {
			if num(0, 3, "edge") == 0 {
				w.before(p, e)
			}
		}
	}
	if num(0, 2, "compared") == 0 {
		e := int32(num(0, len(w.from)-1, "by"))
		c := clock.Comparison{Event: e, This: w.Of[e], That: int32(rapid.IntRange(0, w.Clocks-1).Draw(t, "that")), Lo: num(-12, 4, "lo")}
		c.Hi = c.Lo + num(0, 9, "hi")
		switch num(0, 3, "open") {
		case 0:
			c.Lo = -clock.Unbounded
		case 1:
			c.Hi = clock.Unbounded
		}
		w.Compared = append(w.Compared, c)
	}
	return w
}

// fits reports whether offsets, the instants at which the clocks read 0, fit.
func (w *world) fits(zero []int64) bool {
	for _, c := range w.Compared {
		if d := zero[c.This] - zero[c.That]; d < c.Lo || d > c.Hi {
			return false
		}
	}
	at := make([]int64, len(w.from))
	for e := range at {
		at[e] = max(at[e], w.from[e]+zero[w.Of[e]])
		if at[e] > w.till[e]+zero[w.Of[e]] {
			return false
		}
		for _, s := range w.after[e] {
			at[s] = max(at[s], at[e])
		}
	}
	return true
}

// offsets lists all choices of offsets up to most from the first clock that fit.
func (w *world) offsets(most int64) [][]int64 {
	var out [][]int64
	zero := make([]int64, w.Clocks)
	zero[0] = 1000
	var try func(c int)
	try = func(c int) {
		if c == w.Clocks {
			if w.fits(zero) {
				out = append(out, slices.Clone(zero))
			}
			return
		}
		for d := -most; d <= most; d++ {
			zero[c] = zero[0] + d
			try(c + 1)
		}
	}
	try(1)
	return out
}

// TestEveryOffset holds the solver against trying out every choice of offsets:
// it refuses where none fits, with a certificate, and leaves just those that do.
func TestEveryOffset(t *testing.T) {
	const most = 30 // two clocks are then 15 apart at most, if anything bounds them
	fine, not := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := small(t)
		s, cycle := clock.Solve(&w.Trace)
		all := w.offsets(most)
		require.Equal(t, len(all) == 0, cycle != nil, "%s", w)
		if cycle != nil {
			not++
			refutes(t, w, cycle)
			return
		}
		fine++
		for c := range int32(w.Clocks) {
			for d := range int32(w.Clocks) {
				// A clock that read 0 later reads less.
				lo, hi := int64(clock.Unbounded), int64(-clock.Unbounded)
				for _, zero := range all {
					lo, hi = min(lo, zero[c]-zero[d]), max(hi, zero[c]-zero[d])
				}
				gotLo, gotHi := s.Offset(c, d)
				if gotLo > -most/2 {
					require.Equal(t, lo, gotLo, "%s", w)
				}
				if gotHi < most/2 {
					require.Equal(t, hi, gotHi, "%s", w)
				}
			}
		}
	})
	t.Logf("%d fit some offsets, %d none", fine, not)
	require.NotZero(t, fine)
	require.NotZero(t, not)
}

// TestDriftOnlyAccepts holds that what fits with a drift fits with a greater one,
// and that what is refused is refused with a certificate.
func TestDriftOnlyAccepts(t *testing.T) {
	not := 0
	rapid.Check(t, func(t *rapid.T) {
		w := small(t)
		// Stretched, so that a drift matters.
		scale := rapid.Int64Range(1, 1e9).Draw(t, "scale")
		for e := range w.from {
			w.from[e], w.till[e] = w.from[e]*scale, w.till[e]*scale
		}
		refused := true
		for _, w.DriftPPM = range []int64{0, 1, 20, 300, clock.MaxDriftPPM} {
			_, cycle := clock.Solve(&w.Trace)
			require.False(t, cycle != nil && !refused, "%s", w)
			if refused = cycle != nil; refused {
				refutes(t, w, cycle)
				not++
			}
		}
	})
	require.NotZero(t, not)
}

// drifting is a clock whose rate changes now and then.
type drifting struct {
	at, reads []float64 // instants at which the rate changes, and readings there
	rate      []float64
}

func newDrifting(r *rand.Rand, span, start, slow, fast float64) *drifting {
	d := &drifting{}
	x, reads := 0.0, start
	for x <= 2*span {
		rate := slow + (fast-slow)*r.Float64()
		if r.IntN(2) == 0 { // the extremes are what a bound must stand
			rate = []float64{slow, fast}[r.IntN(2)]
		}
		d.at, d.reads, d.rate = append(d.at, x), append(d.reads, reads), append(d.rate, rate)
		step := span * (0.01 + r.Float64())
		x, reads = x+step, reads+step*rate
	}
	return d
}

// reading is what the clock reads at an instant, when its reverse.
func (d *drifting) reading(x float64) float64 {
	i := sort.SearchFloat64s(d.at, x)
	i = max(i-1, 0)
	return d.reads[i] + (x-d.at[i])*d.rate[i]
}

func (d *drifting) when(reads float64) float64 {
	i := max(sort.SearchFloat64s(d.reads, reads)-1, 0)
	return d.at[i] + (reads-d.reads[i])/d.rate[i]
}

// simulated is a run of several hosts that send messages to each other, and the
// instant of each event.
func simulated(r *rand.Rand, clocks int, span float64, ppm int64, messages int) (*world, []*drifting, []float64) {
	w := newWorld(clocks)
	w.DriftPPM = ppm
	rho := float64(ppm) * 1e-6
	ds := make([]*drifting, clocks)
	for c := range ds {
		ds[c] = newDrifting(r, span, (r.Float64()-0.5)*1e10, 1-rho/(2+rho), 1+rho/(2+rho))
	}
	type stamp struct {
		x    float64
		c    int
		pair int // the message, negative where it arrives
	}
	var stamps []stamp
	for m := 1; m <= messages; m++ {
		x, c := r.Float64()*span, r.IntN(clocks)
		stamps = append(stamps, stamp{x, c, m}, stamp{x + 20e3 + r.ExpFloat64()*80e3, r.IntN(clocks), -m})
	}
	slices.SortFunc(stamps, func(a, b stamp) int { return cmp.Compare(a.x, b.x) })
	last := make([]int32, clocks)
	sent := map[int]int32{}
	var at []float64
	for _, s := range stamps {
		reads := int64(ds[s.c].reading(s.x))
		e := w.event(int32(s.c), reads-1, reads+1)
		at = append(at, s.x)
		if l := last[s.c]; l > 0 {
			w.before(l-1, e)
		}
		last[s.c] = e + 1
		if s.pair > 0 {
			sent[s.pair] = e
		} else if m := sent[-s.pair]; m != e {
			w.before(m, e)
		}
	}
	return w, ds, at
}

// TestDriftingClocks simulates clocks whose rates wander as far as they may. None
// ever gives an alarm, and all that is said of their offsets and of the events'
// instants is true.
func TestDriftingClocks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 3))
	for i := range 48 {
		span := []float64{1e6, 1e9, 60e9, 3600e9}[i%4]
		w, ds, at := simulated(r, 2+i%4, span, []int64{1, 20, 500, clock.MaxDriftPPM}[i/4%4], 60)
		s, cycle := clock.Solve(&w.Trace)
		require.Nil(t, cycle, "a false alarm: %v\n%s", cycle, w)
		for c := range int32(w.Clocks) {
			for d := range int32(w.Clocks) {
				lo, hi := s.Offset(c, d)
				reads := float64(w.from[0])
				if w.Of[0] != c {
					continue
				}
				truth := ds[d].reading(ds[c].when(reads)) - reads
				drift := float64(w.DriftPPM) * 1e-6 * span
				require.True(t, float64(lo)-3-drift <= truth && truth <= float64(hi)+3+drift, "%d to %d, in truth %f\n%s", lo, hi, truth, w)
			}
		}
		for range 200 {
			u, v := int32(r.IntN(len(at))), int32(r.IntN(len(at)))
			require.GreaterOrEqual(t, float64(s.Slack(u, v))+3, at[u]-at[v], "%d after %d\n%s", u, v, w)
			c := int32(r.IntN(w.Clocks))
			low, high := s.Interval(u, c)
			truth := ds[c].reading(at[u])
			require.True(t, float64(low)-3 <= truth && truth <= float64(high)+3, "%d to %d, in truth %f\n%s", low, high, truth, w)
		}
	}
}

// TestDriftFinds holds that relaxing leaves enough to find: in an hour of four
// hosts that drift by 20 ppm, 72 ms in all, nearly every order of two events
// nearby on different hosts that is wrong by 1 ms is refused.
func TestDriftFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	var loose []float64 // by how much an order must be wrong so that it is refused
	for range 5 {
		w, _, at := simulated(r, 4, 3600e9, 20, 4000)
		s, cycle := clock.Solve(&w.Trace)
		require.Nil(t, cycle)
		for range 200 {
			u := r.IntN(len(at) - 5)
			v := u + 1 + r.IntN(4)
			if r.IntN(2) == 0 {
				u, v = v, u
			}
			if u, v := int32(u), int32(v); w.Of[u] != w.Of[v] {
				loose = append(loose, float64(s.Slack(u, v))-(at[u]-at[v]))
			}
		}
	}
	slices.Sort(loose)
	t.Logf("refused from %.2f ms on (median), %.2f ms (95 %%), %.2f ms (all)", loose[len(loose)/2]/1e6, loose[len(loose)*95/100]/1e6, loose[len(loose)-1]/1e6)
	require.Less(t, loose[len(loose)*95/100], 1e6)
}
