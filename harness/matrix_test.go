package harness

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/adapters/reference"
	"conform/spec"
)

// A small part of the matrix: what a scenario catches, what it does not, and that a
// defect without a scenario that catches it is told of.
func TestMatrixTellsWhoCatchesWhat(t *testing.T) {
	var seen []string
	m, err := RunMatrix(t.Context(), MatrixConfig{
		Dir: t.TempDir(), Defects: []string{"admits-configured-context", "failed-not-sticky"}, Scenarios: []string{"reject-prefill-capacity"},
		Progress: func(c MatrixCell) { seen = append(seen, c.Defect) },
	})
	require.NoError(t, err)
	require.Len(t, seen, 5, "the correct stack and the one defect in both modes, the other in its own")
	for _, c := range m.Cells {
		switch c.Defect {
		case "":
			require.Equal(t, spec.Pass, c.Verdict, c.Why)
			require.Empty(t, c.Rules)
		case "admits-configured-context":
			require.True(t, c.Caught)
			require.Equal(t, []spec.RuleID{spec.REQ5}, c.Rules)
		default:
			require.False(t, c.Caught, "%s can't be caught where nothing is cancelled: %v", c.Defect, c.Rules)
		}
	}
	require.Equal(t, []string{"failed-not-sticky"}, m.Missed())
	require.Equal(t, map[string][]string{"reject-prefill-capacity": {"admits-configured-context"}}, m.Alone)
}

func TestMatrixOfWhatDoesNotExist(t *testing.T) {
	_, err := RunMatrix(t.Context(), MatrixConfig{Dir: t.TempDir(), Defects: []string{"no-such"}})
	require.ErrorContains(t, err, `unknown defect "no-such"`)
	_, err = RunMatrix(t.Context(), MatrixConfig{Dir: t.TempDir(), Scenarios: []string{"no-such"}})
	require.ErrorContains(t, err, `unknown scenario "no-such"`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = RunMatrix(ctx, MatrixConfig{Dir: t.TempDir(), Defects: []string{"free-at-cancel"}, Scenarios: []string{"baseline"}})
	require.ErrorIs(t, err, context.Canceled)
}

// What two scenarios catch, none of them catches alone.
func TestCaughtAlone(t *testing.T) {
	m := &Matrix{Cells: []MatrixCell{
		{Defect: "a", Scenario: "x", Caught: true},
		{Defect: "a", Scenario: "x", Mode: "pull", Caught: true},
		{Defect: "b", Scenario: "x", Caught: true},
		{Defect: "b", Scenario: "y", Caught: true},
		{Defect: "c", Scenario: "y"},
	}}
	m.alone()
	require.Equal(t, map[string][]string{"x": {"a"}, "y": {}}, m.Alone)
	require.Equal(t, []string{"c"}, m.Missed())
}

// The track record has a row for each defect in each mode that it has, under the
// scenario that forces it first, found with every seed.
func TestTrackRecordIsWhole(t *testing.T) {
	rows, err := TrackRecord()
	require.NoError(t, err)
	have := map[[2]string]Found{}
	for _, r := range rows {
		have[[2]string{r.Defect, r.Mode}] = r
	}
	n := 0
	for _, d := range reference.Defects() {
		s, ok := ScenarioByID(d.Scenarios[0])
		require.True(t, ok)
		modes := s.Modes(referenceInfo)
		if d.Mode != "" {
			require.Contains(t, modes, d.Mode)
			modes = []string{d.Mode}
		}
		for _, mode := range modes {
			r, ok := have[[2]string{d.Name, mode}]
			require.True(t, ok, "%s in mode %s has no row; see TrackRecord", d.Name, mode)
			require.Equal(t, d.Scenarios[0], r.Scenario, d.Name)
			require.Equal(t, r.Of, r.Found, "%s: some seeds did not show it", d.Name)
			require.GreaterOrEqual(t, r.Of, 20, d.Name)
			n++
		}
	}
	require.Len(t, rows, n, "rows of defects that are no more")
}
