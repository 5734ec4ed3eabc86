package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"conform/spec"
)

// casesDir holds traces with the verdicts that are right for them.
const casesDir = "../../traces/testdata/cases"

// expectation is NAME.expect.json: each list holds what is right.
type expectation struct {
	Verdict []string              `json:"verdict"`
	Exit    []int                 `json:"exit"`
	Rules   map[spec.RuleID]oneOf `json:"rules"`
	Line    any                   `json:"line"`
	File    string                `json:"file"`
}

// oneOf is a word or a list of words either of which is right.
type oneOf []string

func (o *oneOf) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*o = oneOf{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(o))
}

// output is what conform check --format json writes.
type output struct {
	Verdict string `json:"verdict"`
	Rules   []struct {
		ID       spec.RuleID `json:"id"`
		Verdict  string      `json:"verdict"`
		Findings []struct {
			Text string `json:"text"`
		} `json:"findings"`
	} `json:"rules"`
	Error *struct {
		File     string `json:"file"`
		Line     int    `json:"line"`
		Found    string `json:"found"`
		Expected string `json:"expected"`
	} `json:"error"`
}

// Each case of the corpus, through the command line.
func TestCases(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(casesDir, "*.expect.json"))
	require.NoError(t, err)
	require.Greater(t, len(paths), 100, "the corpus is there")
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".expect.json")
		t.Run(name, func(t *testing.T) { checkCase(t, casesDir, name) })
	}
}

// The cases in independent.txtar were written from TRACE.md alone, by somebody
// who had not seen the judges.
func TestIndependentCases(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/independent.txtar")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, txtar.Write(archive, dir))
	names := 0
	for _, f := range archive.Files {
		if name, ok := strings.CutSuffix(f.Name, ".expect.json"); ok {
			names++
			t.Run(name, func(t *testing.T) { checkCase(t, dir, name) })
		}
	}
	require.Greater(t, names, 300, "the corpus is there")
}

func checkCase(t *testing.T, dir, name string) {
	var want expectation
	b, err := os.ReadFile(filepath.Join(dir, name+".expect.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &want))
	trace := filepath.Join(dir, name)
	if _, err := os.Stat(trace); err != nil {
		trace += ".jsonl"
	}

	c := newCall(realBackend())
	status := c.main(t.Context(), []string{"check", "--format", "json", trace})
	var got output
	require.NoError(t, json.Unmarshal(c.out.Bytes(), &got), c.out.String())

	if slices.Contains(want.Verdict, "bad") {
		require.Equal(t, statusUsage, status)
		require.Equal(t, "error", got.Verdict)
		require.NotNil(t, got.Error)
		if want.Line != "any" {
			require.EqualValues(t, want.Line, got.Error.Line, "%+v", *got.Error)
		}
		if want.File != "" {
			require.Equal(t, filepath.Base(want.File), filepath.Base(got.Error.File))
		}
		require.NotEmpty(t, got.Error.Found)
		require.NotEmpty(t, got.Error.Expected)
		require.Equal(t, 1, strings.Count(c.errs.String(), "\n"), c.errs.String())
		return
	}
	require.Empty(t, c.errs.String())
	require.Len(t, got.Rules, len(spec.Rules()))
	for _, r := range got.Rules {
		if right, ok := want.Rules[r.ID]; ok {
			require.Contains(t, right, r.Verdict, "%s: %s", r.ID, r.Findings)
		}
	}
	require.Contains(t, want.Verdict, got.Verdict)
	require.Contains(t, want.Exit, status)
}
