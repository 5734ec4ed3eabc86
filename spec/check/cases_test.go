package check_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
)

// parse reads JSON Lines into a trace: all that these tests need of a reader.
func parse(t testing.TB, name string, data []byte) *spec.Trace {
	t.Helper()
	tr := &spec.Trace{}
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		e, err := spec.ParseEvent(line)
		require.NoError(t, err, "%s:%d", name, i+1)
		e.Pos = spec.Position{File: name, Line: i + 1}
		tr.Events = append(tr.Events, e)
	}
	return tr
}

// words is a word or a list of words of which any is right.
type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(w))
}

type expectation struct {
	Verdict words                 `json:"verdict"`
	Rules   map[spec.RuleID]words `json:"rules"`
	Note    string                `json:"note"`
}

// TestCases judges every case of the judged sample that is one file and not bad
// input by its lines alone.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.expect.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".expect.json")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var want expectation
			require.NoError(t, json.Unmarshal(raw, &want))
			data, err := os.ReadFile("testdata/cases/" + name + ".jsonl")
			require.NoError(t, err)
			got, err := check.Judge(context.Background(), parse(t, name, data), check.Options{Checker: check.CheckerBoth})
			if slices.Contains(want.Verdict, "bad") {
				var bad *check.BadTrace
				require.True(t, errors.As(err, &bad), "%v", err)
				require.NotZero(t, bad.Pos.Line)
				return
			}
			require.NoError(t, err)
			compare(t, want, got)
		})
	}
}

func compare(t *testing.T, want expectation, got *check.Result) {
	t.Helper()
	text, _ := json.MarshalIndent(got, "", " ")
	for _, r := range got.Rules {
		if w, listed := want.Rules[r.ID]; listed {
			require.Contains(t, w, r.Verdict.String(), "%s (%s)\n%s", r.ID, want.Note, text)
		}
	}
	require.Contains(t, want.Verdict, got.Verdict.String(), "%s\n%s", want.Note, text)
}

// TestEventsRoundTrip holds that what is written back is what was read, for every
// line of the sample.
func TestEventsRoundTrip(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.jsonl")
	require.NoError(t, err)
	kinds := map[spec.Kind]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, e := range parse(t, file, data).Events {
			e.Pos = spec.Position{}
			again, err := spec.ParseEvent(e.AppendJSON(nil))
			require.NoError(t, err)
			require.Equal(t, e, again)
			kinds[e.K] = true
		}
	}
	require.Greater(t, len(kinds), 20)
}
