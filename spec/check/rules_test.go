package check_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
)

// TestRuleTraces judges the minimal traces of the registry: a bad one fails its
// rule and no other, a good one exercises its rule and passes as a whole.
func TestRuleTraces(t *testing.T) {
	for _, rule := range spec.Rules() {
		t.Run(string(rule.ID)+"/bad", func(t *testing.T) {
			data, err := rule.Bad()
			require.NoError(t, err)
			res := judge(t, string(rule.ID), data)
			for _, r := range res.Rules {
				switch {
				case r.ID == spec.SIG2 && rule.ID == spec.SIG2:
					require.Equal(t, spec.Unproven, r.Verdict)
				case r.ID == rule.ID:
					require.Equal(t, spec.Fail, r.Verdict)
				default:
					require.LessOrEqual(t, r.Verdict, spec.Pass, "%s: %v", r.ID, r.Findings)
				}
				if r.ID == rule.ID {
					require.Len(t, r.Findings, 1)
					require.NotEmpty(t, r.Findings[0].Events)
					require.Equal(t, rule.Harm, r.Findings[0].Harm)
					require.Equal(t, r.Verdict, res.Verdict)
				}
			}
		})
		t.Run(string(rule.ID)+"/good", func(t *testing.T) {
			data, err := rule.Good()
			require.NoError(t, err)
			res := judge(t, string(rule.ID), data)
			for _, r := range res.Rules {
				require.LessOrEqual(t, r.Verdict, spec.Pass, "%s: %v", r.ID, r.Findings)
				if r.ID == rule.ID {
					require.Equal(t, spec.Pass, r.Verdict)
					require.Equal(t, spec.Pass, res.Verdict)
				}
			}
		})
	}
}

// judge judges JSON Lines and holds what must hold of every result.
func judge(t *testing.T, name string, data []byte) *check.Result {
	t.Helper()
	res, err := check.Judge(context.Background(), parse(t, name, data), check.Options{Checker: check.CheckerBoth})
	require.NoError(t, err)
	require.Len(t, res.Rules, 16)
	text, err := json.Marshal(res)
	require.NoError(t, err)
	require.NotContains(t, string(text), `"findings":null`)
	require.NotContains(t, string(text), `"events":null`)
	return res
}
