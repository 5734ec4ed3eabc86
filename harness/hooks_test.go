package harness

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
)

func sourceWith(src, hooks string) spec.Event {
	return spec.Event{Src: src, K: spec.KindSource, Worker: src, Role: spec.RoleDecode, Hooks: json.RawMessage(hooks)}
}

func TestHooksOfATrace(t *testing.T) {
	tr := &spec.Trace{Events: []spec.Event{
		sourceWith("d", `{"asked":4,"bound":3,"missing":{"REQ-1":["b","a"]}}`),
		sourceWith("none", ""),
		sourceWith("other", `[1,2]`),
		{Src: "d", K: spec.KindNote, Text: `{"hooks":{"fired":{"x":2,"y":0,"z":1}}}`},
		{Src: "d", K: spec.KindNote, Text: `{"hooks":17}`},
		{Src: "d", K: spec.KindNote, Text: `{"hooks":`},
		{Src: "p", K: spec.KindNote, Text: `{"hooks":{"asked":1,"bound":1,"fired":1}}`},
		{Src: "q", K: spec.KindNote, Text: `{"hooks":{"asked":1,"bound":1,"fired":"many"}}`},
	}}
	require.Equal(t, []HookReport{
		{Source: "d", Asked: 4, Bound: 3, Fired: 2, Missing: map[spec.RuleID][]string{spec.REQ1: {"b", "a"}}},
		{Source: "p", Asked: 1, Bound: 1, Fired: 1},
		{Source: "q", Asked: 1, Bound: 1, Fired: -1},
	}, HooksOf(tr))
}

func TestServedAddsToWhatSourcesSaid(t *testing.T) {
	reports := addServed([]HookReport{{Source: "p", Asked: 4, Bound: 4, Fired: -1}}, map[string]any{
		"p": map[string]any{"fired": 3, "errors": map[string]any{"b": "KeyError", "a": "x"}}, "d": map[string]any{"asked": 2, "bound": 1, "missing": map[string]any{"BLK-1": []string{"x"}}},
		"odd": make(chan int), "word": "text",
	})
	require.Equal(t, []HookReport{
		{Source: "d", Asked: 2, Bound: 1, Fired: -1, Missing: map[spec.RuleID][]string{spec.BLK1: {"x"}}},
		{Source: "p", Asked: 4, Bound: 4, Fired: 3, Errors: map[string]string{"a": "x", "b": "KeyError"}},
	}, reports)
	require.Equal(t, "hooks that failed while they recorded: p/a (x), p/b (KeyError)", failedHooks(reports))
	require.Empty(t, failedHooks(reports[:1]))
}

// A missing hook takes back a pass and what was not exercised, and nothing else.
func TestHoldToHooks(t *testing.T) {
	res := &check.Result{Verdict: spec.Pass, Rules: []check.RuleResult{
		{ID: spec.BLK1, Verdict: spec.Pass},
		{ID: spec.BLK2, Verdict: spec.Fail},
		{ID: spec.BLK3, Verdict: spec.Unexercised},
		{ID: spec.REQ3, Verdict: spec.Unproven},
		{ID: spec.REQ4, Verdict: spec.Pass},
	}}
	missing := map[spec.RuleID][]string{spec.BLK1: {"x"}, spec.BLK2: {"x"}, spec.BLK3: {"y"}, spec.REQ3: {"y"}}
	HoldToHooks([]HookReport{{Source: "b", Missing: missing}, {Source: "a", Missing: map[spec.RuleID][]string{spec.BLK1: {"x"}}}}, res)
	var got []spec.Verdict
	for _, r := range res.Rules {
		got = append(got, r.Verdict)
	}
	require.Equal(t, []spec.Verdict{spec.Inconclusive, spec.Fail, spec.Inconclusive, spec.Unproven, spec.Pass}, got)
	require.Equal(t, spec.Inconclusive, res.Verdict)
	require.Contains(t, res.Notes, "BLK-1 is judged without the hooks a/x, b/x, which did not bind")
	require.Len(t, res.Notes, 4)
	fine := &check.Result{Verdict: spec.Pass, Rules: []check.RuleResult{{ID: spec.BLK1, Verdict: spec.Pass}}}
	HoldToHooks([]HookReport{{Source: "b"}}, fine)
	require.Equal(t, spec.Pass, fine.Verdict)
}

func TestCapacityOfATrace(t *testing.T) {
	extra := func(v string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"configured": json.RawMessage(v)}
	}
	tr := &spec.Trace{Events: []spec.Event{
		{K: spec.KindCapacity, Stage: "decode", Limit: 9, Unit: "request", Why: "slots", Extra: extra("16")},
		{K: spec.KindCapacity, Stage: "decode", Limit: 99, Unit: "token", Why: "pool"},
		{K: spec.KindCapacity, Stage: "decode", Limit: 100, Unit: "token", Why: "pool"},
		{K: spec.KindCapacity, Stage: "prefill", Limit: 50, Unit: "token", Extra: extra(`"many"`)},
		{K: spec.KindCapacity, Stage: "store", Limit: 1, Unit: "page"},
		{K: spec.KindCapacity, Stage: "store", Limit: 7, Unit: "configured shelf", Why: "a setting"},
		{K: spec.KindSubmit, Limit: 2048, Unit: "token"},
	}}
	require.Equal(t, []Capacity{
		{"prefill", 2048, 50, "token", ""},
		{"decode", 16, 9, "request", "slots"},
		{"decode", 2048, 100, "token", "pool"},
		{"store", 0, 1, "page", ""},
		{"store", 7, 0, "shelf", "a setting"},
	}, CapacityOf(tr))
}
