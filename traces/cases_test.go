package traces_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/traces"
)

const casesDir = "testdata/cases"

// judgesCases are bad input that no single line shows: a reader accepts them,
// and the judge finds that no order of their events exists.
var judgesCases = map[string]bool{"bad_observed_before_emitted_intervals": true}

type expectation struct {
	Verdict []string `json:"verdict"`
	Line    any      `json:"line"`
	File    string   `json:"file"`
}

// caseNames maps each case to its trace.
func caseNames(t testing.TB) map[string]string {
	t.Helper()
	expects, err := filepath.Glob(filepath.Join(casesDir, "*.expect.json"))
	require.NoError(t, err)
	require.NotEmpty(t, expects)
	paths := map[string]string{}
	for _, path := range expects {
		name := strings.TrimSuffix(filepath.Base(path), ".expect.json")
		trace := filepath.Join(casesDir, name)
		if _, err := os.Stat(trace); err != nil {
			trace += ".jsonl"
		}
		paths[name] = trace
	}
	return paths
}

func readExpectation(t *testing.T, name string) expectation {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(casesDir, name+".expect.json"))
	require.NoError(t, err)
	var want expectation
	require.NoError(t, json.Unmarshal(b, &want))
	return want
}

func TestCases(t *testing.T) {
	for name, path := range caseNames(t) {
		t.Run(name, func(t *testing.T) {
			want := readExpectation(t, name)
			got, err := traces.Read(path, nil)
			if want.Verdict[0] != "bad" || judgesCases[name] {
				require.NoError(t, err)
				require.NotEmpty(t, got.Events)
				return
			}
			require.Nil(t, got)
			var bad *traces.BadInput
			require.ErrorAs(t, err, &bad)
			require.EqualValues(t, want.Line, bad.Line, bad)
			file := want.File
			if file == "" {
				file = filepath.Base(path)
			}
			require.Equal(t, file, bad.File)
			require.NotEmpty(t, bad.Found)
			require.NotEmpty(t, bad.Expected)
		})
	}
}

// A trace means the same from a file and from standard input.
func TestCasesFromStdin(t *testing.T) {
	for name, path := range caseNames(t) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		if info.IsDir() {
			continue
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		fromFile, fileErr := traces.Read(path, nil)
		fromStdin, stdinErr := traces.Read("-", bytes.NewReader(b))
		if fileErr != nil {
			var want, got *traces.BadInput
			require.True(t, errors.As(fileErr, &want) && errors.As(stdinErr, &got), name)
			want.File = "-"
			require.Equal(t, want, got, name)
			continue
		}
		require.NoError(t, stdinErr, name)
		require.Equal(t, withoutPos(fromFile.Events), withoutPos(fromStdin.Events), name)
	}
}

func withoutPos(events []spec.Event) []spec.Event {
	for i := range events {
		events[i].Pos = spec.Position{}
	}
	return events
}

func TestBadInputJSON(t *testing.T) {
	b, err := json.Marshal(&traces.BadInput{File: "P.jsonl", Line: 3, Found: "x", Expected: "y"})
	require.NoError(t, err)
	require.JSONEq(t, `{"file":"P.jsonl","line":3,"found":"x","expected":"y"}`, string(b))
	require.EqualError(t, &traces.BadInput{File: "P.jsonl", Line: 3, Found: "x", Expected: "y"},
		"P.jsonl:3: found x, expected y")
	require.EqualError(t, &traces.BadInput{File: "P.jsonl", Found: "x", Expected: "y"}, "P.jsonl: found x, expected y")
}
