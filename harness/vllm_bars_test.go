//go:build engines

package harness

import (
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// vLLM over NIXL on real builds: red on those that have a public bug, green on those that
// mended it. Each test skips where its build is not installed.
//
//	go test -count=1 -tags engines -run VLLM -v -timeout 40m ./harness

// driveVLLM runs one scenario on one build of vLLM, as often as there are seeds, and gives
// the runs: each reached all that the scenario exists for.
func driveVLLM(t *testing.T, version, scenario string, seeds int) []ScenarioResult {
	t.Helper()
	cfg := Config{Adapter: "vllm", Engine: version, Modes: []string{"nixl"}, Scenarios: []string{scenario}, OutDir: t.TempDir()}
	for i := range seeds {
		cfg.Seeds = append(cfg.Seeds, uint64(i+1))
	}
	res, err := Run(t.Context(), cfg)
	skipWithoutBuild(t, err)
	require.NoError(t, err)
	for _, s := range res.Scenarios {
		t.Logf("%s %s seed %d: %v in %.0f s %s", version, scenario, s.Seed, s.Verdict, s.Seconds, s.Why)
		require.NotEqual(t, spec.Error, s.Verdict)
		require.Empty(t, s.Why, "seed %d", s.Seed)
	}
	return res.Scenarios
}

// Requests without faults: the newest build has no finding, and on 0.15.1 a prefill worker
// that has nothing to do never takes the last reader's word in.
func TestVLLMBaseline(t *testing.T) {
	for _, c := range []struct {
		version string
		verdict spec.Verdict
		leak    int
	}{{"0.32.0", spec.Pass, 0}, {"0.15.1", spec.Fail, 1}} {
		t.Run(c.version, func(t *testing.T) {
			s := driveVLLM(t, c.version, "baseline", 1)[0]
			require.Equal(t, c.verdict, s.Verdict)
			for _, id := range []spec.RuleID{
				spec.BLK1, spec.BLK2, spec.BLK3, spec.BLK4, spec.SIG1, spec.SIG2, spec.SIG3, spec.DAT1, spec.DAT2,
			} {
				require.Equal(t, spec.Pass, ruleOf(t, s, id).Verdict, id)
			}
			leaks := ruleOf(t, s, spec.BLK5).Findings
			require.Equal(t, c.leak > 0, len(leaks) > 0)
			for _, f := range leaks {
				require.Equal(t, "prefill-0", f.Block.Worker, f.Text)
			}
		})
	}
}

// 0.15.1 gives the blocks of a cancelled request back while its read runs, or waits to be
// posted; the next tenants' answers are wrong (public issue 32255).
func TestVLLMCancelledReadRed(t *testing.T) {
	for _, s := range driveVLLM(t, "0.15.1", "cancel-during-transfer", 5) {
		for _, id := range []spec.RuleID{spec.BLK2, spec.BLK3} {
			require.Equal(t, spec.Fail, ruleOf(t, s, id).Verdict, "%s, seed %d", id, s.Seed)
			require.Positive(t, atDecode(ruleOf(t, s, id)), "%s, seed %d", id, s.Seed)
		}
		require.Equal(t, spec.Fail, ruleOf(t, s, spec.DAT2).Verdict, "a bystander's answer, seed %d", s.Seed)
	}
}

// What followed keeps them until the read is over.
func TestVLLMCancelledReadGreen(t *testing.T) {
	for _, version := range []string{"0.16.0", "0.32.0"} {
		t.Run(version, func(t *testing.T) {
			for _, s := range driveVLLM(t, version, "cancel-during-transfer", 5) {
				for _, id := range []spec.RuleID{spec.BLK2, spec.BLK3} {
					require.Zero(t, atDecode(ruleOf(t, s, id)), "%s, seed %d: %v", id, s.Seed, ruleOf(t, s, id).Findings)
				}
				require.Equal(t, spec.Pass, ruleOf(t, s, spec.DAT2).Verdict, "seed %d", s.Seed)
			}
		})
	}
}

// A reference that outlived its lease is used: others' blocks are read, the answer is wrong,
// and the client is told that all went well (public issue 52234).
func TestVLLMStaleReference(t *testing.T) {
	requireStale(t, driveVLLM(t, "0.32.0", "reference-stale", 1)[0])
}

func requireStale(t *testing.T, s ScenarioResult) {
	t.Helper()
	for _, id := range []spec.RuleID{spec.BLK3, spec.DAT1, spec.DAT2, spec.REQ4} {
		require.Equal(t, spec.Fail, ruleOf(t, s, id).Verdict, id)
	}
	require.Contains(t, ruleOf(t, s, spec.REQ4).Findings[0].Text, "status 200")
}

// The same story where the reader was stopped for longer than its lease, and none where
// the lease was the longer of the two.
func TestVLLMFrozenReader(t *testing.T) {
	requireStale(t, driveVLLM(t, "0.32.0", "reader-frozen", 1)[0])
	require.Equal(t, spec.Pass, driveVLLM(t, "0.32.0", "reader-frozen-briefly", 1)[0].Verdict)
}

// What comes back by a clock, without any word of a reader, is never a pass.
func TestVLLMNobodyReads(t *testing.T) {
	for _, version := range []string{"0.16.0", "0.32.0"} {
		t.Run(version, func(t *testing.T) {
			s := driveVLLM(t, version, "nobody-reads", 1)[0]
			require.GreaterOrEqual(t, s.Verdict, spec.Unproven)
			require.GreaterOrEqual(t, ruleOf(t, s, spec.SIG2).Verdict, spec.Unproven)
		})
	}
}

// driveMooncake runs one scenario on 0.32.0 over Mooncake.
func driveMooncake(t *testing.T, scenario string) ScenarioResult {
	t.Helper()
	res, err := Run(t.Context(), Config{
		Adapter: "vllm", Engine: "0.32.0", Modes: []string{"mooncake"}, Scenarios: []string{scenario}, OutDir: t.TempDir(),
	})
	skipWithoutBuild(t, err)
	require.NoError(t, err)
	s := res.Scenarios[0]
	t.Logf("%s: %v in %.0f s", scenario, s.Verdict, s.Seconds)
	require.Empty(t, s.Why)
	return s
}

// Over Mooncake, decode waits for a write without a clock of its own: where prefill never
// heard of the request, or died, the blocks of a client that has left stay held.
func TestVLLMMooncakeAbsentPrefill(t *testing.T) {
	for _, scenario := range []string{"prefill-absent", "worker-killed"} {
		s := driveMooncake(t, scenario)
		require.Positive(t, atDecode(ruleOf(t, s, spec.BLK5)), scenario)
		require.Equal(t, spec.Fail, ruleOf(t, s, spec.REQ2).Verdict, scenario)
		require.Equal(t, spec.Pass, ruleOf(t, s, spec.DAT2).Verdict, scenario)
	}
}

// What prefill writes late goes to blocks that decode has kept for it.
func TestVLLMMooncakeLatePrefill(t *testing.T) {
	s := driveMooncake(t, "prefill-late")
	for _, r := range s.Rules {
		require.Zero(t, atDecode(r), "%s: %v", r.ID, r.Findings)
	}
}

// 300 requests without faults: nothing is found, and the answers are right.
func TestVLLMMooncakeMixedLoad(t *testing.T) {
	s := driveMooncake(t, "mixed-load")
	require.Equal(t, spec.Pass, s.Verdict)
	require.Equal(t, spec.ClaimsDrained, heldBy(t, s, "FINISH"))
}
