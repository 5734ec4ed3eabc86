package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/xeipuuv/gojsonschema"
	"pgregory.net/rapid"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

func rulesIn(changes []FindingChange) (ids []string) {
	for _, c := range changes {
		ids = append(ids, string(c.Rule))
	}
	return ids
}

func TestDiff(t *testing.T) {
	d := Diff("a", failed(), "b", unproven())
	require.Equal(t, []string{"DAT-2", "BLK-2"}, rulesIn(d.Gone))
	require.Equal(t, []string{"SIG-2"}, rulesIn(d.Stayed))
	require.Empty(t, d.Appeared)
	require.Empty(t, d.NotShown)
	require.Equal(t, spec.Pass, d.Verdict, "nothing became worse")
	require.Equal(t, []RuleChange{
		{"baseline push", spec.BLK2, spec.Fail, spec.Pass},
		{"baseline push", spec.DAT2, spec.Fail, spec.Pass},
	}, d.Rules)
	require.Equal(t, [2]int{5, 0}, [2]int{d.Gone[1].Before, d.Gone[1].Now})

	d = Diff("a", unproven(), "b", failed())
	require.Equal(t, []string{"DAT-2", "BLK-2"}, rulesIn(d.Appeared))
	require.Equal(t, spec.Fail, d.Verdict)
	require.Equal(t, spec.Unproven, Diff("a", passed(), "b", unproven()).Verdict)
	require.Equal(t, spec.Pass, Diff("a", failed(), "b", failed()).Verdict)
}

// Other seeds, times and names make no difference.
func TestDiffOverSeeds(t *testing.T) {
	other := unproven()
	for i := range other.Scenarios {
		other.Scenarios[i].Seed += 100
		for j := range other.Scenarios[i].Rules {
			for k := range other.Scenarios[i].Rules[j].Findings {
				f := &other.Scenarios[i].Rules[j].Findings[k]
				f.Text = strings.NewReplacer("a-13", "a-77", "block 8", "block 90").Replace(f.Text)
			}
		}
	}
	d := Diff("a", unproven(), "b", other)
	require.Len(t, d.Stayed, 1)
	require.Empty(t, d.Appeared)
	require.Empty(t, d.Rules)
}

// What B did not judge did not go away.
func TestDiffOfWhatWasNotJudged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *harness.RunResult)
		why    string
	}{
		"not run":      {func(b *harness.RunResult) { b.Scenarios = b.Scenarios[:1] }, "B did not judge this scenario"},
		"error":        {func(b *harness.RunResult) { b.Scenarios[1].Verdict = spec.Error }, "in B a run of this scenario is an error"},
		"unexercised":  {func(b *harness.RunResult) { b.Scenarios[1].Rules = with(rules(1), spec.SIG2, spec.Unexercised) }, "in B the rule was unexercised there"},
		"inconclusive": {func(b *harness.RunResult) { b.Scenarios[1].Rules = with(rules(1), spec.SIG2, spec.Inconclusive) }, "in B the rule was inconclusive there"},
		"a fault":      {func(b *harness.RunResult) { b.Scenarios[1].Faults[0].Fired = 0 }, "in B the scenario did not show what it is for"},
		"unlisted": {func(b *harness.RunResult) {
			for i := range b.Scenarios[1].Rules {
				b.Scenarios[1].Rules[i].Found = 3
			}
		}, "B counts more findings of the rule than it lists"},
		"one seed of two": {func(b *harness.RunResult) {
			more := passed().Scenarios[1]
			more.Verdict, more.Rules = spec.Error, with(rules(1), spec.SIG2, spec.Unexercised)
			b.Scenarios = append(b.Scenarios, more)
		}, "in B a run of this scenario is an error"},
	} {
		b := passed()
		c.change(b)
		d := Diff("a", unproven(), "b", b)
		require.Empty(t, d.Gone, name)
		require.Len(t, d.NotShown, 1, name)
		require.Equal(t, c.why, d.NotShown[0].Why, name)
		require.Equal(t, spec.Inconclusive, d.Verdict, name)
	}
	d := Diff("a", passed(), "b", &harness.RunResult{Verdict: spec.Pass, Scenarios: passed().Scenarios[:1]})
	require.Equal(t, spec.Inconclusive, d.Verdict, "a scenario is missing")
	require.Equal(t, "A did not run this scenario", Diff("a", d0(), "b", unproven()).Appeared[0].Why)
}

func d0() *harness.RunResult { return &harness.RunResult{Scenarios: passed().Scenarios[:1]} }

func TestDiffOfSignals(t *testing.T) {
	a, b := passed(), passed()
	a.Signals = []check.SignalResult{
		{Signal: "ABORT_ACK/2", Claims: spec.ClaimsReceived, Inferred: spec.ClaimsDrained, Seen: 2},
		{Signal: "STATUS", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsStopped, Seen: 5},
		{Signal: "A", Seen: 1},
	}
	b.Signals = []check.SignalResult{{Signal: "STATUS", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsDrained, Seen: 9}, {Signal: "A", Seen: 3}}
	d := Diff("x", a, "y", b)
	var names []string
	for _, s := range d.Signals {
		names = append(names, s.Signal)
	}
	require.Equal(t, []string{"ABORT_ACK/2", "STATUS", "A"}, names, "those that changed come first")
	require.Nil(t, d.Signals[0].Now)
	require.Equal(t, &SignalProved{spec.ClaimsDrained, spec.ClaimsDrained, 9}, d.Signals[1].Now)
	var out bytes.Buffer
	require.NoError(t, DiffText(&out, d, Options{}))
	require.Contains(t, out.String(), "\n* STATUS                       drained, stopped        drained, drained\n")
}

func TestDiffForms(t *testing.T) {
	a := failed()
	d := Diff("runs/1", a, "runs/2", unproven())
	var b bytes.Buffer
	require.NoError(t, DiffText(&b, d, Options{}))
	golden(t, "diff.txt", b.Bytes())
	require.Error(t, DiffText(brokenWriter{}, d, Options{}))
	require.Error(t, DiffMarkdown(brokenWriter{}, d))

	b.Reset()
	require.NoError(t, DiffJSON(&b, d))
	res, err := strict(t).Validate(gojsonschema.NewBytesLoader(b.Bytes()))
	require.NoError(t, err)
	require.True(t, res.Valid(), "%v", res.Errors())
	var again Difference
	require.NoError(t, json.Unmarshal(b.Bytes(), &again))
	require.Equal(t, *d, again)
}

func TestHostileDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) string { return hostile().Draw(t, what) }
		r := unproven()
		r.Adapter, r.Engine, r.Scenarios[1].ID = draw("adapter"), draw("engine"), draw("id")
		r.Signals = []check.SignalResult{{Signal: draw("signal"), Claims: spec.Predicate(draw("claims"))}}
		for i := range r.Scenarios[1].Rules {
			for j := range r.Scenarios[1].Rules[i].Findings {
				r.Scenarios[1].Rules[i].Findings[j].Text = draw("text")
			}
		}
		d := Diff(draw("a"), r, draw("b"), passed())
		var md, text bytes.Buffer
		require.NoError(t, DiffMarkdown(&md, d))
		require.NoError(t, DiffText(&text, d, Options{}))
		require.Empty(t, outsideCode(md.String(), "<@["))
		for line := range strings.Lines(md.String() + text.String()) {
			require.Equal(t, line, Clean(strings.TrimSuffix(line, "\n"))+"\n")
			require.False(t, strings.HasPrefix(strings.TrimSpace(line), "::"), line)
		}
	})
}
