package check

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// bigTrace is a run of many handoffs over a small pool, in which everything is
// as it should be: n handoffs, 13 events each, some of them at a time.
func bigTrace(n, blocks int, clock string) *writer {
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "m")
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: int64(blocks) * 8})
	w.source("P", "p0", spec.RolePrefill, clock)
	for i := range n {
		t := int64(i+1) * 1000
		h, r := fmt.Sprintf("room-%d", i), fmt.Sprintf("r%d", i)
		first := int64(i%blocks) * 8
		b := spec.Blocks{{First: first, Last: first + 7}}
		half := spec.Blocks{{First: first, Last: first + 3}}
		sig := func(s string) string { return s + h }
		w.add("D", "main", t, 0, spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: b, Holder: r, Req: r, Handoff: h})
		w.add("D", "main", t+10, 0, spec.Event{K: spec.KindGrant, Pool: "kv", Blocks: b, To: "p0", Mode: "w", Req: r, Handoff: h})
		w.add("D", "main", t+20, 0, spec.Event{K: spec.KindEmit, Sig: sig("m"), Signal: "METADATA", Req: r, Handoff: h})
		w.add("P", "main", t+30, 0, spec.Event{K: spec.KindObserve, Sig: sig("m")})
		for c, part := range []spec.Blocks{half, {{First: first + 4, Last: first + 7}}} {
			id := fmt.Sprintf("%s.%d", h, c)
			w.add("P", "main", t+40+int64(c)*20, 0, spec.Event{K: spec.KindBegin, Access: id, Mode: "w", Target: "d0", Pool: "kv", Blocks: part, Handoff: h, Req: r})
			w.add("P", "main", t+50+int64(c)*20, 0, spec.Event{K: spec.KindEnd, Access: id})
		}
		w.add("P", "main", t+90, 0, spec.Event{K: spec.KindEmit, Sig: sig("s"), Signal: "STATUS", Req: r, Handoff: h, Claims: spec.ClaimsDrained})
		w.add("D", "main", t+100, 0, spec.Event{K: spec.KindObserve, Sig: sig("s")})
		w.add("D", "main", t+110, 0, spec.Event{K: spec.KindFinish, Req: r, Result: spec.OutcomeOK})
		w.add("D", "main", t+120, 0, spec.Event{K: spec.KindFree, Pool: "kv", Blocks: b, Holder: r})
	}
	return w
}

// TestLongTrace judges a trace of 50,000 events, on one clock and on two.
func TestLongTrace(t *testing.T) {
	for _, clock := range []string{"m", "p"} {
		w := bigTrace(50_000/12, 16, clock)
		start := time.Now()
		res, err := Judge(context.Background(), &w.tr, Options{})
		require.NoError(t, err)
		require.Equal(t, spec.Pass, res.Verdict, "%v", res.Notes)
		require.Empty(t, ruleResult(res, spec.SIG2).Findings)
		t.Logf("%d events, %d leases, %d histories in %v", res.Stats.Events, res.Stats.Leases, res.Stats.Histories, time.Since(start))
	}
}

func ruleResult(r *Result, id spec.RuleID) RuleResult {
	for _, rr := range r.Rules {
		if rr.ID == id {
			return rr
		}
	}
	return RuleResult{}
}

func BenchmarkJudge(b *testing.B) {
	w := bigTrace(50_000/12, 16, "p")
	for b.Loop() {
		if _, err := Judge(context.Background(), &w.tr, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
