//go:build engines

package harness

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
)

// What takes too long for every change runs at night:
//
//	CONFORM_NIGHTLY=1 go test -count=1 -tags engines -run SGLangNightly -v -timeout 60m ./harness

func nightly(t *testing.T) {
	t.Helper()
	if os.Getenv("CONFORM_NIGHTLY") == "" {
		t.Skip("CONFORM_NIGHTLY is not set")
	}
}

const holdOff = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=0"

// The clock that ends a hold runs out before the transfer has ended.
func TestSGLangNightlyHoldTimeout(t *testing.T) {
	nightly(t)
	for _, connector := range []string{"mooncake", "nixl"} {
		for _, s := range drive(t, "0.5.23", connector, "hold-timeout", 3) {
			require.Equal(t, spec.Unproven, ruleOf(t, s, spec.REQ2).Verdict, "%s, seed %d: a clock proves nothing", connector, s.Seed)
			requireStaleWrite(t, s)
		}
	}
}

// requireStaleWrite requires that a write landed in decode's pages after they had been
// given to the bystander, and that its answer shows it.
func requireStaleWrite(t *testing.T, s ScenarioResult) {
	t.Helper()
	for _, id := range []spec.RuleID{spec.BLK2, spec.BLK3} {
		require.Equal(t, spec.Fail, ruleOf(t, s, id).Verdict, "%s, seed %d", id, s.Seed)
		require.Positive(t, atDecode(ruleOf(t, s, id)), "%s, seed %d", id, s.Seed)
	}
	require.Equal(t, spec.Fail, ruleOf(t, s, spec.DAT2).Verdict, "the bystander's answer, seed %d", s.Seed)
}

// NIXL shows what Mooncake shows: red without the hold, green with it. Without the hold
// its prefill acknowledges no abort at all, so that nothing comes before the release that
// could be taken for an acknowledgement: it happens on nobody's word.
func TestSGLangNightlyNIXLRed(t *testing.T) {
	nightly(t)
	for _, s := range driveAnyhow(t, "0.5.23", "nixl", "cancel-during-transfer", 5, holdOff) {
		require.Equal(t, "never reached: an abort was acknowledged", s.Why)
		requireStaleWrite(t, s)
		require.Equal(t, spec.Unproven, ruleOf(t, s, spec.SIG2).Verdict, "seed %d", s.Seed)
		require.False(t, slices.ContainsFunc(s.Signals, func(r check.SignalResult) bool {
			return strings.HasPrefix(r.Signal, "ABORT_ACK")
		}), "seed %d: %v", s.Seed, s.Signals)
		require.True(t, slices.ContainsFunc(s.Settled, func(r check.SettledResult) bool {
			return r.Worker == "decode-0" && r.How == "cancel" && r.By == "" && r.Evidence == "" && r.Holds > 0
		}), "seed %d: on nobody's word: %v", s.Seed, s.Settled)
	}
}

func TestSGLangNightlyNIXLGreen(t *testing.T) {
	nightly(t)
	for _, s := range drive(t, "0.5.23", "nixl", "cancel-during-transfer", 5) {
		for _, r := range s.Rules {
			require.Zero(t, atDecode(r), "%s, seed %d: %v", r.ID, s.Seed, r.Findings)
		}
		require.Equal(t, spec.Pass, ruleOf(t, s, spec.DAT2).Verdict, "seed %d", s.Seed)
		require.Equal(t, spec.ClaimsDrained, heldBy(t, s, "ABORT_ACK/4"), "seed %d", s.Seed)
	}
}

// Prefill's own pages, while its transfer thread still reads them: public issue 38961, point 6.
func TestSGLangNightlySourceReuse(t *testing.T) {
	nightly(t)
	for _, s := range drive(t, "0.5.23", "mooncake", "source-reuse", 3) {
		for _, id := range []spec.RuleID{spec.BLK2, spec.BLK3} {
			r := ruleOf(t, s, id)
			require.Equal(t, spec.Fail, r.Verdict, "%s, seed %d", id, s.Seed)
			require.Zero(t, atDecode(r), "%s, seed %d", id, s.Seed)
			for _, f := range r.Findings {
				require.Equal(t, "prefill-0", f.Block.Worker)
				require.GreaterOrEqual(t, len(f.Events), 2, "the events that prove it: %s", f.Text)
			}
		}
	}
}

// Without faults there is nothing to find, and every answer is right.
func TestSGLangNightlyMixedLoad(t *testing.T) {
	nightly(t)
	for _, connector := range []string{"mooncake", "nixl"} {
		for _, s := range drive(t, "0.5.23", connector, "mixed-load", 1) {
			require.Equal(t, spec.Pass, s.Verdict, connector)
			answers := ruleOf(t, s, spec.DAT2)
			require.Equal(t, spec.Pass, answers.Verdict, connector)
			require.Equal(t, 300, answers.Judged, connector)
			t.Logf("%s: %d accesses, %d answers as expected", connector, s.Stats.Accesses, answers.Judged)
		}
	}
}

// suite is what a nightly runs on one version.
var suite = []string{
	"baseline", "cancel-during-transfer", "ack-delayed", "ack-lost", "cancel-before-grant", "reject-prefill-capacity",
	"reject-decode-capacity", "client-disconnect", "source-reuse", "hold-timeout",
}

// BenchmarkSGLangSuite takes the time of ten scenarios on one version.
//
//	go test -tags engines -run - -bench SGLangSuite -benchtime 1x -timeout 30m ./harness
func BenchmarkSGLangSuite(b *testing.B) {
	for b.Loop() {
		cfg := Config{Adapter: "sglang", Engine: "0.5.23", Modes: []string{"mooncake"}, Scenarios: suite, Seeds: []uint64{1}, OutDir: b.TempDir()}
		res, err := Run(context.Background(), cfg)
		skipWithoutBuild(b, err)
		require.NoError(b, err)
		require.Len(b, res.Scenarios, len(suite))
		var bad []string
		for _, s := range res.Scenarios {
			if s.Verdict == spec.Error {
				bad = append(bad, s.ID+": "+s.Why)
			}
		}
		require.Empty(b, bad, strings.Join(bad, "\n"))
	}
}
