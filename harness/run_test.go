package harness

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/reference"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// The main job: every scenario in every mode, on real processes, passes on the
// correct stack, reaches its branches and exercises every rule that is judged.
func TestRunOfTheCorrectStackPasses(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	var mu sync.Mutex
	finished := 0
	res, err := Run(t.Context(), Config{OutDir: out, Progress: func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Finished {
			finished++
		}
	}})
	require.NoError(t, err)
	for _, s := range res.Scenarios {
		require.Equal(t, spec.Pass, s.Verdict, "%s %s: %s%s", s.ID, s.Mode, s.Why, findingsOf(s))
		require.NotEmpty(t, s.Branches)
		for _, b := range s.Branches {
			require.True(t, b.Reached, "%s %s: %s", s.ID, s.Mode, b.Name)
		}
		for _, f := range s.Faults {
			require.Positive(t, f.Fired, "%s %s: %s", s.ID, s.Mode, f.Rule)
		}
		require.Positive(t, s.Stats.Reused, s.ID)
	}
	require.Equal(t, spec.Pass, res.Verdict)
	require.Equal(t, len(res.Scenarios), finished)
	for _, r := range res.Rules {
		require.Equal(t, spec.Pass, r.Verdict, r.ID)
		require.Positive(t, r.Judged, r.ID)
	}
}

func findingsOf(s ScenarioResult) string {
	text := ""
	for _, r := range s.Rules {
		for _, f := range r.Findings[:min(3, len(r.Findings))] {
			text += "\n" + string(r.ID) + ": " + f.Text
		}
	}
	return text
}

// Each defect is found by every rule that must catch it; the long trials do the same
// over many seeds. And each judge is needed for that: without it, a defect that it must
// catch is missed.
func TestRunFindsEachDefect(t *testing.T) {
	var mu sync.Mutex
	missed := map[spec.RuleID]string{}
	t.Run("defects", func(t *testing.T) { findEachDefect(t, &mu, missed) })
	for _, rule := range spec.Rules() {
		require.NotEmpty(t, missed[rule.ID], "no defect is missed without the judge of %s", rule.ID)
	}
}

func findEachDefect(t *testing.T, mu *sync.Mutex, missed map[spec.RuleID]string) {
	for _, d := range reference.Defects() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Defect: d.Name, Scenarios: d.Scenarios[:1], OutDir: filepath.Join(t.TempDir(), "run"), Jobs: 1}
			if d.Mode != "" {
				cfg.Modes = []string{d.Mode}
			}
			res, err := Run(t.Context(), cfg)
			require.NoError(t, err)
			for _, s := range res.Scenarios {
				require.Contains(t, []spec.Verdict{spec.Fail, spec.Unproven}, s.Verdict, "%s %s: %s", s.ID, s.Mode, s.Why)
				found := map[spec.RuleID]int{}
				for _, r := range s.Rules {
					found[r.ID] = len(r.Findings)
				}
				tr, err := traces.Read(s.Trace, nil)
				require.NoError(t, err)
				for _, rule := range d.Rules {
					require.Positive(t, found[rule], "%s %s: %s: %v", s.ID, s.Mode, rule, found)
					got, err := check.Judge(t.Context(), tr, check.Options{Without: rule})
					require.NoError(t, err)
					require.False(t, hasFinding(ScenarioResult{Rules: got.Rules}, rule), "judged without %s", rule)
					mu.Lock()
					missed[rule] = d.Name
					mu.Unlock()
				}
			}
		})
	}
}

func hasFinding(s ScenarioResult, id spec.RuleID) bool {
	for _, r := range s.Rules {
		if r.ID == id {
			return len(r.Findings) > 0
		}
	}
	return false
}

// What is reported is what a reader of the saved trace finds.
func TestSavedTraceGivesTheSameVerdict(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	res, err := Run(t.Context(), Config{Scenarios: []string{"cancel-during-transfer"}, Defect: "free-at-cancel", Modes: []string{"push"}, OutDir: out})
	require.NoError(t, err)
	s := res.Scenarios[0]
	tr, err := traces.Read(s.Trace, nil)
	require.NoError(t, err)
	again, err := check.Judge(t.Context(), tr, check.Options{})
	require.NoError(t, err)
	require.Equal(t, s.Verdict, again.Verdict)
	check.Sign(again.Rules, "reference", "cancel-during-transfer", "push")
	require.Equal(t, s.Rules, again.Rules, "the fingerprints too")
	m, err := traces.ReadManifest(s.Trace)
	require.NoError(t, err)
	require.Equal(t, "free-at-cancel", m.Defect)
	require.Equal(t, uint64(1), m.Seed)
	require.NotEmpty(t, m.Plan)
	require.NotEmpty(t, m.Files)
	require.False(t, m.End.IsZero())
}

// A run that is asked to stop ends its workers and keeps its traces.
func TestInterruptedRunKeepsItsTraces(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var once sync.Once
	res, err := Run(ctx, Config{Scenarios: []string{"worker-killed"}, OutDir: out, Jobs: 1, Progress: func(p Progress) {
		if p.Phase == "running" {
			once.Do(func() { time.AfterFunc(60*time.Millisecond, cancel) })
		}
	}})
	require.NoError(t, err)
	require.True(t, res.Interrupted)
	require.Len(t, res.Scenarios, 1, "the second mode was not begun")
	require.NotEqual(t, spec.Pass, res.Verdict)
	tr, err := traces.Read(res.Scenarios[0].Trace, nil)
	require.NoError(t, err)
	sealed := 0
	for _, e := range tr.Events {
		if e.K == spec.KindSeal {
			sealed++
		}
	}
	require.GreaterOrEqual(t, sealed, 2, "what the harness recorded itself ended in good order")
}

// Whenever a run is stopped, what the stop cut short is no fault of the stack.
func TestInterruptIsNeverAFailure(t *testing.T) {
	for i := range 6 {
		out := filepath.Join(t.TempDir(), "run")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(60+70*i)*time.Millisecond, cancel)
		res, err := Run(ctx, Config{Scenarios: []string{"cancel-during-transfer", "peer-silent"}, OutDir: out})
		cancel()
		require.NoError(t, err)
		for _, s := range res.Scenarios {
			require.NotEqual(t, spec.Fail, s.Verdict, "%s %s, stopped after %d ms: %s", s.ID, s.Mode, 60+70*i, findingsOf(s))
		}
	}
}

// A plan that does nothing would make a run of no faults look like one of many.
func TestEmptyPlanIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty.yaml": "", "none.yaml": "rules: []\n"} {
		plan := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(plan, []byte(text), 0o600))
		_, err := Run(t.Context(), Config{Scenarios: []string{"baseline"}, Plan: plan, OutDir: filepath.Join(dir, "run")})
		require.Error(t, err, name)
	}
}

// A client's retry, or a leg that comes twice, must not run a request twice.
func TestDuplicatedRequestsChangeNothing(t *testing.T) {
	for _, way := range [][2]string{{"client", "router"}, {"router", "prefill"}, {"router", "decode"}} {
		from, to := way[0], way[1]
		dir := t.TempDir()
		plan := filepath.Join(dir, "plan.yaml")
		text := "rules:\n  - name: twice\n    when: {http: POST /generate, from: " + from + ", to: " + to + ", nth: 5, every: 5}\n    do: duplicate\n    for: 2ms\n"
		require.NoError(t, os.WriteFile(plan, []byte(text), 0o600))
		res, err := Run(t.Context(), Config{Scenarios: []string{"baseline"}, Plan: plan, OutDir: filepath.Join(dir, "run")})
		require.NoError(t, err)
		for _, s := range res.Scenarios {
			require.Equal(t, spec.Pass, s.Verdict, "%s to %s, %s: %s%s", from, to, s.Mode, s.Why, findingsOf(s))
		}
	}
}

// A plan of one's own replaces the scenario's; a rule that never fires shows.
func TestRuleThatNeverFiresMakesTheScenarioInconclusive(t *testing.T) {
	dir := t.TempDir()
	plan := filepath.Join(dir, "plan.yaml")
	require.NoError(t, os.WriteFile(plan, []byte("rules:\n  - name: never\n    when: {signal: NO_SUCH}\n    do: drop\n"), 0o600))
	res, err := Run(t.Context(), Config{Scenarios: []string{"baseline"}, Modes: []string{"push"}, Plan: plan, OutDir: filepath.Join(dir, "run")})
	require.NoError(t, err)
	require.Equal(t, spec.Inconclusive, res.Verdict)
	require.Contains(t, res.Scenarios[0].Why, "never fired: never")
}

func TestDryRunStartsNothing(t *testing.T) {
	dir := t.TempDir()
	text, err := DryRun(t.Context(), Config{Scenarios: []string{"lease-expiry"}, OutDir: filepath.Join(dir, "run")})
	require.NoError(t, err)
	require.Contains(t, text, "lose-the-heartbeats")
	require.Contains(t, text, "CONFORM_REFERENCE_WORKER=")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestDoctorFindsThisMachineReady(t *testing.T) {
	for _, c := range Doctor(t.Context()) {
		require.NotEmpty(t, c.Found, c.Name)
		if c.Optional == "" {
			require.True(t, c.OK, "%s: %s", c.Name, c.Found)
		}
	}
}
