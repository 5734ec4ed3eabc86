package explore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
	"conform/spec/explore"
)

// TestEveryGuardIsNeeded takes each guard away in turn. There must be a run that
// breaks each rule that the guard protects, and the judge, which knows nothing of
// the model, must say so of its trace.
func TestEveryGuardIsNeeded(t *testing.T) {
	for _, mode := range []explore.Mode{explore.Push, explore.Pull} {
		for _, g := range explore.Guards() {
			for _, rule := range g.Protects {
				if !g.In(mode) {
					continue
				}
				t.Run(strings.Join([]string{mode.String(), g.Name, string(rule)}, "/"), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					begun := time.Now()
					v, err := explore.Counterexample(ctx, mode, g, rule)
					require.NoError(t, err)
					require.NotNil(t, v, "idle: without %s nothing breaks %s", g.Name, rule)
					require.Contains(t, v.Rules, rule)
					t.Logf("%d steps, %d events, %v", len(v.Steps), len(v.Trace.Events), time.Since(begun).Round(time.Millisecond))
					judgedBroken(t, v, rule)
				})
			}
		}
	}
}

// judgedBroken holds that the judge says of the trace what the explorer says.
func judgedBroken(t *testing.T, v *explore.Violation, rule spec.RuleID) {
	t.Helper()
	res, err := check.Judge(context.Background(), v.Trace, check.Options{})
	require.NoError(t, err, "%s", text(v))
	for _, r := range res.Rules {
		if r.ID != rule {
			continue
		}
		want := spec.Fail
		if rule == spec.SIG2 || rule == spec.REQ2 { // luck: nothing forced the order
			want = spec.Unproven
		}
		require.GreaterOrEqual(t, r.Verdict, want, "%s\n%v", text(v), r.Findings)
	}
	require.GreaterOrEqual(t, res.Verdict, spec.Unproven)
	require.NotEqual(t, spec.Error, res.Verdict)
}

// text is a run for a person.
func text(v *explore.Violation) string {
	var b strings.Builder
	b.WriteString(strings.Join(v.Steps, "\n") + "\n")
	for i := range v.Trace.Events {
		b.Write(append(v.Trace.Events[i].AppendJSON(nil), '\n'))
	}
	return b.String()
}

// TestEveryRuleIsProtected holds that no rule is without a guard, in either mode
// in which the protocol has something that could break it.
func TestEveryRuleIsProtected(t *testing.T) {
	protected := map[spec.RuleID]bool{}
	for _, g := range explore.Guards() {
		require.NotEmpty(t, g.Holds)
		require.NotEmpty(t, g.Protects)
		require.NotEmpty(t, g.Modes)
		for _, rule := range g.Protects {
			protected[rule] = true
		}
	}
	for _, rule := range spec.Rules() {
		require.True(t, protected[rule.ID], "no guard protects %s", rule.ID)
	}
}
