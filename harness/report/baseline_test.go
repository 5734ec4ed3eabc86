package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

func knows(until string, ids ...string) *Baseline {
	b := &Baseline{}
	for _, id := range ids {
		b.Findings = append(b.Findings, Entry{Fingerprint: id, Until: day(until), Why: "being mended"})
	}
	return b
}

func idsOf(r *harness.RunResult) (ids []string) {
	for _, d := range distinctOf(r) {
		ids = append(ids, d.id)
	}
	return ids
}

func TestBaselineSetsAside(t *testing.T) {
	now := day("2026-06-01").midnight
	all := idsOf(failed()) // DAT-2, BLK-2, SIG-2
	require.Len(t, all, 3)
	for name, c := range map[string]struct {
		r                           *harness.RunResult
		b                           *Baseline
		want                        spec.Verdict
		known, expired, unseen, new int
	}{
		"all known":      {failed(), knows("2026-06-01", all...), spec.Pass, 3, 0, 0, 0},
		"none":           {failed(), knows("2026-06-01"), spec.Fail, 0, 0, 0, 3},
		"all but one":    {failed(), knows("2026-06-01", all[:2]...), spec.Unproven, 2, 0, 0, 1},
		"expired":        {failed(), knows("2026-05-31", all...), spec.Fail, 0, 3, 0, 0},
		"not seen":       {passed(), knows("2026-06-01", all...), spec.Pass, 0, 0, 3, 0},
		"long forgotten": {passed(), knows("2026-05-31", all...), spec.Pass, 0, 0, 0, 0},
		"no finding":     {inconclusive(), knows("2026-06-01", all...), spec.Inconclusive, 0, 0, 3, 0},
		"an error":       {errored(), knows("2026-06-01", all...), spec.Error, 0, 0, 3, 0},
		"nothing ran":    {&harness.RunResult{Verdict: spec.Inconclusive}, knows("2026-06-01"), spec.Inconclusive, 0, 0, 0, 0},
	} {
		a := c.b.Apply(c.r, now)
		require.Equal(t, c.want, a.Verdict, name)
		require.Equal(t, [4]int{c.known, c.expired, c.unseen, c.new}, [4]int{len(a.Known), len(a.Expired), len(a.Unseen), len(a.New)}, name)
	}
	require.Equal(t, spec.Fail, failed().Verdict, "the tree itself is what it was")

	// What is no finding is not hidden behind one that is known.
	for name, change := range map[string]func(r *harness.RunResult){
		"a branch": func(r *harness.RunResult) { r.Scenarios[1].Branches = []harness.Branch{{Name: "x"}} },
		"a hook": func(r *harness.RunResult) {
			r.Scenarios[1].Hooks = []harness.HookReport{{Source: "d", Missing: map[spec.RuleID][]string{spec.SIG2: {"f"}}}}
		},
		"interrupted": func(r *harness.RunResult) { r.Interrupted = true },
	} {
		r := unproven()
		ids := idsOf(r)
		require.Equal(t, spec.Pass, knows("2026-06-01", ids...).Apply(r, now).Verdict)
		change(r)
		require.Equal(t, spec.Inconclusive, knows("2026-06-01", ids...).Apply(r, now).Verdict, name)
	}
	r := unproven()
	for i := range r.Scenarios[1].Rules {
		r.Scenarios[1].Rules[i].Found = 2 // the second is not listed: it may be another one
	}
	require.Equal(t, spec.Unproven, knows("2026-06-01", idsOf(r)...).Apply(r, now).Verdict)
}

// The last day counts to its end, in UTC.
func TestBaselineExpires(t *testing.T) {
	b := knows("2026-06-01", idsOf(unproven())...)
	east := time.FixedZone("east", 5*3600)
	require.Equal(t, spec.Pass, b.Apply(unproven(), time.Date(2026, 6, 1, 23, 59, 59, 0, time.UTC)).Verdict)
	require.Equal(t, spec.Pass, b.Apply(unproven(), time.Date(2026, 6, 2, 4, 0, 0, 0, east)).Verdict)
	require.Equal(t, spec.Unproven, b.Apply(unproven(), time.Date(2026, 6, 2, 0, 0, 0, 0, time.UTC)).Verdict)
}

func TestBaselineInForms(t *testing.T) {
	r := failed()
	all := idsOf(r)
	o := Options{Baseline: knows("2026-06-01", all[1], all[2], "0000").Apply(r, day("2026-06-01").midnight)}
	got := cases(t, render(t, "junit", r, o))
	require.Equal(t, "fail", got["baseline push seed 1: DAT-2 output"])
	require.Contains(t, got["baseline push seed 1: BLK-2 quiescent reclaim"], "skipped known to the baseline: fail")
	require.Contains(t, string(render(t, "github", r, o)), "::notice title=BLK-2 quiescent reclaim%3A fail in baseline push::known until 2026-06-01: Block 7")
	require.Contains(t, string(render(t, "sarif", r, o)), `"justification": "known until 2026-06-01: being mended"`)
	require.NoError(t, isSARIF(render(t, "sarif", r, o)))
	require.Contains(t, string(render(t, "markdown", r, o)), "With the baseline: fail; 2 findings known, 1 new, 1 that the run did not show.")
	require.Contains(t, string(render(t, "json", r, o)), `"baseline": {`)
	var b bytes.Buffer
	require.NoError(t, BaselineText(&b, o.Baseline, o))
	require.Contains(t, b.String(), "\n    0000 until 2026-06-01 being mended\n")
	require.Error(t, BaselineText(brokenWriter{}, o.Baseline, o))
}

func TestReadBaseline(t *testing.T) {
	r := failed()
	b, err := ReadBaseline("b", bytes.NewReader(render(t, "baseline", r, Options{})))
	require.NoError(t, err)
	require.Equal(t, spec.Pass, b.Apply(r, day("2026-12-31").midnight).Verdict, "what is written is read")
	b, err = ReadBaseline("b", strings.NewReader("# none\n"))
	require.NoError(t, err)
	require.Empty(t, b.Findings)
	b, err = ReadBaseline("b", strings.NewReader("findings:\n- {fingerprint: aa, until: 2026-12-31}\n"))
	require.NoError(t, err)
	require.Equal(t, "2026-12-31", b.Findings[0].Until.String(), "a date needs no quotes")
	for text, says := range map[string]string{
		"findings:\n- {fingerprint: aa}":                                                            "has no date until",
		"findings:\n- {until: 2026-12-31}":                                                          "entry 1 has no fingerprint",
		"findings:\n- {fingerprint: aa, x: 1}":                                                      "field x not found",
		"findings:\n- {fingerprint: aa, until: 2026-02-30}":                                         "2026-02-30",
		"findings:\n- {fingerprint: aa, until: 2026-12-31}\n- {fingerprint: aa, until: 2026-12-31}": "there twice",
		"findings: 7":                      "cannot unmarshal",
		"{":                                "yaml",
		strings.Repeat("#\n", maxBaseline): "more than 4194304 bytes",
	} {
		_, err := ReadBaseline("known.yaml", strings.NewReader(text))
		require.ErrorContains(t, err, says)
		var u *harness.UsageError
		require.ErrorAs(t, err, &u)
		require.Equal(t, "known.yaml", u.Where)
	}
	_, err = ReadBaseline("b", failingReader{})
	require.ErrorContains(t, err, "disk full")
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return brokenWriter{}.Write(nil) }

func TestTreeOfTraces(t *testing.T) {
	res := &check.Result{Verdict: spec.Fail, Rules: failed().Scenarios[0].Rules}
	tree := Tree(Judged{Trace: "runs/a.jsonl", Result: res}, Judged{Trace: "-", Why: "torn"})
	require.Equal(t, spec.Error, tree.Verdict)
	require.Equal(t, []string{"a.jsonl", "standard-input"}, []string{tree.Scenarios[0].ID, tree.Scenarios[1].ID})
	before := idsOf(tree)
	other := Tree(Judged{Trace: "elsewhere/b.jsonl", Result: res})
	require.Equal(t, before, idsOf(other), "a file's name is no scope")
}
