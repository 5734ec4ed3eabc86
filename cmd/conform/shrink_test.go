package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// What shrinking leaves of any finding of the corpus is a trace that the reader
// takes, seals included, and that shows the finding again.
func TestShrunkTracesAreTraces(t *testing.T) {
	files, err := filepath.Glob(casesDir + "/*.expect.json")
	require.NoError(t, err)
	sealed, byVerdict := 0, map[spec.Verdict]int{}
	for _, file := range files {
		path := file[:len(file)-len(".expect.json")]
		if _, err := os.Stat(path); err != nil {
			path += ".jsonl"
		}
		trace, whole, err := readAndJudge(t.Context(), path, nil, check.Options{})
		if err != nil {
			continue // bad input
		}
		for _, rule := range whole.Result.Ranked() {
			for _, f := range rule.Findings {
				small, err := check.Shrink(t.Context(), trace, whole.Result, f, check.ShrinkOptions{})
				require.NoError(t, err, "%s: %s", path, f.Text)
				var lines bytes.Buffer
				require.NoError(t, check.WriteTrace(&lines, small.Trace))
				again, err := traces.Read("-", bytes.NewReader(lines.Bytes()))
				require.NoError(t, err, "%s\n%s", path, lines.String())
				judged, err := check.Judge(t.Context(), again, check.Options{})
				require.NoError(t, err)
				require.Contains(t, allFindings(judged), small.Finding, "%s\n%s", path, lines.String())
				byVerdict[f.Verdict]++
				for i := range again.Events {
					if again.Events[i].K == spec.KindSeal {
						sealed++
						break
					}
				}
			}
		}
	}
	t.Logf("%v, %d of them with a seal", byVerdict, sealed)
	require.NotZero(t, sealed)
	for _, v := range []spec.Verdict{spec.Fail, spec.Unproven, spec.Inconclusive} {
		require.NotZero(t, byVerdict[v], v.String())
	}
}

func allFindings(r *check.Result) []check.Finding {
	var out []check.Finding
	for _, rule := range r.Rules {
		out = append(out, rule.Findings...)
	}
	return out
}
