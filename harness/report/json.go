package report

import (
	"encoding/json"
	"io"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// JSON writes a run's result tree, indented, with a line end.
func JSON(w io.Writer, r *harness.RunResult, o Options) error {
	out := *r
	out.Rules, out.Signals = list(out.Rules), list(out.Signals)
	out.Scenarios = append([]harness.ScenarioResult{}, out.Scenarios...)
	for i := range out.Scenarios {
		sc := &out.Scenarios[i]
		sc.Branches, sc.Faults = list(sc.Branches), list(sc.Faults)
		sc.Capacity = list(sc.Capacity)
		sc.Rules, sc.Signals = ruleLists(sc.Rules), list(sc.Signals)
	}
	return Encode(w, struct {
		harness.RunResult
		Baseline *Applied `json:"baseline,omitempty"`
	}{out, o.Baseline})
}

// TraceJSON writes the result of judging one trace.
func TraceJSON(w io.Writer, r *check.Result, o Options) error {
	return Encode(w, struct {
		*check.Result
		Baseline *Applied `json:"baseline,omitempty"`
	}{listed(r), o.Baseline})
}

// listed is a result without a list that is null.
func listed(r *check.Result) *check.Result {
	out := *r
	out.Rules, out.Signals = ruleLists(out.Rules), list(out.Signals)
	return &out
}

// Failure is what a program is told where there is no verdict about the stack:
// bad input, a bad command line, or a harness that failed.
type Failure struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Found    string `json:"found"`
	Expected string `json:"expected"`
}

// FailureJSON writes {"verdict":"error","error":{…}} on one line.
func FailureJSON(w io.Writer, f Failure) error {
	return json.NewEncoder(w).Encode(struct {
		Verdict spec.Verdict `json:"verdict"`
		Error   Failure      `json:"error"`
	}{spec.Error, f})
}

// Encode writes any value the way all JSON of this program is written: indented,
// with a line end, and with < and > as they are.
func Encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// list is never null in JSON: programs iterate over it.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func ruleLists(rules []check.RuleResult) []check.RuleResult {
	out := append([]check.RuleResult{}, rules...)
	for i := range out {
		out[i].Findings = append([]check.Finding{}, out[i].Findings...)
		for j := range out[i].Findings {
			out[i].Findings[j].Events = list(out[i].Findings[j].Events)
		}
	}
	return out
}
