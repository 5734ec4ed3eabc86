package hunt

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/faults"
	"conform/harness"
	"conform/harness/report"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// on is a hunt on the reference stack in push mode that tries some ends only.
func on(t *testing.T, defect string, ends ...string) Config {
	t.Helper()
	return Config{
		Run:  harness.Config{Modes: []string{"push"}, Defect: defect, OutDir: filepath.Join(t.TempDir(), "hunt")},
		Ends: ends, First: true,
	}
}

func TestHuntConfirmsUpToAWrongAnswer(t *testing.T) {
	res, err := Hunt(t.Context(), on(t, "free-at-cancel", "abort", "done"))
	require.NoError(t, err)
	require.Equal(t, spec.Fail, res.Verdict)
	require.Len(t, res.Clean, 1)
	require.Less(t, res.Clean[0].Verdict, spec.Fail, "the run that it was predicted from is clean")
	worst := res.Worst()
	require.NotNil(t, worst)
	require.Equal(t, spec.HarmWrongAnswer, worst.Harm)
	require.Contains(t, worst.Rules, spec.DAT2)
	require.Equal(t, Class{By: "prefill", Owner: "decode", Pool: "kv", Mode: "w"}, worst.Class)

	judged, err := judge(t.Context(), worst.Trace)
	require.NoError(t, err)
	require.Equal(t, spec.Fail, judged.Result.Verdict, "the trace that is shown fails by itself")

	again, err := harness.Run(t.Context(), harness.Config{
		Modes: []string{"push"}, Defect: "free-at-cancel", Scenarios: []string{harness.ForcedOrder}, Plan: worst.Plan,
		Seeds: []uint64{worst.Seed}, OutDir: filepath.Join(t.TempDir(), "again"),
	})
	require.NoError(t, err)
	require.Equal(t, spec.Fail, again.Verdict, "the plan shows it again")
	require.Contains(t, worst.Again, worst.Plan)

	var text bytes.Buffer
	require.NoError(t, Text(&text, res, report.Options{Program: "conform"}))
	require.Contains(t, text.String(), "wrong answer served")
	require.Contains(t, text.String(), "conform run --defect free-at-cancel --mode push --scenario forced-order --plan "+worst.Plan)
}

// The same ends on the stack without the defect: nothing is confirmed, and what orders
// the pair is named.
func TestHuntRefutesAndNamesTheSignal(t *testing.T) {
	res, err := Hunt(t.Context(), on(t, "", "abort", "abort-overdue", "done"))
	require.NoError(t, err)
	require.Zero(t, res.Count(Confirmed))
	by := map[string]map[string]int{}
	for _, h := range res.Hunted {
		if h.Class == (Class{By: "prefill", Owner: "decode", Pool: "kv", Mode: "w"}) {
			require.Equal(t, Refuted, h.Answer, "%s: %s", h.End, h.Why)
			by[h.End] = h.Ordered
		}
	}
	require.Contains(t, by["abort"], "ABORT_ACK")
	require.Contains(t, by["abort-overdue"], check.ByFence)
	require.Contains(t, by["done"], "STATUS/Success")
}

// A stack that does not ask before an access can't be made to wait.
func TestHuntWithoutFailpoints(t *testing.T) {
	cfg := on(t, "free-at-cancel", "abort")
	cfg.run = func(ctx context.Context, r harness.Config) (*harness.RunResult, error) {
		if r.Plan != "" { // the accesses that the plan is about pass unasked
			plan, err := os.ReadFile(r.Plan)
			require.NoError(t, err)
			r.Plan = filepath.Join(t.TempDir(), "nowhere.yaml")
			unasked := strings.ReplaceAll(string(plan), "from: prefill, nth", "from: client, nth")
			require.NoError(t, os.WriteFile(r.Plan, []byte(unasked), 0o644))
		}
		return harness.Run(ctx, r)
	}
	res, err := Hunt(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, spec.Unproven, res.Verdict)
	require.NotEmpty(t, res.Hunted)
	for _, h := range res.Hunted {
		require.Equal(t, NotForced, h.Answer)
		require.Contains(t, h.Why, "no failpoint")
	}
}

// A torn trace still predicts: no answer rests on it.
func TestHuntFromATornTrace(t *testing.T) {
	dir := cleanRun(t, "free-at-cancel")
	torn := filepath.Join(dir, "events", "decode-0.jsonl")
	if _, err := os.Stat(torn); err != nil {
		torn += ".zst"
	}
	b, err := os.ReadFile(torn)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(torn, b[:len(b)-len(b)/8], 0o644))

	man, err := traces.ReadManifest(dir)
	require.NoError(t, err)
	man.Files, man.End = nil, time.Time{} // a run that was killed does not get to these
	require.NoError(t, traces.WriteManifest(dir, man))

	cfg := on(t, "", "abort")
	cfg.Trace, cfg.Run.Modes = dir, nil
	res, err := Hunt(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, "free-at-cancel", res.Defect, "the manifest says which stack it was")
	require.NotEmpty(t, res.Notes, "the loss is told")
	require.Equal(t, spec.Fail, res.Verdict)
}

func cleanRun(t *testing.T, defect string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	_, err := harness.Run(t.Context(), harness.Config{Modes: []string{"push"}, Defect: defect, Scenarios: []string{"baseline"}, OutDir: out})
	require.NoError(t, err)
	return filepath.Join(out, "baseline.push.1")
}

func TestHuntRefusesWhatItCantHuntFrom(t *testing.T) {
	_, err := Hunt(t.Context(), Config{Trace: t.TempDir()})
	_, ok := errors.AsType[*harness.UsageError](err)
	require.True(t, ok, "a folder without a manifest: %v", err)

	dir := cleanRun(t, "")
	cfg := on(t, "", "abort")
	cfg.Trace, cfg.Run.Modes = dir, []string{"pull"}
	_, err = Hunt(t.Context(), cfg)
	require.ErrorContains(t, err, `mode "push"`)

	_, err = Hunt(t.Context(), on(t, "", "abrot"))
	require.ErrorContains(t, err, "unknown end")

	_, err = Hunt(t.Context(), Config{Run: harness.Config{Adapter: "vllm", OutDir: t.TempDir()}})
	require.ErrorContains(t, err, harness.ForcedOrder)
}

// A hunt that is stopped keeps what it knows and says that it was stopped.
func TestHuntStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cfg := on(t, "", "abort", "silence", "overdue", "done")
	cfg.First = false
	cfg.Progress = func(p Progress) {
		if p.Finished {
			stop()
		}
	}
	start := time.Now()
	res, err := Hunt(ctx, cfg)
	require.NoError(t, err)
	require.True(t, res.Interrupted)
	require.Equal(t, spec.Unproven, res.Verdict)
	require.Equal(t, statusOf(res), 2)
	untried := 0
	for _, h := range res.Hunted {
		if h.Attempts == 0 {
			require.Equal(t, NotForced, h.Answer)
			require.Equal(t, errUntried.Error(), h.Why)
			untried++
		}
	}
	require.Positive(t, untried)
	require.Less(t, time.Since(start), 2*time.Minute, "far below what the rest of the hunt takes")
}

func statusOf(r *Result) int { return r.Verdict.ExitStatus() }

// A plan that was written for another mode acts on nothing, and the run says so.
func TestWrongPlanIsInconclusive(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	end := endByName("abort")
	reads := Class{By: "decode", Owner: "prefill", Pool: "kv", Mode: "r"}
	load, err := harness.LoadOf(harness.Config{Adapter: "reference"})
	require.NoError(t, err)
	require.NoError(t, writePlan(plan, end.plan(target{class: reads, through: reads, until: untilContent, times: 2, load: load})))
	cfg := harness.Config{Modes: []string{"push"}, Scenarios: []string{harness.ForcedOrder}, Plan: plan, OutDir: filepath.Join(t.TempDir(), "run")}
	res, err := harness.Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, spec.Inconclusive, res.Verdict)
	require.Contains(t, res.Scenarios[0].Why, "never fired: hold-the-transfer")

	cfg.Plan = ""
	_, err = harness.Run(t.Context(), cfg)
	require.ErrorContains(t, err, "no fault plan of its own")
}

// Every end gives a plan that can be read, for every class that it applies to.
func TestPlansCanBeRead(t *testing.T) {
	load, err := harness.LoadOf(harness.Config{Adapter: "reference"})
	require.NoError(t, err)
	writes := Class{By: "prefill", Owner: "decode", Pool: "kv", Mode: "w"}
	slots := Class{By: "prefill", Owner: "decode", Pool: "aux", Mode: "w"}
	source := Class{By: "prefill", Owner: "prefill", Pool: "kv", Mode: "r", Own: true}
	reads := Class{By: "decode", Owner: "prefill", Pool: "kv", Mode: "r"}
	known := map[Class]bool{writes: true, slots: true, source: true}
	require.Equal(t, writes, through(source, known))
	for _, e := range Ends() {
		require.NotEmpty(t, e.Says, e.Name)
		applied := 0
		for _, c := range []Class{writes, slots, source, reads} {
			if !e.applies(c) {
				continue
			}
			applied++
			for _, until := range []string{untilContent, untilAlloc} {
				text := e.plan(target{class: c, through: through(c, known), until: until, times: 3, load: load})
				plan, err := faults.ParsePlan(e.Name, []byte(text))
				require.NoError(t, err, text)
				require.NotEmpty(t, plan.Rules)
			}
		}
		require.Positive(t, applied, e.Name)
	}
}

func TestPredict(t *testing.T) {
	write := func(why, ordered string) check.Meeting {
		return check.Meeting{By: "prefill", Owner: "decode", Pool: "kv", Mode: "w", Why: why, Ordered: ordered, Begin: spec.EventID{Src: "p"}, Free: spec.EventID{Src: "d", Seq: 7}}
	}
	all := predict("push", []check.Meeting{write("done", "STATUS"), write("done", "STATUS"), write("timeout", ""), write("", ""), {By: "", Owner: "decode"}}, nil)
	rank(all)
	require.Equal(t, 0, all[0].grounds(), "what nothing ordered comes first")
	require.Equal(t, 2, all[len(all)-1].grounds(), "what a signal orders comes last")
	seen := map[string]Seen{}
	for _, p := range all {
		seen[p.End] = p.Seen
	}
	require.Equal(t, Seen{Times: 2, Ordered: map[string]int{"STATUS": 2}}, seen["done"])
	require.Equal(t, 1, seen["unrenewed"].Unproven)
	require.Zero(t, seen["leave"].Times-seen["leave"].Unproven)

	about := predict("push", []check.Meeting{write("done", "STATUS"), write("timeout", "")}, &check.Finding{Events: []spec.EventID{{Src: "other"}}})
	require.Empty(t, about, "a finding about other events")
	require.Empty(t, predict("push", nil, nil))
}

func TestOrderSaysWhyItWasNotForced(t *testing.T) {
	require.Equal(t, "nothing yet (1), a (2)", counted(map[string]int{"a": 2, "": 1}))
	require.Equal(t, "nothing", counted(nil))
	require.True(t, better(&Hunted{Answer: Confirmed, Harm: spec.HarmWrongAnswer}, &Hunted{Answer: Confirmed, Harm: spec.HarmStaleAccess}))
	require.False(t, better(&Hunted{Answer: Confirmed, Harm: spec.HarmStaleAccess}, &Hunted{Answer: Confirmed, Harm: spec.HarmWrongAnswer}))
	require.False(t, better(&Hunted{Answer: NotForced}, &Hunted{Answer: Refuted}))
	require.False(t, better(&Hunted{Answer: Refuted}, &Hunted{Answer: Confirmed}))
	harm, rules, _, _ := harmOf(Class{}, []check.RuleResult{
		{ID: spec.REQ4, Verdict: spec.Fail, Findings: []check.Finding{{Rule: spec.REQ4, Verdict: spec.Fail}}},
		{ID: spec.BLK2, Verdict: spec.Unproven, Findings: []check.Finding{{Rule: spec.BLK2, Verdict: spec.Unproven}}},
	})
	require.Empty(t, rules, "neither is a bad order that was seen")
	require.Equal(t, spec.HarmNone, harm)

	block := func(worker string) []check.RuleResult {
		f := check.Finding{Rule: spec.BLK2, Verdict: spec.Fail, Harm: spec.HarmReclaimedOpen, Block: &spec.BlockID{Worker: worker, Pool: "kv"}, Text: "of " + worker}
		return []check.RuleResult{{ID: spec.BLK2, Verdict: spec.Fail, Findings: []check.Finding{f}}}
	}
	writes := Class{By: "prefill", Owner: "decode", Pool: "kv", Mode: "w"}
	_, _, _, about := harmOf(writes, block("decode-0.1"))
	require.True(t, about)
	_, rules, text, about := harmOf(writes, block("prefill-0"))
	require.False(t, about, "a finding about another's blocks confirms nothing")
	require.Equal(t, []spec.RuleID{spec.BLK2}, rules)
	require.Equal(t, "of prefill-0", text)
}

// A trace may come from anybody: what it says of variables and arguments starts nothing.
func TestHuntTakesNoVariablesFromATrace(t *testing.T) {
	dir := t.TempDir()
	for flag, said := range map[string]string{"--env": `"env": ["LD_PRELOAD=/tmp/x.so"]`, "--engine-arg": `"args": ["--trust-remote-code"]`} {
		manifest := `{"tool":"conform","spec_version":1,"mode":"push","adapter":{"name":"reference"},"files":[],` + said + `}`
		require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o600))
		cfg := Config{Trace: dir, Run: harness.Config{OutDir: filepath.Join(t.TempDir(), "hunt")}}
		cfg.run = func(context.Context, harness.Config) (*harness.RunResult, error) {
			t.Error("a stack was started")
			return nil, errors.New("no")
		}
		_, err := Hunt(t.Context(), cfg)
		var usage *harness.UsageError
		require.ErrorAs(t, err, &usage)
		require.Equal(t, flag, usage.Where)
		require.NoDirExists(t, cfg.Run.OutDir)
	}
}
