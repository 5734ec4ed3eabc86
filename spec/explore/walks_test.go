package explore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
	"conform/spec/explore"
)

// TestWalksPass judges the traces of thousands of runs of the correct protocol,
// with every fault of the full scope: none fails, none is unproven. The end of
// what a crashed owner held is not to be known, so there inconclusive is right.
func TestWalksPass(t *testing.T) {
	const runs = 1000
	for _, mode := range []explore.Mode{explore.Push, explore.Pull} {
		walks, err := explore.NewWalks(explore.FullScope(mode))
		require.NoError(t, err)
		judged, crashed := map[spec.RuleID]int{}, 0
		for seed := range uint64(runs) {
			tr, broken, ownerDown := walks.Walk(seed)
			require.Empty(t, broken)
			res, err := check.Judge(context.Background(), tr, check.Options{Parallel: 1})
			require.NoError(t, err)
			worst := spec.Pass
			if ownerDown {
				worst = spec.Inconclusive
				crashed++
			}
			v := &explore.Violation{Trace: tr}
			for _, r := range res.Rules {
				require.LessOrEqual(t, r.Verdict, worst, "%s, seed %d: %s %v\n%s", mode, seed, r.ID, r.Findings, text(v))
				if r.Verdict == spec.Pass {
					judged[r.ID]++
				}
			}
			require.LessOrEqual(t, res.Verdict, worst)
		}
		t.Logf("%s: %d runs, %d with a crashed owner; rules that passed: %v", mode, runs, crashed, judged)
		require.Less(t, crashed, runs/2)
		for _, rule := range []spec.RuleID{spec.BLK4, spec.BLK5, spec.REQ1, spec.REQ2, spec.REQ4, spec.REQ5, spec.SIG1, spec.SIG2, spec.DAT1, spec.DAT2} {
			require.Positive(t, judged[rule], "%s was never exercised", rule)
		}
	}
}
