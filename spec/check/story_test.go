package check

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// TestEveryFindingIsExplained explains every finding of the sample and of the
// rules' bad traces: what is missing and what would do is said for each rule, the
// events that prove it are marked, and the picture keeps its bounds.
func TestEveryFindingIsExplained(t *testing.T) {
	rules, absent := map[spec.RuleID]bool{}, map[spec.RuleID]bool{}
	caseTraces(t, func(t *testing.T, tr *spec.Trace, res *Result) {
		judged, err := Open(context.Background(), tr, Options{})
		require.NoError(t, err)
		require.Equal(t, res, judged.Result)
		for _, f := range findingsOf(res) {
			s, err := judged.Explain(f)
			require.NoError(t, err, f.Text)
			rules[f.Rule] = true
			require.NotEmpty(t, s.Must)
			require.NotEmpty(t, s.Missing, f.Text)
			require.NotEmpty(t, s.Enough, f.Text)
			marked := 0
			for _, r := range s.Lanes.Rows {
				if r.Witness {
					marked++
				}
			}
			if len(f.Events) > 0 {
				require.NotZero(t, marked, "%s\n%s", f.Text, s.Lanes)
			}
			require.Equal(t, marked, strings.Count("\n"+s.Lanes.String(), "\n>"))
			inPicture(t, s.Lanes)
			d, err := judged.Timeline(f)
			require.NoError(t, err)
			holdsTogether(t, d, &f)
			if d.Absent != nil {
				absent[f.Rule] = true
			}
		}
	})
	for id := range shouldHaveBeen {
		require.True(t, absent[id], "what %s lacks is drawn", id)
	}
	require.Len(t, rules, len(spec.Rules()))
}

// holdsTogether holds that all that a timeline has lies on its events and lanes, and
// that the events that prove the finding are there.
func holdsTogether(t *testing.T, d *Timeline, f *Finding) {
	t.Helper()
	n := len(d.Events)
	require.LessOrEqual(t, n, maxDrawn)
	marked, last := 0, int64(0)
	for _, e := range d.Events {
		require.Less(t, e.Worker, len(d.Workers))
		require.GreaterOrEqual(t, e.At, last, "time goes on")
		require.NotEmpty(t, e.Label+e.Text)
		if last = e.At; e.Witness {
			marked++
		}
	}
	require.NotZero(t, marked, f.Text)
	span := func(from, to float64) {
		require.GreaterOrEqual(t, from, -1.0)
		require.LessOrEqual(t, to, float64(n))
		require.Less(t, from, to)
	}
	for _, l := range d.Leases {
		span(l.From, l.To)
		require.Less(t, d.Blocks[l.Block].Worker, len(d.Workers))
		if f.Block != nil {
			require.Equal(t, *f.Block, d.Blocks[l.Block].ID)
		}
	}
	for _, a := range d.Accesses {
		span(a.From, a.To)
		require.Less(t, a.Worker, len(d.Workers))
	}
	for _, s := range d.Signals {
		require.Less(t, max(s.From, s.To), n)
		require.True(t, s.From >= 0 || s.To >= 0)
	}
	if a := d.Absent; a != nil {
		require.False(t, a.From >= 0 && a.From == a.To)
		require.Less(t, max(a.From, a.To), n)
		require.Less(t, max(a.FromWorker, a.ToWorker), len(d.Workers))
		require.GreaterOrEqual(t, min(a.FromWorker, a.ToWorker), 0)
		require.NotEmpty(t, a.Text)
	}
}

func inPicture(t *testing.T, l Lanes) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(l.String(), "\n"), "\n")
	require.LessOrEqual(t, len(lines), 40)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 100, line)
	}
}

// TestLongStory explains a finding of a long trace: the picture shows what is
// closest, and says how much it leaves out.
func TestLongStory(t *testing.T) {
	tr := cancelRace(1000, 3)
	judged, err := Open(context.Background(), tr, Options{})
	require.NoError(t, err)
	f := ruleResult(judged.Result, spec.BLK2).Findings[0]
	s, err := judged.Explain(f)
	require.NoError(t, err)
	require.Len(t, s.Lanes.Rows, maxRows)
	require.NotZero(t, s.Lanes.Left)
	kinds := map[string]int{}
	for _, r := range s.Lanes.Rows {
		kinds[strings.Fields(r.Text)[0]]++
	}
	for _, k := range []string{"alloc", "grant", "begin", "free", "end"} {
		require.NotZero(t, kinds[k], "%s\n%s", k, s.Lanes)
	}
	require.Contains(t, s.Lanes.String(), "more events of the slice")
	inPicture(t, s.Lanes)
	require.Len(t, s.Owners, 3)
	for i, word := range []string{"before: lease ", "then:   lease ", "after:  lease "} {
		require.True(t, strings.HasPrefix(s.Owners[i], word), s.Owners[i])
	}
	require.Contains(t, s.Owners[1], "why: cancel")

	f.Events = append(f.Events, spec.EventID{Src: "D", Seq: 1 << 40})
	_, err = judged.Explain(f)
	require.ErrorIs(t, err, ErrNoFinding)
	_, err = Shrink(context.Background(), tr, judged.Result, f, ShrinkOptions{})
	require.ErrorIs(t, err, ErrNoFinding)
}
