//go:build engines

package harness

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines"
	"conform/spec"
	"conform/spec/check"
)

// The incident on real builds: red on those that had it, green on the one that fixed
// it. Each test skips where its build is not installed.
//
//	go test -count=1 -tags engines -run SGLang -v -timeout 40m ./harness

// drive runs one scenario on one build of SGLang, as often as there are seeds, and gives
// the runs: each reached all that the scenario exists for.
func drive(t *testing.T, version, connector, scenario string, seeds int, env ...string) []ScenarioResult {
	t.Helper()
	runs := driveAnyhow(t, version, connector, scenario, seeds, env...)
	for _, s := range runs {
		require.Empty(t, s.Why, "seed %d", s.Seed)
	}
	return runs
}

// driveAnyhow is drive for a stack that can't reach everything.
func driveAnyhow(t *testing.T, version, connector, scenario string, seeds int, env ...string) []ScenarioResult {
	t.Helper()
	cfg := Config{
		Adapter: "sglang", Engine: version, Modes: []string{connector}, Scenarios: []string{scenario},
		OutDir: t.TempDir(), Env: env,
	}
	for i := range seeds {
		cfg.Seeds = append(cfg.Seeds, uint64(i+1))
	}
	res, err := Run(context.Background(), cfg)
	skipWithoutBuild(t, err)
	require.NoError(t, err)
	for _, s := range res.Scenarios {
		require.NotEqual(t, spec.Error, s.Verdict, "%s seed %d: %s", scenario, s.Seed, s.Why)
		t.Logf("%s %s %s seed %d: %v in %.0f s", version, connector, scenario, s.Seed, s.Verdict, s.Seconds)
	}
	return res.Scenarios
}

func skipWithoutBuild(t testing.TB, err error) {
	t.Helper()
	if _, missing := errors.AsType[*engines.NotInstalledError](err); missing {
		t.Skip(err)
	}
}

func ruleOf(t *testing.T, s ScenarioResult, id spec.RuleID) check.RuleResult {
	t.Helper()
	i := slices.IndexFunc(s.Rules, func(r check.RuleResult) bool { return r.ID == id })
	require.GreaterOrEqual(t, i, 0)
	return s.Rules[i]
}

func heldBy(t *testing.T, s ScenarioResult, signal string) spec.Predicate {
	t.Helper()
	i := slices.IndexFunc(s.Signals, func(r check.SignalResult) bool { return r.Signal == signal })
	require.GreaterOrEqual(t, i, 0, "no %s was seen", signal)
	return s.Signals[i].Inferred
}

// atDecode are a rule's findings about blocks of a decode worker.
func atDecode(r check.RuleResult) int {
	n := 0
	for _, f := range r.Findings {
		if f.Block != nil && f.Block.Worker == "decode-0" {
			n++
		}
	}
	return n
}

func TestSGLangCancelDuringTransferRed(t *testing.T) {
	for _, c := range []struct {
		version string
		env     []string
	}{{"0.5.20", nil}, {"0.5.23", []string{holdOff}}} {
		for _, s := range drive(t, c.version, "mooncake", "cancel-during-transfer", 5, c.env...) {
			for _, id := range []spec.RuleID{spec.BLK2, spec.BLK3} {
				require.Equal(t, spec.Fail, ruleOf(t, s, id).Verdict, "%s on %s, seed %d", id, c.version, s.Seed)
				require.Positive(t, atDecode(ruleOf(t, s, id)), "%s on %s, seed %d", id, c.version, s.Seed)
			}
			require.Equal(t, spec.Fail, ruleOf(t, s, spec.DAT2).Verdict, "the bystander's answer on %s, seed %d", c.version, s.Seed)
			require.Equal(t, spec.ClaimsReceived, heldBy(t, s, "ABORT_ACK/2"), "%s, seed %d", c.version, s.Seed)
		}
	}
}

func TestSGLangCancelDuringTransferGreen(t *testing.T) {
	for _, s := range drive(t, "0.5.23", "mooncake", "cancel-during-transfer", 5) {
		for _, r := range s.Rules {
			require.Zero(t, atDecode(r), "%s, seed %d: %v", r.ID, s.Seed, r.Findings)
		}
		require.Equal(t, spec.Pass, ruleOf(t, s, spec.DAT2).Verdict, "seed %d", s.Seed)
		require.Equal(t, spec.ClaimsDrained, heldBy(t, s, "ABORT_ACK/4"), "seed %d", s.Seed)
	}
}

func TestSGLangPrefillCapacity(t *testing.T) {
	for _, s := range drive(t, "0.5.18", "mooncake", "reject-prefill-capacity", 1) {
		require.Equal(t, spec.Fail, ruleOf(t, s, spec.REQ1).Verdict)
		require.Equal(t, spec.Fail, ruleOf(t, s, spec.DAT2).Verdict, "the answer follows the previous tenant")
	}
	for _, s := range drive(t, "0.5.20", "mooncake", "reject-prefill-capacity", 1) {
		require.Equal(t, spec.Fail, ruleOf(t, s, spec.REQ1).Verdict, "the stub is admitted and computed")
	}
	for _, s := range drive(t, "0.5.23", "mooncake", "reject-prefill-capacity", 1) {
		require.Less(t, ruleOf(t, s, spec.REQ1).Verdict, spec.Inconclusive)
		require.NotEqual(t, spec.NotJudged, ruleOf(t, s, spec.REQ2).Verdict, "how decode's reservation ended is judged")
	}
}
