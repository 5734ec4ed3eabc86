package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// rules gives a result for each rule, all passed but three that had nothing to judge.
func rules(judged int) []check.RuleResult {
	var out []check.RuleResult
	for _, r := range spec.Rules() {
		res := check.RuleResult{ID: r.ID, Verdict: spec.Pass, Level: r.Level, Judged: judged}
		if r.ID == spec.REQ3 || r.ID == spec.SIG3 || r.ID == spec.SIG4 {
			res.Verdict, res.Judged = spec.Unexercised, 0
		}
		out = append(out, res)
	}
	return out
}

func with(rs []check.RuleResult, id spec.RuleID, v spec.Verdict, fs ...check.Finding) []check.RuleResult {
	for i := range rs {
		if rs[i].ID == id {
			rs[i].Verdict = v
			for _, f := range fs {
				f.Rule = id
				if f.Verdict == spec.NotJudged {
					f.Verdict = v
				}
				rs[i].Findings = append(rs[i].Findings, f)
			}
		}
	}
	return rs
}

// sum joins the rules over the scenarios, as the harness does.
func sum(scenarios []harness.ScenarioResult) []harness.RuleSummary {
	var out []harness.RuleSummary
	for i, r := range spec.Rules() {
		s := harness.RuleSummary{ID: r.ID}
		for _, sc := range scenarios {
			s.Verdict = max(s.Verdict, sc.Rules[i].Verdict)
			s.Judged += sc.Rules[i].Judged
			s.Findings += len(sc.Rules[i].Findings)
		}
		out = append(out, s)
	}
	return out
}

func stats() check.Stats {
	return check.Stats{
		Events: 4210, Sources: 5, Workers: 3, Blocks: 96, Leases: 1204, Reused: 1108,
		Accesses: 612, Handoffs: 64, Requests: 64, Signals: 190, Faults: 3,
	}
}

func passed() *harness.RunResult {
	scenarios := []harness.ScenarioResult{
		{
			ID: "baseline", Mode: "push", Seed: 1, Verdict: spec.Pass, Trace: "runs/1/baseline-push-1",
			Branches: []harness.Branch{{Name: "a block was reused", Reached: true}},
			Seconds:  1.2, Rules: rules(400), Stats: stats(),
		},
		{
			ID: "ack-lost", Mode: "push", Seed: 2, Verdict: spec.Pass, Trace: "runs/1/ack-lost-push-2",
			Faults:  []harness.FaultCount{{Rule: "lose", Do: "drop", Fired: 3}},
			Seconds: 2.1, Rules: rules(212), Stats: stats(),
		},
	}
	return &harness.RunResult{
		Verdict: spec.Pass, Adapter: "reference", Dir: "runs/1", Rules: sum(scenarios), Scenarios: scenarios, Seconds: 3.4,
	}
}

func failed() *harness.RunResult {
	r := passed()
	r.Verdict, r.Defect = spec.Fail, "free-at-cancel"
	open := check.Finding{
		Harm:    spec.HarmReclaimedOpen,
		Block:   &spec.BlockID{Worker: "decode-0", Pool: "kv", Number: 7},
		Handoff: "room-3", Req: "r-3",
		Events: []spec.EventID{{Src: "prefill-0", Seq: 41}, {Src: "decode-0", Seq: 77}},
		Text: "Block 7 of decode-0/kv was freed while the write a-12 by prefill-0 under handoff room-3 was open: " +
			"it began before the free and ended after it.",
	}
	luck := check.Finding{
		Harm: spec.HarmUnprovenOrder, Events: []spec.EventID{{Src: "decode-0", Seq: 90}},
		Text: "Nothing orders the end of a-13 before the free of block 8.",
	}
	wrong := check.Finding{Harm: spec.HarmWrongAnswer, Req: "r-4", Text: "r-4 was answered from another prompt."}
	r.Scenarios[0].Rules = with(r.Scenarios[0].Rules, spec.BLK2, spec.Fail, open, open, open, open)
	r.Scenarios[0].Rules = with(r.Scenarios[0].Rules, spec.DAT2, spec.Fail, wrong)
	r.Scenarios[1].Rules = with(r.Scenarios[1].Rules, spec.SIG2, spec.Unproven, luck)
	r.Scenarios[0].Verdict, r.Scenarios[1].Verdict = spec.Fail, spec.Unproven
	again := r.Scenarios[0]
	again.Seed, again.Rules = 2, with(rules(400), spec.BLK2, spec.Fail, open)
	r.Scenarios = append(r.Scenarios, again)
	r.Rules = sum(r.Scenarios)
	return r
}

func inconclusive() *harness.RunResult {
	r := passed()
	r.Verdict = spec.Inconclusive
	sc := &r.Scenarios[1]
	sc.Verdict = spec.Inconclusive
	sc.Branches = []harness.Branch{{Name: "an acknowledgement was lost"}}
	sc.Faults[0].Fired = 0
	return r
}

func TestText(t *testing.T) {
	interrupted := passed()
	interrupted.Interrupted, interrupted.Scenarios = true, interrupted.Scenarios[:1]
	broken := passed()
	broken.Verdict, broken.Scenarios[1].Verdict = spec.Error, spec.Error
	broken.Scenarios[1].Why = "decode-0 ended with status 2 before it was ready"
	dead := &harness.RunResult{
		Verdict: spec.Error, Adapter: "reference", Dir: "runs/1", Rules: []harness.RuleSummary{{ID: spec.BLK1, Verdict: spec.Unexercised}},
		Scenarios: []harness.ScenarioResult{{ID: "baseline", Mode: "pull", Verdict: spec.Error, Why: "no loopback"}},
	}
	for name, c := range map[string]struct {
		r *harness.RunResult
		o Options
	}{
		"pass":         {passed(), Options{}},
		"pass-color":   {passed(), Options{Color: true}},
		"fail":         {failed(), Options{Program: "go run ./cmd/conform", Again: []string{"--plan", "my plan.yaml"}}},
		"inconclusive": {inconclusive(), Options{}},
		"interrupted":  {interrupted, Options{}},
		"error":        {broken, Options{}},
		"no-start":     {dead, Options{}},
		"empty":        {&harness.RunResult{Verdict: spec.Inconclusive, Interrupted: true}, Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, Text(&b, c.r, c.o))
			golden(t, name+".txt", b.Bytes())
			require.Equal(t, c.o.Color, strings.Contains(b.String(), "\x1b"))
			for line := range strings.Lines(b.String()) {
				require.Equal(t, strings.TrimRight(line, " \n"), strings.TrimRight(line, "\n"), "no space at a line's end")
			}
		})
	}
}

// A summary is read in ten seconds: however much went wrong, it fits on a screen or two.
func TestTextIsShort(t *testing.T) {
	r := failed()
	for _, rule := range spec.Rules() {
		f := check.Finding{Text: strings.Repeat("word ", 40), Events: make([]spec.EventID, 100)}
		for range 500 {
			r.Scenarios[0].Rules = with(r.Scenarios[0].Rules, rule.ID, spec.Fail, f)
		}
	}
	other := r.Scenarios[0]
	other.ID = "ack-lost"
	r.Scenarios = append(r.Scenarios, other)
	for range 200 {
		r.Scenarios = append(r.Scenarios, inconclusive().Scenarios[1])
	}
	var b bytes.Buffer
	require.NoError(t, Text(&b, r, Options{}))
	require.Less(t, strings.Count(b.String(), "\n"), 80)
	require.Contains(t, b.String(), "and 999 more; of all: baseline push 500, ack-lost push 500")
	require.Contains(t, b.String(), "and 192 more\n")
	require.Contains(t, b.String(), "; --format json has all")
}

// A judge lists the first findings of a rule and counts all of them.
func TestUnlistedFindings(t *testing.T) {
	r := &check.Result{Verdict: spec.Fail, Rules: []check.RuleResult{{
		ID: spec.BLK2, Verdict: spec.Fail, Judged: 500, Found: 400, Findings: make([]check.Finding, 100),
	}}}
	var b bytes.Buffer
	require.NoError(t, TraceText(&b, "x", r, Options{}))
	require.Contains(t, b.String(), "FAIL  400 findings\n")
	require.Contains(t, b.String(), "and 398 more\n")
}

func TestTraceText(t *testing.T) {
	r := &check.Result{
		Verdict: spec.Fail, Rules: failed().Scenarios[0].Rules, Stats: stats(),
		Signals: []check.SignalResult{
			{Signal: "ABORT_ACK/3", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsReceived, Seen: 12, Refuted: []check.Refutation{
				{Claim: spec.ClaimsStopped, Events: []spec.EventID{{Src: "p", Seq: 4}, {Src: "p", Seq: 9}}},
				{Claim: spec.ClaimsCompleted, Events: []spec.EventID{{Src: "p", Seq: 4}, {Src: "p\n", Seq: 3}}},
			}},
			{Signal: "STATUS/4", Seen: 60},
		},
		Clocks: []check.ClockResult{
			{Clock: "h2", Minus: "h1", Lo: new(int64(-1_234_567)), Hi: new(int64(1_236_000))},
			{Clock: "h3", Minus: "h1", Lo: new(int64(5))},
			{Clock: "h4", Minus: "h1", Hi: new(int64(7))},
			{Clock: "h5", Minus: "h1"},
			{Clock: "h3", Minus: "h2"},
		},
		Notes: []string{"source decode-0 is torn at line 78: what it did later is not known"},
	}
	var b bytes.Buffer
	require.NoError(t, TraceText(&b, "runs/1/x", r, Options{}))
	golden(t, "trace.txt", b.Bytes())
	b.Reset()
	require.NoError(t, TraceText(&b, "-", &check.Result{Verdict: spec.Inconclusive}, Options{}))
	golden(t, "trace-empty.txt", b.Bytes())
}

// Several traces: what they show together, then each under its name, the one that
// could not be read too.
func TestTraces(t *testing.T) {
	drained := check.SignalResult{Signal: "STATUS", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsDrained, Seen: 3}
	open := drained
	open.Inferred, open.Refuted = spec.ClaimsStopped, []check.Refutation{
		{Claim: spec.ClaimsCompleted, Events: []spec.EventID{{Src: "p", Seq: 4}, {Src: "p", Seq: 3}}},
	}
	traces := []Judged{
		{Trace: "a.jsonl", Result: &check.Result{Verdict: spec.Pass, Rules: rules(3), Stats: stats(), Signals: []check.SignalResult{drained}}},
		{Trace: "b\x1b.jsonl", Why: "b.jsonl:3: null; expected a string", Failure: &Failure{File: "b.jsonl", Line: 3, Found: "null", Expected: "a string"}},
		{Trace: "c.jsonl", Result: &check.Result{
			Verdict: spec.Fail, Rules: failed().Scenarios[0].Rules, Stats: stats(), Signals: []check.SignalResult{open},
			Notes: []string{"source p ends without a seal"},
		}},
	}
	var b bytes.Buffer
	require.NoError(t, TracesText(&b, traces, Options{}))
	golden(t, "traces.txt", b.Bytes())
	b.Reset()
	require.NoError(t, TracesJSON(&b, traces, Options{}))
	require.NotContains(t, b.String(), "null,")
	var got struct {
		Verdict spec.Verdict
		Rules   []harness.RuleSummary
		Signals []check.SignalResult
		Traces  []struct {
			Trace   string
			Verdict spec.Verdict
			Rules   []check.RuleResult
			Error   *Failure
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	require.Equal(t, spec.Error, got.Verdict)
	require.Equal(t, harness.RuleSummary{ID: spec.BLK1, Verdict: spec.Pass, Judged: 403}, got.Rules[0])
	require.Equal(t, []check.SignalResult{{
		Signal: "STATUS", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsStopped, Seen: 6,
		Refuted: []check.Refutation{{Claim: spec.ClaimsCompleted, Trace: "c.jsonl", Events: open.Refuted[0].Events}},
	}}, got.Signals)
	require.Len(t, got.Traces, 3)
	require.Equal(t, "b\x1b.jsonl", got.Traces[1].Trace)
	require.Equal(t, spec.Error, got.Traces[1].Verdict)
	require.Equal(t, traces[1].Failure, got.Traces[1].Error)
	require.Equal(t, spec.Fail, got.Traces[2].Verdict)
	require.Len(t, got.Traces[2].Rules, len(spec.Rules()))
	require.Error(t, TracesText(brokenWriter{}, traces, Options{}))
	require.Error(t, TracesJSON(brokenWriter{}, traces, Options{}))
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, JSON(&b, failed(), Options{}))
	golden(t, "fail.json", b.Bytes())
	require.NotContains(t, b.String(), "null")
	var back harness.RunResult
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, spec.Fail, back.Verdict)
	require.Len(t, back.Scenarios[0].Rules, len(spec.Rules()))

	b.Reset()
	require.NoError(t, JSON(&b, &harness.RunResult{}, Options{}))
	require.NotContains(t, b.String(), "null")
	b.Reset()
	require.NoError(t, TraceJSON(&b, &check.Result{Verdict: spec.Pass, Rules: rules(1)}, Options{}))
	require.NotContains(t, b.String(), "null")
	b.Reset()
	require.NoError(t, FailureJSON(&b, Failure{File: "a.jsonl", Line: 3, Found: "null", Expected: "a string"}))
	require.JSONEq(t, `{"verdict":"error","error":{"file":"a.jsonl","line":3,"found":"null","expected":"a string"}}`, b.String())
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorsAreReturned(t *testing.T) {
	require.Error(t, Text(brokenWriter{}, passed(), Options{}))
	require.Error(t, TraceText(brokenWriter{}, "-", &check.Result{}, Options{}))
	require.Error(t, JSON(brokenWriter{}, passed(), Options{}))
	require.Error(t, TraceJSON(brokenWriter{}, &check.Result{}, Options{}))
	require.Error(t, FailureJSON(brokenWriter{}, Failure{}))
}

func TestCleanProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		got := Clean(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q holds %U", got, r)
			}
		}
		if Clean(got) != got {
			t.Fatalf("%q is not clean", got)
		}
	})
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                    "",
		"decode-0 é":          "decode-0 é",
		"a\nb":                `a\x0ab`,
		"\x1b[2Jhi":           `\x1b[2Jhi`,
		"\xff":                `\xff`,
		"\u202egnp.exe":       `\u202egnp.exe`,
		"\ufffd and \x80\x00": `\ufffd and \x80\x00`,
	} {
		require.Equal(t, want, Clean(in))
	}
}

// What a trace says can't leave its line in a report.
func TestHostileNames(t *testing.T) {
	r := failed()
	r.Defect, r.Dir = "x\x1b[31m", "dir\nPASS"
	r.Scenarios[0].Rules = with(r.Scenarios[0].Rules, spec.BLK1, spec.Fail, check.Finding{
		Text: "block of \x1b]0;evil\x07 \r\nPASS  every rule held", Events: []spec.EventID{{Src: "a\n\x1b[2J"}},
	})
	var b bytes.Buffer
	require.NoError(t, Text(&b, r, Options{}))
	require.NotContains(t, b.String(), "\x1b")
	require.NotContains(t, b.String(), "\nPASS")
	require.NotContains(t, b.String(), "\r")
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"ack-lost": "ack-lost", "": "''", "my plan": "'my plan'", "it's": `'it'\''s'`, "$(rm)": "'$(rm)'", "A=b": "A=b",
	} {
		require.Equal(t, want, Quote(in))
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 123456: "123,456"} {
		require.Equal(t, want, number(n))
	}
	require.Equal(t, "1 access", count(1, "access"))
	require.Equal(t, "2 accesses", count(2, "access"))
	require.Equal(t, "0 runs", count(0, "run"))
}

// engineRun is a run of a real engine: two scenarios that agree in all but one row.
func engineRun() *harness.RunResult {
	hooks := []harness.HookReport{
		{Source: "prefill-0", Asked: 80, Bound: 80, Fired: 41},
		{Source: "decode-0", Asked: 80, Bound: 79, Fired: 39, Missing: map[spec.RuleID][]string{spec.REQ1: {"scheduler.reject\x1b", "b"}}},
		{Source: "decode-0.r1", Asked: 80, Bound: 80, Fired: 41},
		{Source: "prefill-1", Asked: 2, Bound: 2, Fired: -1},
	}
	capacity := []harness.Capacity{
		{Stage: "prefill", Configured: 2048, Processable: 256, Unit: "token", Why: "the pool"},
		{Stage: "decode", Configured: 2048, Processable: 1008, Unit: "token", Why: "the pool, without the reserve"},
	}
	other := append([]harness.Capacity{{Stage: "decode", Processable: 8, Unit: "request", Why: "--max-running-requests"}}, capacity[0])
	scenarios := []harness.ScenarioResult{
		{
			ID: "baseline", Mode: "mooncake", Seed: 1, Verdict: spec.Inconclusive, Rules: with(rules(9), spec.REQ1, spec.Inconclusive),
			Stats: stats(), Trace: "runs/2/baseline.mooncake.1", Capacity: capacity, Hooks: hooks,
			Signals: []check.SignalResult{{Signal: "ABORT_ACK/4", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsDrained, Seen: 3}},
			Settled: []check.SettledResult{
				{
					Worker: "decode-0", Ended: []string{"reject by prefill-0", "expire by decode-0"}, How: "cancel", Evidence: "ABORT_ACK/4",
					Requests: 2, Holds: 52, After: &[2]int64{6_021_000_000, 6_100_000_000},
				},
				{Worker: "decode-0", Ended: []string{"cancel by client"}, How: "timeout", Requests: 3, Holds: 4, After: &[2]int64{70_400, 310_000_000}},
				{Worker: "prefill-0", Ended: []string{"cancel by \x1b[31mclient"}, Requests: 1, Holds: 1},
			},
		},
		{
			ID: "ack-lost", Mode: "mooncake", Seed: 1, Verdict: spec.Pass, Rules: rules(9), Stats: stats(),
			Trace: "runs/2/ack-lost.mooncake.1", Capacity: other, Hooks: hooks,
			Signals: []check.SignalResult{
				{
					Signal: "ABORT_ACK/4", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsStopped, Seen: 2,
					Refuted: []check.Refutation{{Claim: spec.ClaimsCompleted, Events: []spec.EventID{{Src: "prefill-0", Seq: 7}, {Src: "prefill-0", Seq: 5}}}},
				},
				{Signal: "ABORT_ACK/2", Claims: spec.ClaimsReceived, Seen: 4},
			},
			Settled: []check.SettledResult{
				{Worker: "decode-0", Ended: []string{"cancel by client"}, How: "timeout", Requests: 2, Holds: 3, After: &[2]int64{60_000, 12_000_000}},
				{Worker: "decode-0", Ended: []string{"cancel by client"}, How: "cancel", By: "ABORT_ACK/4", Requests: 1, Holds: 9},
			},
		},
	}
	var signals []check.TraceSignals
	for _, sc := range scenarios {
		signals = append(signals, check.TraceSignals{Trace: sc.Trace, Signals: sc.Signals})
	}
	return &harness.RunResult{
		Verdict: spec.Inconclusive, Adapter: "sglang", Engine: "sglang@0.5.23", Device: "cpu", Dir: "runs/2",
		Rules: sum(scenarios), Signals: check.JoinSignals(signals), Scenarios: scenarios, Seconds: 61,
	}
}

func TestTextOfAnEngine(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Text(&b, engineRun(), Options{}))
	golden(t, "engine.txt", b.Bytes())
}

func TestJSONOfAnEngine(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, JSON(&b, engineRun(), Options{}))
	var got struct {
		Engine, Device string
		Scenarios      []struct {
			Capacity []harness.Capacity
			Hooks    []harness.HookReport
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	require.Equal(t, "sglang@0.5.23", got.Engine)
	require.Equal(t, engineRun().Scenarios[0].Capacity, got.Scenarios[0].Capacity)
	require.Equal(t, engineRun().Scenarios[0].Hooks, got.Scenarios[0].Hooks)
}
