package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// TestClauses holds the judge to each clause of TRACE.md's "Judging", on both of
// its sides: the rule gets the verdict that the file is named for.
func TestClauses(t *testing.T) {
	clauses, err := spec.Clauses()
	require.NoError(t, err)
	sides := map[spec.RuleID]map[spec.Verdict]int{}
	for _, c := range clauses {
		if sides[c.Rule] == nil {
			sides[c.Rule] = map[spec.Verdict]int{}
		}
		sides[c.Rule][c.Want]++
		t.Run(c.ID(), func(t *testing.T) {
			res := judge(t, c.ID(), c.Trace)
			for _, r := range res.Rules {
				if r.ID != c.Rule {
					continue
				}
				require.Equal(t, c.Want, r.Verdict, "%v", r.Findings)
				require.Equal(t, c.Want >= spec.Inconclusive, len(r.Findings) > 0)
			}
			require.GreaterOrEqual(t, res.Verdict, c.Want)
		})
	}
	for _, r := range spec.Rules() { // a table with no failing side would hold nothing
		require.NotZero(t, sides[r.ID][spec.Pass], r.ID)
		require.NotZero(t, sides[r.ID][spec.Fail]+sides[r.ID][spec.Unproven], r.ID)
	}
}

// TestClausesByTheText holds the judge that tries every order, which was written
// from the text alone, to the same table.
func TestClausesByTheText(t *testing.T) {
	clauses, err := spec.Clauses()
	require.NoError(t, err)
	compared := 0
	for _, c := range clauses {
		b := bruteJudge(parse(t, c.ID(), c.Trace))
		require.NotNil(t, b, c.ID())
		if b.vague || b.open[c.Rule] {
			continue
		}
		compared++
		got := b.verdict[c.Rule]
		if got == nil {
			got = verdicts{spec.Unexercised}
		}
		require.Contains(t, got, c.Want, c.ID())
	}
	require.Greater(t, compared, len(clauses)*9/10)
}
