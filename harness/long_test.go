//go:build long

package harness

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/reference"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// The long trials show what a single run can't. CI runs them with
// go test -tags long -run Long ./harness/; the numbers of trials can be lowered
// by the environment for a quick look.
func trials(t *testing.T, name string, n int) int {
	t.Helper()
	if s := os.Getenv(name); s != "" {
		v, err := strconv.Atoi(s)
		require.NoError(t, err, name)
		return v
	}
	return n
}

func seeds(n int) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = uint64(i + 1)
	}
	return s
}

// TestLongCorrectStackPasses: the correct stack passes every scenario of each mode
// with each of the seeds, more than 500 runs in all.
func TestLongCorrectStackPasses(t *testing.T) {
	n := trials(t, "CONFORM_LONG_SEEDS", 15)
	for _, mode := range referenceInfo.Modes {
		t.Run(mode, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			res, err := Run(t.Context(), Config{Modes: []string{mode}, Seeds: seeds(n), OutDir: out, Jobs: 4})
			require.NoError(t, err)
			passed := 0
			for _, s := range res.Scenarios {
				if s.Verdict == spec.Pass {
					passed++
					continue
				}
				t.Errorf("%s seed %d: %v: %s%s", s.ID, s.Seed, s.Verdict, s.Why, firstFindings(s))
			}
			t.Logf("%s: %d of %d scenario runs passed, %d seeds, %.0f s", mode, passed, len(res.Scenarios), n, res.Seconds)
		})
	}
}

func firstFindings(s ScenarioResult) string {
	text := ""
	for _, r := range s.Rules {
		if r.Verdict > spec.Pass {
			text += fmt.Sprintf("\n  %s %v", r.ID, r.Verdict)
			for _, f := range r.Findings[:min(2, len(r.Findings))] {
				text += "\n    " + f.Text
			}
		}
	}
	return text
}

// TestLongDefectsAreFound: each defect is found by each of its rules in a scenario that
// forces it, 20 of 20 seeds, in each mode that it has.
func TestLongDefectsAreFound(t *testing.T) {
	n := trials(t, "CONFORM_LONG_DEFECT_SEEDS", 20)
	for _, d := range reference.Defects() {
		t.Run(d.Name, func(t *testing.T) {
			scenario, _ := ScenarioByID(d.Scenarios[0])
			modes := scenario.Modes(referenceInfo)
			if d.Mode != "" {
				modes = []string{d.Mode}
			}
			out := filepath.Join(t.TempDir(), "run")
			res, err := Run(t.Context(), Config{
				Defect: d.Name, Scenarios: d.Scenarios[:1], Modes: modes, Seeds: seeds(n), OutDir: out, Jobs: 6,
			})
			require.NoError(t, err)
			found := 0
			for _, s := range res.Scenarios {
				if s.Verdict != spec.Fail && s.Verdict != spec.Unproven {
					t.Errorf("%s %s seed %d: verdict %v: %s", s.ID, s.Mode, s.Seed, s.Verdict, s.Why)
				} else if i := slices.IndexFunc(d.Rules, func(rule spec.RuleID) bool { return !hasFinding(s, rule) }); i >= 0 {
					t.Errorf("%s %s seed %d: no finding of %s%s", s.ID, s.Mode, s.Seed, d.Rules[i], firstFindings(s))
				} else {
					found++
				}
			}
			t.Logf("%s: found by %v in %d of %d runs, %.0f s", d.Name, d.Rules, found, len(res.Scenarios), res.Seconds)
			record(t, d, res)
		})
	}
}

// TestLongKilledRunIsStillJudged: a run that is killed at a random moment leaves
// traces that are judged, and the one that was cut short is inconclusive and says
// where it ends, 20 of 20 times.
func TestLongKilledRunIsStillJudged(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "conform")
	build := exec.Command("go", "build", "-o", bin, "conform/cmd/conform")
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	want, cut := trials(t, "CONFORM_LONG_KILLS", 20), 0
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; cut < want; i++ {
		require.Less(t, i, 3*want, "the kills keep missing the run")
		out := filepath.Join(t.TempDir(), "run")
		cmd := exec.Command(bin, "run", "--scenario", "cancel-during-transfer,worker-killed", "--jobs", "2", "--seed", strconv.Itoa(i+1), "--out", out)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { // once there is a trace
			m, _ := filepath.Glob(filepath.Join(out, "*", "events", "prefill-0.jsonl.zst"))
			return len(m) > 0
		}, 20*time.Second, 2*time.Millisecond)
		time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		awaitQuiet(t, out)
		if killedRunIsJudged(t, out, i) {
			cut++
		}
	}
	t.Logf("%d of %d killed runs were judged inconclusive", cut, want)
}

// killedRunIsJudged judges each trace of a killed run and reports whether one had
// been cut short.
func killedRunIsJudged(t *testing.T, out string, i int) (cut bool) {
	t.Helper()
	manifests, err := filepath.Glob(filepath.Join(out, "*", "manifest.json")) // attempts.json lies beside the run directories
	require.NoError(t, err)
	require.NotEmpty(t, manifests, "kill %d left no run directory", i)
	for _, manifest := range manifests {
		dir := filepath.Dir(manifest)
		m, err := traces.ReadManifest(dir)
		require.NoError(t, err, "kill %d", i)
		if files, _ := filepath.Glob(filepath.Join(dir, "events", "*")); len(files) == 0 {
			continue // killed before its first line
		}
		tr, err := traces.Read(dir, nil)
		require.NoError(t, err, "kill %d", i)
		res, err := check.Judge(t.Context(), tr, check.Options{})
		require.NoError(t, err, "kill %d", i)
		if !m.End.IsZero() {
			require.Equal(t, spec.Pass, res.Verdict, "kill %d, ended before it: %v", i, res.Notes)
			continue
		}
		cut = true
		require.Equal(t, spec.Inconclusive, res.Verdict, "kill %d: %v", i, res.Notes)
		require.NotEmpty(t, res.Notes, "kill %d: nothing says where the trace ends", i)
	}
	return cut
}

// awaitQuiet waits until no orphan writes the trace any more.
func awaitQuiet(t *testing.T, dir string) {
	t.Helper()
	size := func() (n int64) {
		files, err := filepath.Glob(filepath.Join(dir, "*", "events", "*"))
		require.NoError(t, err)
		for _, f := range files {
			if st, err := os.Stat(f); err == nil {
				n += st.Size()
			}
		}
		return n
	}
	last, since := size(), time.Now()
	for time.Since(since) < 300*time.Millisecond {
		time.Sleep(20 * time.Millisecond)
		if n := size(); n != last {
			last, since = n, time.Now()
		}
	}
}

// record adds what a defect's runs have shown to the track record, where the
// environment names a folder for it: a file a defect and mode, as harness/track holds them.
func record(t *testing.T, d reference.Defect, res *RunResult) {
	t.Helper()
	dir := os.Getenv("CONFORM_TRACK_RECORD")
	if dir == "" {
		return
	}
	byMode := map[string][]ScenarioResult{}
	for _, s := range res.Scenarios {
		byMode[s.Mode] = append(byMode[s.Mode], s)
	}
	for mode, runs := range byMode {
		row := Found{Defect: d.Name, Scenario: runs[0].ID, Mode: mode, Seed: runs[0].Seed, Of: len(runs), Harm: spec.HarmNone}
		var times []float64
		for _, s := range runs {
			times = append(times, s.Seconds)
			cell := matrixRow{defect: d}.cell(&s)
			if cell.Harm.Rank() > row.Harm.Rank() {
				row.Harm = cell.Harm
			}
			if !slices.ContainsFunc(d.Rules, func(rule spec.RuleID) bool { return !hasFinding(s, rule) }) {
				row.Found++
			}
		}
		slices.Sort(times)
		row.Seconds = math.Round(10*times[len(times)/2]) / 10
		text, err := json.MarshalIndent(row, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, d.Name+"."+mode+".json"), append(text, '\n'), 0o600))
	}
}

// scenariosWithoutOwn are those of the reference stack that may catch no defect which no
// other catches, and why they are there all the same. None of them was removed: the
// correct stack must reach and pass the branch that each forces, which no defect shows.
var scenariosWithoutOwn = map[string]string{
	"baseline":                "the control: nothing is in the way, so that what any other shows is due to it",
	"mixed-load":              "the control at length",
	"cancel-during-transfer":  "the plain form of the race that nearly every other varies",
	"client-disconnect":       "the same, where nobody but a connection tells of it",
	"cancel-before-grant":     "a cancellation overtakes what it cancels: tombstones",
	"cancel-twice":            "each stage asked twice: one end, however often",
	"cancel-between-stages":   "an end after the finish",
	"cancel-while-queued":     "an end before any lease",
	"ack-delayed":             "the word after the clock",
	"ack-lost":                "no word at all: fences",
	"ack-stale":               "words that come twice",
	"status-late":             "success after the end",
	"handoff-timeout":         "a wait that ends under a transfer",
	"hold-timeout":            "a clock shorter than a transfer",
	"lease-expiry":            "a lease that ends under a read",
	"peer-silent":             "a peer that stands still and goes on",
	"worker-killed":           "a peer that dies and comes back",
	"reject-prefill-capacity": "a refusal of the first stage",
	"reject-decode-capacity":  "a refusal of the second",
	"slot-reuse":              "slots beside pages",
	"chunk-fails":             "one writer of several fails",
	"preempt-during-handoff":  "blocks taken from a request",
	"two-decode-ranks":        "two readers of one writer's word",
}

// TestLongMatrix: every defect is caught by its rule, the correct stack shows nothing, and
// each scenario catches a defect that no other does, or is one of those that are there
// for another reason.
func TestLongMatrix(t *testing.T) {
	m, err := RunMatrix(t.Context(), MatrixConfig{Dir: t.TempDir(), Seed: 1})
	require.NoError(t, err)
	for _, c := range m.Cells {
		if c.Defect == "" && c.Verdict != spec.Pass {
			t.Errorf("the correct stack under %s %s: %v %v: %s", c.Scenario, c.Mode, c.Verdict, c.Rules, c.Why)
		}
	}
	require.Empty(t, m.Missed())
	for id, own := range m.Alone {
		t.Logf("%s alone catches %v", id, own)
		if scenariosWithoutOwn[id] == "" && len(own) == 0 {
			t.Errorf("%s catches no defect that no other scenario does", id)
		}
	}
	t.Logf("%d runs, %.0f s of them", len(m.Cells), m.Seconds)
}
