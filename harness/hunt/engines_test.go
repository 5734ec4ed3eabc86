//go:build engines

package hunt

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines"
	"conform/harness"
	"conform/spec"
)

// Real builds, from one clean run each. Each test skips where its build is not installed.
//
//	go test -count=1 -tags engines -run SGLang -v -timeout 20m ./harness/hunt

func huntSGLang(t *testing.T, cfg Config) *Result {
	t.Helper()
	cfg.Run.Adapter, cfg.Run.Engine, cfg.Run.Modes, cfg.Run.OutDir = "sglang", "0.5.23", []string{"mooncake"}, filepath.Join(t.TempDir(), "hunt")
	cfg.Budget = 4 * time.Minute
	res, err := Hunt(t.Context(), cfg)
	if _, missing := errors.AsType[*engines.NotInstalledError](err); missing {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.Len(t, res.Clean, 1)
	require.Equal(t, spec.Pass, res.Clean[0].Verdict, "the run that it was predicted from is clean")
	for _, h := range res.Hunted {
		t.Logf("%s, %s: %s in %.0f s: %s %v %s", h.Class, h.End, h.Answer, h.Seconds, h.Harm, h.Rules, h.Why)
	}
	return res
}

// Decode's pages, without the deferred release: confirmed up to another request's answer.
func TestSGLangDecodePages(t *testing.T) {
	res := huntSGLang(t, Config{Run: harness.Config{Env: []string{"SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=0"}}, First: true})
	worst := res.Worst()
	require.NotNil(t, worst)
	require.Equal(t, spec.HarmWrongAnswer, worst.Harm)
	require.Equal(t, Class{By: "prefill", Owner: "decode", Pool: "kv", Mode: "w"}, worst.Class)
}

// The defaults: prefill's source pages are confirmed, decode's pages are refuted by the
// acknowledgement.
func TestSGLangSourcePages(t *testing.T) {
	res := huntSGLang(t, Config{Ends: []string{"abort"}})
	of := func(c Class) Hunted {
		i := slices.IndexFunc(res.Hunted, func(h Hunted) bool { return h.Class == c })
		require.GreaterOrEqual(t, i, 0, "%s was not predicted", c)
		return res.Hunted[i]
	}
	source := of(Class{By: "prefill", Owner: "prefill", Pool: "kv", Mode: "r", Own: true})
	require.Equal(t, Confirmed, source.Answer)
	require.GreaterOrEqual(t, source.Harm.Rank(), spec.HarmReclaimedOpen.Rank())
	pages := of(Class{By: "prefill", Owner: "decode", Pool: "kv", Mode: "w"})
	require.NotEqual(t, Confirmed, pages.Answer)
	require.Contains(t, pages.Ordered, "ABORT_ACK/4")
}
