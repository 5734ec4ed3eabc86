//go:build long

package hunt

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/harness"
	"conform/spec"
)

// predictable are the defects whose race a clean run predicts and hunt confirms up to a
// wrong answer, each in the mode that has it, without being told more than the defect.
var predictable = map[string]string{
	"free-at-cancel":           "push",
	"ack-means-received":       "push",
	"timeout-frees":            "push",
	"silent-peer-is-dead":      "push",
	"first-failure-frees":      "push",
	"reject-known-by-timeout":  "push",
	"stale-ack-accepted":       "push",
	"lease-expires-under-read": "pull",
	"stale-reference-served":   "pull",
	"deadline-across-clocks":   "pull",
	"double-release":           "pull",
}

// TestLongHunt: each is confirmed up to a wrong answer within 60 s, from a run in which
// nothing was found, both modes tried.
func TestLongHunt(t *testing.T) {
	for defect, mode := range predictable {
		t.Run(defect, func(t *testing.T) {
			res, err := Hunt(t.Context(), Config{
				Run: harness.Config{Defect: defect, OutDir: filepath.Join(t.TempDir(), "hunt")}, First: true, Budget: 2 * time.Minute,
			})
			require.NoError(t, err)
			for _, c := range res.Clean {
				require.Less(t, c.Verdict, spec.Fail, "the clean run in mode %s", c.Mode)
			}
			worst := res.Worst()
			require.NotNil(t, worst, "%d predictions, none confirmed", len(res.Hunted))
			require.Equal(t, spec.HarmWrongAnswer, worst.Harm)
			require.Equal(t, mode, worst.Mode)
			t.Logf("%s: %s, %s, in %.0f s: %s, %v", defect, worst.Class, worst.End, worst.Seconds, worst.Harm, worst.Rules)

			again, err := harness.Run(t.Context(), harness.Config{
				Modes: []string{worst.Mode}, Defect: defect, Scenarios: []string{harness.ForcedOrder}, Plan: worst.Plan, Seeds: []uint64{worst.Seed},
				OutDir: filepath.Join(t.TempDir(), "again"),
			})
			require.NoError(t, err)
			require.Equal(t, spec.Fail, again.Verdict, "its plan shows it again")
		})
	}
}

// TestLongHuntOnTheCorrectStack: every end, both modes, and nothing is confirmed.
func TestLongHuntOnTheCorrectStack(t *testing.T) {
	res, err := Hunt(t.Context(), Config{Run: harness.Config{OutDir: filepath.Join(t.TempDir(), "hunt")}, Budget: 10 * time.Minute})
	require.NoError(t, err)
	require.NotEmpty(t, res.Hunted)
	for _, h := range res.Hunted {
		require.NotEqual(t, Confirmed, h.Answer, "%s %s, %s: %s", h.Mode, h.Class, h.End, h.Why)
		require.Empty(t, h.Rules, "%s %s, %s: %s", h.Mode, h.Class, h.End, h.Why)
		require.NotEmpty(t, h.Why)
		if h.Answer == Refuted {
			require.NotEmpty(t, h.Ordered, "what orders it is named")
		}
	}
	t.Logf("%d predictions, %d refuted, %d not forced, %.0f s", len(res.Hunted), res.Count(Refuted), res.Count(NotForced), res.Seconds)
}
