package harness

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/traces"
)

// What a saved run is judged to be is what the run said of itself, in each part.
func TestSavedRunIsJudgedAsTheRunWas(t *testing.T) {
	for _, c := range []Config{
		{Scenarios: []string{"cancel-during-transfer", "ack-stale", "worker-killed"}},
		{Scenarios: []string{"cancel-during-transfer"}, Modes: []string{"push"}, Defect: "free-at-cancel"},
	} {
		c.OutDir = filepath.Join(t.TempDir(), "run")
		res, err := Run(t.Context(), c)
		require.NoError(t, err)
		for _, want := range res.Scenarios {
			got, man, err := Rejudge(t.Context(), want.Trace, traces.Limits{})
			require.NoError(t, err)
			require.Equal(t, want.Verdict.String(), man.Verdict)
			want.Seconds = 0
			require.Equal(t, want, got)
		}
	}
}

// A run whose stack or harness knew of something that no trace holds is no better
// for being judged again.
func TestSavedRunKeepsItsOwnWord(t *testing.T) {
	dir := oneRun(t)
	man, err := traces.ReadManifest(dir)
	require.NoError(t, err)
	man.Verdict, man.Why = "inconclusive", "3 messages that the proxies could not decode"
	require.NoError(t, traces.WriteManifest(dir, man))
	got, _, err := Rejudge(t.Context(), dir, traces.Limits{})
	require.NoError(t, err)
	require.Equal(t, spec.Inconclusive, got.Verdict)
	require.Contains(t, got.Why, "3 messages")

	man.Plan += "  - name: never\n    when: {signal: NO_SUCH}\n    do: drop\n"
	man.Verdict, man.Why = "pass", ""
	require.NoError(t, traces.WriteManifest(dir, man))
	got, _, err = Rejudge(t.Context(), dir, traces.Limits{})
	require.NoError(t, err)
	require.Equal(t, spec.Inconclusive, got.Verdict)
	require.Equal(t, "rule of the plan that never fired: never", got.Why)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "events", "more.jsonl"), []byte("{}\n"), 0o644))
	got, _, err = Rejudge(t.Context(), dir, traces.Limits{})
	require.NoError(t, err)
	require.Equal(t, spec.Error, got.Verdict)
}

func oneRun(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	res, err := Run(t.Context(), Config{Scenarios: []string{"cancel-during-transfer"}, Modes: []string{"push"}, OutDir: out})
	require.NoError(t, err)
	require.Equal(t, spec.Pass, res.Verdict)
	return res.Scenarios[0].Trace
}

// What was begun is on record, though the run was stopped before.
func TestAttemptsAreWrittenBeforeTheyStart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var once sync.Once
	_, err := Run(ctx, Config{Scenarios: []string{"worker-killed"}, OutDir: out, Jobs: 1, Progress: func(p Progress) {
		if p.Phase == "running" {
			once.Do(func() { time.AfterFunc(20*time.Millisecond, cancel) })
		}
	}})
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(out, AttemptsFile))
	require.NoError(t, err)
	var a Attempts
	require.NoError(t, json.Unmarshal(b, &a))
	require.Equal(t, []string{"worker-killed.push.1", "worker-killed.pull.1"}, a.Attempts)
	require.NoDirExists(t, filepath.Join(out, "worker-killed.pull.1"))
}

func TestManifestTellsNoSecret(t *testing.T) {
	require.Equal(t, []string{"--page-size", "16", "--api-key", withheld, "--host=" + withheld, "--model-path", withheld, "--chat", withheld, withheld},
		disclosedArgs([]string{"--page-size", "16", "--api-key", "k7", "--host=box", "--model-path", "/data/m", "--chat", "a sentence", "10.1.2.3"}))
	require.Equal(t, []string{"SGLANG_X=1", "SGLANG_API_KEY=" + withheld, "HOME=" + withheld, "UCX_TLS=tcp,self", "NIXL_PEER=" + withheld, "UCX_IP=" + withheld},
		disclosedEnv([]string{"SGLANG_X=1", "SGLANG_API_KEY=k7", "HOME=me", "UCX_TLS=tcp,self", "NIXL_PEER=10.1.2.3:80", "UCX_IP=10.1.2.3"}))

	out := filepath.Join(t.TempDir(), "run")
	_, err := Run(t.Context(), Config{Scenarios: []string{"baseline"}, Modes: []string{"push"}, OutDir: out, Env: []string{"MY_TOKEN=hunter2"}})
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(out, "baseline.push.1", "manifest.json"))
	require.NoError(t, err)
	require.NotContains(t, string(b), "hunter2")
	require.Contains(t, string(b), "MY_TOKEN="+withheld)
	require.Positive(t, strings.Count(string(b), `"cores"`))
}
