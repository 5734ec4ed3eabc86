package check_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
	"conform/spec/check"
)

// covered counts the rules' minimal traces and the clauses'.
func covered(t *testing.T, leaveOut func(spec.Event) bool) []check.Covered {
	t.Helper()
	cov := check.NewCoverage()
	add := func(name string, data []byte) {
		tr := parse(t, name, data)
		for _, e := range tr.Events {
			if leaveOut(e) {
				return
			}
		}
		require.NoError(t, cov.Add(context.Background(), name, tr), name)
	}
	for _, r := range spec.Rules() {
		bad, err := r.Bad()
		require.NoError(t, err)
		good, err := r.Good()
		require.NoError(t, err)
		add(string(r.ID)+".bad", bad)
		add(string(r.ID)+".good", good)
	}
	clauses, err := spec.Clauses()
	require.NoError(t, err)
	for _, c := range clauses {
		add(c.ID(), c.Trace)
	}
	return cov.Rows()
}

// refusals are the rules by which the Step of the model can refuse an event. That
// there is no other is held by TestNoOtherRefusals.
var refusals = map[string][]spec.RuleID{
	"Block alloc":    {spec.BLK1},
	"Block hold":     {spec.BLK4},
	"Block grant":    {spec.BLK4},
	"Block begin":    {spec.BLK3, spec.REQ1, spec.REQ3},
	"Block drop":     {spec.BLK4},
	"Block free":     {spec.BLK2, spec.BLK4},
	"Request admit":  {spec.REQ5},
	"Request accept": {spec.REQ1},
	"Request output": {spec.REQ1},
	"Request finish": {spec.REQ4},
}

// TestEveryTransitionIsReached holds that some trace takes each transition of both
// machines, and that each guard refuses in some trace by each of its rules.
func TestEveryTransitionIsReached(t *testing.T) {
	rows := covered(t, func(spec.Event) bool { return false })
	require.Len(t, rows, len(spec.Transitions()))
	for _, r := range rows {
		name := r.Machine + " " + string(r.Event)
		require.NotZero(t, r.Taken, name)
		require.NotZero(t, r.Traces, name)
		require.NotEmpty(t, r.First, name)
		got := []spec.RuleID{}
		for id := range r.Refused {
			got = append(got, id)
		}
		require.ElementsMatch(t, refusals[name], got, name)
	}
}

// TestUnreachedTransitionsShow holds that the table is counted: without the traces
// that have an event, its transition is not taken.
func TestUnreachedTransitionsShow(t *testing.T) {
	for _, kind := range []spec.Kind{spec.KindAlloc, spec.KindRevoke, spec.KindFence, spec.KindOffer, spec.KindAccept, spec.KindExpire, spec.KindFinish} {
		for _, r := range covered(t, func(e spec.Event) bool { return e.K == kind }) {
			if r.Event == kind {
				require.Zero(t, r.Taken, kind)
				require.Empty(t, r.Refused, kind)
			}
		}
	}
}

// TestCoverageRefusesBadTraces holds that what no order fits is not counted.
func TestCoverageRefusesBadTraces(t *testing.T) {
	const bad = `{"src":"D","seq":0,"t":9,"k":"source","worker":"d0","role":"decode","host":"h","clock":"m"}
{"src":"D","seq":1,"t":1,"k":"note","text":"before its source"}
`
	require.ErrorAs(t, check.NewCoverage().Add(context.Background(), "bad", parse(t, "bad", []byte(bad))), new(*check.BadTrace))
}

// TestNoOtherRefusals draws long lives of both machines and holds that no event is
// refused by a rule that the table above does not list for it.
func TestNoOtherRefusals(t *testing.T) {
	pick := func(t *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(t, "pick") }
	seen := map[string]bool{}
	hold := func(t *rapid.T, event string, b *spec.Breach) {
		if b == nil {
			return
		}
		require.Contains(t, refusals[event], b.Rule, event)
		seen[event+" "+string(b.Rule)] = true
	}
	rapid.Check(t, func(t *rapid.T) {
		var b spec.Block
		var r spec.Request
		for range 30 {
			bk := rapid.SampledFrom([]spec.Kind{
				spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree, spec.KindGrant, spec.KindRevoke, spec.KindFence, spec.KindBegin, spec.KindEnd,
			}).Draw(t, "block event")
			next, breach := b.Step(spec.BlockOp{
				Kind: bk, Holder: spec.Holder{Name: pick(t, "r1", "r2", "")}, Handoff: pick(t, "h1", "h2"), To: pick(t, "p0", "*"), Mode: pick(t, "r", "w"),
				Access: pick(t, "a1", "a2"), By: "p0", Remote: rapid.Bool().Draw(t, "remote"), Generation: b.Generation, Granted: rapid.Bool().Draw(t, "granted"),
			})
			hold(t, "Block "+string(bk), breach)
			b = next
			rk := rapid.SampledFrom([]spec.Kind{
				spec.KindSubmit, spec.KindAdmit, spec.KindReject, spec.KindOffer, spec.KindAccept, spec.KindBegin, spec.KindOutput, spec.KindCancel,
				spec.KindExpire, spec.KindFinish,
			}).Draw(t, "request event")
			nextR, breach := r.Step(spec.RequestOp{
				Kind: rk, Elsewhere: rapid.Bool().Draw(t, "elsewhere"), Client: rapid.Bool().Draw(t, "client"), Need: int64(rapid.IntRange(0, 2).Draw(t, "need")), Limit: 1,
				Outcome: rapid.SampledFrom([]spec.Outcome{spec.OutcomeOK, spec.OutcomeError}).Draw(t, "outcome"),
			})
			machine := "Request "
			if rk == spec.KindBegin {
				machine = "Block "
			}
			hold(t, machine+string(rk), breach)
			if r = nextR; !r.Phase.Live() && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
				r = spec.Request{}
			}
		}
	})
	for event, rules := range refusals {
		for _, id := range rules {
			require.True(t, seen[event+" "+string(id)], "%s %s", event, id)
		}
	}
}
