package check

import (
	"context"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
	"conform/spec/check/clock"
)

// refutes is the verifier of certificates. It knows the trace and the asked
// edges, and nothing of the solver: each bound must follow from the trace, and
// their sum, with the drift between them, be less than zero.
func refutes(t require.TestingT, tr *spec.Trace, h *history, c clock.Cycle, asked []edge) {
	require.NotEmpty(t, c)
	clockOf := map[string]string{}
	for _, e := range tr.Events {
		if e.K == spec.KindSource {
			clockOf[e.Src] = e.Clock
		}
	}
	// In absolute readings: those of the certificate are counted from zeros.
	abs := func(clock int32, r int64) *big.Int { return new(big.Int).Add(big.NewInt(r), big.NewInt(h.zero[clock])) }
	sum, spread := new(big.Int), new(big.Int)
	for i, b := range c {
		next := c[(i+1)%len(c)]
		require.Equal(t, b.To, next.From)
		s := new(big.Int).Sub(abs(b.To, b.Late), abs(next.From, next.Early))
		sum.Add(sum, s)
		far := new(big.Int).Abs(s)
		for _, d := range []int64{b.Spread, -next.Spread} {
			if a := new(big.Int).Abs(new(big.Int).Add(s, big.NewInt(d))); a.Cmp(far) > 0 {
				far = a
			}
		}
		spread.Add(spread, far)
		first, last := &tr.Events[b.Path[0]], &tr.Events[b.Path[len(b.Path)-1]]
		if b.Compared {
			r, lo, hi := big.NewInt(first.T), big.NewInt(first.Lo), big.NewInt(first.Hi)
			early, late := abs(b.From, b.Early), abs(b.To, b.Late)
			upper := h.clocks[b.From] == clockOf[first.Src] && early.Cmp(r) == 0 && late.Cmp(hi.Add(hi, r)) == 0
			lower := h.clocks[b.To] == clockOf[first.Src] && late.Cmp(r) == 0 && early.Cmp(lo.Add(lo, r)) == 0
			require.True(t, upper || lower)
			require.Equal(t, first.T2-first.T, b.Spread)
			continue
		}
		require.Equal(t, h.clocks[b.From], clockOf[first.Src])
		require.Equal(t, h.clocks[b.To], clockOf[last.Src])
		require.GreaterOrEqual(t, big.NewInt(first.T).Cmp(abs(b.From, b.Early)), 0)
		require.LessOrEqual(t, big.NewInt(last.T2).Cmp(abs(b.To, b.Late)), 0)
		for j, e := range b.Path[1:] {
			require.True(t, directly(tr, b.Path[j], e) || slices.Contains(asked, edge{b.Path[j], e}), "%d to %d", b.Path[j], e)
		}
	}
	sum.Mul(sum, big.NewInt(2_000_000)).Add(sum, spread.Mul(spread, big.NewInt(h.driftPPM)))
	require.Negative(t, sum.Sign())
}

// directly reports whether a comes before b by program order, pool order, or as
// a signal.
func directly(tr *spec.Trace, a, b int32) bool {
	x, y := &tr.Events[a], &tr.Events[b]
	switch {
	case x.K == spec.KindEmit && y.K == spec.KindObserve && x.Sig == y.Sig:
		return true
	case x.K.Mutates() && y.K.Mutates() && x.Src == y.Src && x.Pool == y.Pool && x.Seq < y.Seq:
		return true
	}
	return x.Src == y.Src && x.Th == y.Th && x.Seq < y.Seq
}

// TestCertificates holds that whatever the clocks refuse, in a trace or of edges
// that are asked for, they refuse with a certificate that the verifier accepts,
// and that edges which they allow have none.
func TestCertificates(t *testing.T) {
	traces, questions, several := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := twoClocks(t)
		h, err := newHistory(&w.tr)
		require.NoError(t, err)
		h.driftPPM = rapid.SampledFrom([]int64{0, 0, 20, clock.MaxDriftPPM}).Draw(t, "ppm")
		o, why := newOrder(h, nil)
		if why != nil {
			if why.cycle != nil {
				refutes(t, &w.tr, h, why.cycle, nil)
				traces++
			}
			return
		}
		for range 20 {
			edges := make([]edge, rapid.IntRange(1, 4).Draw(t, "edges"))
			for i := range edges {
				any := rapid.Int32Range(0, int32(len(h.ev)-1))
				edges[i] = edge{any.Draw(t, "from"), any.Draw(t, "to")}
			}
			feasible, cycle := o.feasible(edges...), o.whyNot(edges...)
			require.False(t, feasible && cycle != nil, "%s", w)
			if cycle == nil && !feasible {
				_, why := newOrder(h, edges)
				require.NotNil(t, why, "%s", w)
				require.Nil(t, why.cycle, "the order alone refuses it\n%s", w)
			}
			if cycle != nil {
				refutes(t, &w.tr, h, cycle, edges)
				questions++
				if len(cycle.Clocks()) > 1 {
					several++
				}
			}
			if _, why := newOrder(h, edges); why != nil && why.cycle != nil {
				refutes(t, &w.tr, h, why.cycle, edges)
			}
		}
	})
	t.Logf("%d traces refused, %d questions, %d of them only by several clocks", traces, questions, several)
	require.NotZero(t, traces)
	require.NotZero(t, several)
}

// TestDriftOnlyAccepts judges traces with growing drift: the judges agree on
// each, and no rule fails that held with less.
func TestDriftOnlyAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := twoClocks(t)
		scale := rapid.Int64Range(1, 3e6).Draw(t, "scale")
		for i := range w.tr.Events {
			e := &w.tr.Events[i]
			e.T, e.T2, e.Lo, e.Hi = e.T*scale, e.T2*scale, e.Lo*scale, e.Hi*scale
		}
		bad, held := true, false
		for _, ppm := range []int{0, 1, 50, clock.MaxDriftPPM} {
			res, err := Judge(context.Background(), &w.tr, Options{DriftPPM: ppm, Parallel: 1, Checker: CheckerBoth})
			if err != nil {
				require.IsType(t, &BadTrace{}, err)
				require.True(t, bad, "%s", w)
				continue
			}
			bad = false
			require.NotEqual(t, spec.Error, res.Verdict, "%v\n%s", res.Notes, w)
			// What begins too early may also be said to end too late.
			fails := ruleResult(res, spec.BLK2).Verdict == spec.Fail || ruleResult(res, spec.BLK3).Verdict == spec.Fail
			require.False(t, fails && held, "%d ppm\n%s", ppm, w)
			held = !fails
		}
	})
}

// TestDriftExplains: an order that is wrong by 20 ms is one if the clocks were
// last compared an hour ago and keep together, and is none if they may drift
// apart by 72 ms since; one that is wrong by 200 ms is one all the same.
func TestDriftExplains(t *testing.T) {
	const hour, ms = 3_600_000_000_000, 1_000_000
	run := func(wrong int64) *writer {
		w := newWriter()
		w.source("D", "d0", spec.RoleDecode, "md")
		w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 8})
		w.source("P", "p0", spec.RolePrefill, "mp")
		return w.at("D", 100, room(spec.KindAlloc, holder("r1"))).at("D", 110, room(spec.KindGrant)).
			at("D", 120, room(spec.KindEmit, sig("m", "METADATA"))).at("P", 120, observe("m")).at("P", 140, room(spec.KindBegin, acc("a"))).
			at("P", hour+wrong, end("a")).at("D", hour, room(spec.KindFree))
	}
	for _, v := range []struct {
		ppm     int
		wrong   int64
		verdict spec.Verdict
	}{{0, 20 * ms, spec.Fail}, {20, 20 * ms, spec.Pass}, {20, 200 * ms, spec.Fail}, {2, 20 * ms, spec.Fail}, {clock.MaxDriftPPM + 1, 200 * ms, spec.Pass}} {
		w := run(v.wrong)
		res, err := Judge(context.Background(), &w.tr, Options{DriftPPM: v.ppm})
		require.NoError(t, err)
		require.Equal(t, v.verdict, ruleResult(res, spec.BLK2).Verdict, "%d ppm, %d ms", v.ppm, v.wrong/ms)
	}
}

// skewed is offered with p0 on a clock of its own, which is an hour ahead.
func skewed() *writer {
	const hour = 3_600_000_000_000
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "md")
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 8})
	w.source("P", "p0", spec.RolePrefill, "mp")
	return w.at("D", 100, room(spec.KindAlloc, holder("r1"))).at("D", 110, room(spec.KindGrant)).
		at("D", 120, room(spec.KindEmit, sig("m", "METADATA"))).at("P", hour+130, observe("m")).
		at("P", hour+140, room(spec.KindBegin, acc("a"))).
		at("P", hour+145, room(spec.KindEmit, sig("x", "RECEIVED"), claims(spec.ClaimsReceived))).at("D", 150, observe("x")).
		at("D", 160, room(spec.KindFree)).at("P", hour+200, end("a"))
}

// TestClocksAreCited: what only several clocks show cites the circle of bounds,
// and the result says how far the clocks are apart.
func TestClocksAreCited(t *testing.T) {
	res := check(t, variant{skewed(), map[spec.RuleID]spec.Verdict{spec.BLK2: spec.Fail}, spec.Fail})
	f := ruleResult(res, spec.BLK2).Findings[0]
	require.Contains(t, f.Text, "no offset of the clocks lets it: D#4 (emit m METADATA at 120) on clock md is before P#1 (observe m at ")
	require.Contains(t, f.Text, " on clock mp would have to be before D#6 (free at 160) on clock md; taken")
	require.Contains(t, f.Text, "; taken together these are 30 ns short")
	require.Contains(t, f.Events, spec.EventID{Src: "P", Seq: 1})
	lo, hi := int64(3_600_000_000_000-5), int64(3_600_000_000_000+10)
	require.Equal(t, []ClockResult{{Clock: "mp", Minus: "md", Lo: &lo, Hi: &hi}}, res.Clocks)

	res = check(t, variant{
		offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("D", 30, room(spec.KindFree)).at("P", 40, end("a")),
		map[spec.RuleID]spec.Verdict{spec.BLK2: spec.Fail},
		spec.Fail,
	})
	require.Empty(t, res.Clocks, "one clock")
	require.NotContains(t, ruleResult(res, spec.BLK2).Findings[0].Text, "offset")
}
