//go:build engines

package harness

import (
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// Requests without faults on real builds of vLLM over NIXL: the newest has no finding, and
// on 0.15.1 a prefill worker that has nothing to do never takes the last reader's word in.
//
//	go test -count=1 -tags engines -run VLLM -v -timeout 20m ./harness
func TestVLLMBaseline(t *testing.T) {
	for _, c := range []struct {
		version string
		verdict spec.Verdict
		leak    int
	}{{"0.32.0", spec.Pass, 0}, {"0.15.1", spec.Fail, 1}} {
		t.Run(c.version, func(t *testing.T) {
			res, err := Run(t.Context(), Config{
				Adapter: "vllm", Engine: c.version, Modes: []string{"nixl"}, Scenarios: []string{"baseline"}, OutDir: t.TempDir(),
			})
			skipWithoutBuild(t, err)
			require.NoError(t, err)
			s := res.Scenarios[0]
			t.Logf("%s: %v in %.0f s", c.version, s.Verdict, s.Seconds)
			require.Empty(t, s.Why)
			require.Equal(t, c.verdict, s.Verdict)
			for _, id := range []spec.RuleID{spec.BLK1, spec.BLK2, spec.BLK3, spec.BLK4, spec.SIG1, spec.SIG2, spec.SIG3, spec.DAT2} {
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
