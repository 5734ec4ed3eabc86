package check

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

// wild draws any events at all that a reader lets through: every kind, few names,
// so that they meet, two workers of two sources and a client, losses, ties,
// several clocks.
func wild(t *rapid.T) *writer {
	w := newWriter()
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	num := func(max int, label string) int64 { return int64(rapid.IntRange(0, max).Draw(t, label)) }
	w.source("D", "d0", spec.RoleDecode, "m")
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 3})
	w.source("E", "d0", spec.RoleDecode, pick("clock", "m", "q"))
	w.source("P", "p0", spec.RolePrefill, pick("clock", "m", "p"))
	w.source("C", "c0", spec.RoleClient, pick("clock", "m", "p"))
	kinds := append(spec.Kinds(), spec.KindAlloc, spec.KindFree, spec.KindGrant, spec.KindBegin, spec.KindEnd, spec.KindBegin, spec.KindEnd, spec.KindEmit, spec.KindObserve)
	begun, ended, sent := map[string]bool{}, map[string]bool{}, map[string]bool{}
	at := int64(0)
	for range rapid.IntRange(0, 60).Draw(t, "events") {
		at += num(3, "step")
		e := spec.Event{
			K: rapid.SampledFrom(kinds).Draw(t, "kind"), Pool: "kv", Holder: pick("holder", "x", "y"), To: pick("to", "p0", "*", "d0"),
			Handoff: pick("handoff", "", "h1", "h2"), Req: pick("req", "", "r1", "r2"), Target: pick("target", "d0", "d0", "nobody"),
			Access: pick("access", "a1", "a2", "a3", "a4", "a5"), Sig: pick("sig", "s1", "s2", "s3", "s4"), Signal: pick("signal", "A", "B/3"),
			Claims: spec.Predicate(pick("claims", "", "received", "stopped", "completed", "drained")), Mode: pick("mode", "r", "w"),
			Side: pick("side", "source", "target"), Sum: pick("sum", "1", "2"), Result: spec.Outcome(pick("outcome", "ok", "error", "length")),
			Worker: "p0", Clock: pick("compared", "m", "p", "z"), Lo: -num(9, "lo"), Hi: num(9, "hi"), Count: num(1, "count"), Why: pick("why", "", "timeout"),
			Workers: []string{pick("idle", "d0", "p0")},
		}
		e.Blocks = spec.MakeBlocks(num(2, "block"), num(2, "block"))
		src := pick("src", "D", "P", "E", "C")
		switch e.K {
		case spec.KindSource, spec.KindPool, spec.KindSeal:
			continue
		case spec.KindBegin:
			if begun[e.Access] || e.Handoff == "" && e.Req == "" {
				continue
			}
			begun[e.Access] = true
		case spec.KindEnd:
			if ended[e.Access] {
				continue
			}
			ended[e.Access] = true
		case spec.KindEmit:
			if sent[e.Sig] {
				continue
			}
			sent[e.Sig] = true
			if num(2, "listing") == 0 {
				e.Accesses = []string{pick("listed", "a1", "a2", "a9")}
			}
		default:
			if e.K.Mutates() {
				src = "D"
			}
		}
		if num(20, "gap") == 0 {
			w.gap(src)
		}
		w.add(src, pick("thread", "main", "io"), at, num(1, "wide")*num(5, "width"), e)
	}
	for _, src := range []string{"D", "P"} {
		if num(1, "seal") == 0 {
			w.add(src, "main", at, 0, spec.Event{K: spec.KindSeal})
		}
	}
	return w
}

// TestWildTraces judges whatever may come: no panic, no disagreement between the
// judges, the same result twice, and a verdict that is the worst of its parts.
func TestWildTraces(t *testing.T) {
	verdicts := map[spec.Verdict]int{}
	bad := 0
	rapid.Check(t, func(t *rapid.T) {
		w := wild(t)
		res, err := Judge(context.Background(), &w.tr, Options{Checker: CheckerBoth})
		if err != nil {
			require.IsType(t, &BadTrace{}, err, "%s", w)
			bad++
			return
		}
		require.NotEqual(t, spec.Error, res.Verdict, "%v\n%s", res.Notes, w)
		verdicts[res.Verdict]++
		worst := spec.Inconclusive
		for _, r := range res.Rules {
			if r.Verdict >= spec.Pass {
				require.NotZero(t, r.Judged, "%s\n%s", r.ID, w)
			}
			of := spec.Unexercised
			for _, f := range r.Findings {
				require.NotEmpty(t, f.Text)
				of = max(of, f.Verdict)
			}
			if len(r.Findings) > 0 {
				require.Equal(t, of, r.Verdict, "%s\n%s", r.ID, w)
			}
			worst = max(worst, r.Verdict)
		}
		if res.Verdict != spec.Pass {
			require.Equal(t, worst, res.Verdict, "%s", w)
		}
		again, err := Judge(context.Background(), &w.tr, Options{Parallel: 3, Checker: CheckerBoth})
		require.NoError(t, err)
		require.Equal(t, res, again)
	})
	t.Logf("%v, %d bad", verdicts, bad)
}

func TestEmptyTrace(t *testing.T) {
	res, err := Judge(context.Background(), &spec.Trace{}, Options{})
	require.NoError(t, err)
	require.Equal(t, spec.Inconclusive, res.Verdict)
	require.Len(t, res.Rules, len(spec.Rules()))
	require.NotNil(t, res.Signals)
}
