package report

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// hostileName is what a trace may say where it names something.
const hostileName = `<script>window.bad=1</script><img src=x onerror=window.bad=1>"'` + "`" + `{{.}}&lt;javascript:alert(1)</svg></title></style>`

// judgedFile judges a trace that is written to a file.
func judgedFile(t testing.TB, name string, data []byte) (Judged, bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	tr, err := traces.Read(path, nil)
	if err != nil {
		return Judged{}, false
	}
	res, err := check.Judge(context.Background(), tr, check.Options{})
	return Judged{Trace: path, Result: res}, err == nil
}

// sampleTree is a run of the minimal trace that breaks each rule and of the judges' own
// cases, with hostile names in some, and tables as a run has them.
func sampleTree(t testing.TB) *harness.RunResult {
	t.Helper()
	var judged []Judged
	add := func(name string, data []byte) {
		if j, ok := judgedFile(t, name, data); ok {
			judged = append(judged, j)
		}
	}
	for _, r := range spec.Rules() {
		bad, err := r.Bad()
		require.NoError(t, err)
		add(string(r.ID)+".jsonl", bad)
		quoted, err := json.Marshal(hostileName)
		require.NoError(t, err)
		for _, word := range []string{"r1", "d0", "p0", "kv", "room-1", "ACK", "DONE"} {
			bad = bytes.ReplaceAll(bad, []byte(`"`+word+`"`), quoted)
		}
		add("hostile."+string(r.ID)+".jsonl", bad)
	}
	cases, err := filepath.Glob("../../spec/check/testdata/cases/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, path := range cases {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		add(filepath.Base(path), data)
	}
	r := Tree(judged...)
	r.Adapter, r.Engine, r.Seconds = "sglang", "sglang@0.5.20", 61
	sc := &r.Scenarios[0]
	sc.Faults = []harness.FaultCount{{Rule: hostileName, Do: "hold", Fired: 3}, {Rule: "late", Do: "drop"}}
	sc.Branches = []harness.Branch{{Name: "a cancel crossed a write", Reached: true}, {Name: hostileName}}
	sc.Capacity = []harness.Capacity{{Stage: "decode", Configured: 4096, Processable: 1024, Unit: "tokens", Why: hostileName}}
	sc.Hooks = []harness.HookReport{{Source: "decode-0", Asked: 12, Bound: 11, Fired: 9, Missing: map[spec.RuleID][]string{spec.BLK2: {hostileName}}}}
	sc.Notes = []string{hostileName}
	return r
}

func pageOf(t testing.TB, r *harness.RunResult) []byte {
	t.Helper()
	tale, err := Tell(context.Background(), r, 0)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, HTML(&b, r, tale, Options{}))
	return b.Bytes()
}

func samplePage(t testing.TB) []byte { return pageOf(t, sampleTree(t)) }

// TestPageSaysAll looks for what the page is for, and that the same run gives the same
// bytes.
func TestPageSaysAll(t *testing.T) {
	r := sampleTree(t)
	page := string(pageOf(t, r))
	require.Equal(t, page, string(pageOf(t, r)), "the same run, the same bytes")
	for _, want := range []string{
		"What this does not claim", "sglang@0.5.20", "What each acknowledgement proves", "Coverage of the specification", "Faults planned and fired",
		"What each stage can process", "What each scenario is for", "missing: evidence that leads here", `class="absent"`, `class="strip stale`,
		"Whose the block was", "Missing evidence", "What would have been enough", "conform explain", "evidence up to L", "planned in",
	} {
		require.Contains(t, page, want)
	}
	for _, rule := range spec.Rules() {
		require.Contains(t, page, `data-rule="`+string(rule.ID)+`"`, "a finding of each rule is told")
	}
	for _, never := range []string{"http://", "https://", "<script>window", "<img", "ZgotmplZ", " style=", "javascript:alert(1)<", "onerror=window.bad=1>"} {
		require.NotContains(t, strings.ReplaceAll(page, "http-equiv", ""), never)
	}
	require.Contains(t, page, "&lt;script&gt;window.bad=1", "what a trace says is there as text")
	require.Equal(t, 1, strings.Count(page, "<script>"))
	require.Less(t, len(page), 1_000_000)
}

// TestPageOfNothing writes pages of runs that found nothing, or came to no result.
func TestPageOfNothing(t *testing.T) {
	for name, r := range map[string]*harness.RunResult{
		"clean":  {Verdict: spec.Pass, Adapter: "reference", Scenarios: []harness.ScenarioResult{{ID: "baseline", Verdict: spec.Pass, Rules: rules(3)}}, Rules: sum([]harness.ScenarioResult{{Rules: rules(3)}})},
		"broken": Broken("the engine did not start: <b>"),
		"empty":  {},
	} {
		var b bytes.Buffer
		require.NoError(t, HTML(&b, r, nil, Options{}), name)
		require.Contains(t, b.String(), "None: no rule", name)
		require.NotContains(t, b.String(), "<b>", name)
	}
}

// TestPageIsBounded writes pages of runs with far more than fits: of findings, seeds,
// signals, long names.
func TestPageIsBounded(t *testing.T) {
	r := sampleTree(t)
	long := strings.Repeat(`"&<`, 1000)
	for i := range 400 {
		sc := r.Scenarios[i%40]
		sc.ID, sc.Seed, sc.Mode, sc.Trace = sc.ID+long, uint64(i), "m"+long, ""
		sc.Rules = slices.Clone(sc.Rules)
		for j := range sc.Rules {
			sc.Rules[j].Findings = slices.Clone(sc.Rules[j].Findings)
			for k := range sc.Rules[j].Findings {
				f := &sc.Rules[j].Findings[k]
				f.ID, f.Text = hex16(i*100+j*10+k), long+f.Text
			}
		}
		sc.Why, sc.Notes = long, []string{long, long}
		sc.Faults = []harness.FaultCount{{Rule: long + hex16(i), Do: long}}
		r.Scenarios = append(r.Scenarios, sc)
		r.Signals = append(r.Signals, check.SignalResult{Signal: long + hex16(i), Claims: spec.Predicate(long)})
	}
	page := pageOf(t, r)
	require.Less(t, len(page), 1_000_000)
	require.Contains(t, string(page), "that this page has no room for")
	require.Contains(t, string(page), "The seeds of a scenario and mode are one row")
	require.Contains(t, string(page), `class="time"`, "some are drawn all the same")
}

func hex16(n int) string {
	const digits = "0123456789abcdef"
	out := make([]byte, 16)
	for i := range out {
		out[len(out)-1-i] = digits[n>>(4*i)&15]
	}
	return string(out)
}

// TestPageWithoutTraces tells what was found where the traces are gone.
func TestPageWithoutTraces(t *testing.T) {
	r := sampleTree(t)
	for i := range r.Scenarios {
		if r.Scenarios[i].Trace != "" {
			r.Scenarios[i].Trace = filepath.Join(t.TempDir(), "gone")
		}
	}
	page := string(pageOf(t, r))
	require.Contains(t, page, "could not be read again")
	require.Contains(t, page, `data-rule="BLK-2"`)
	require.NotContains(t, page, `class="time"`)
}
