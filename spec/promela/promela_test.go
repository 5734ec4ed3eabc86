package promela_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
	"conform/spec/explore"
	"conform/spec/promela"
)

// needSpin skips where SPIN can't run.
func needSpin(t *testing.T) {
	t.Helper()
	if missing := promela.Missing(); len(missing) > 0 {
		t.Skipf("%s not here (Debian: apt-get install spin gcc)", strings.Join(missing, " and "))
	}
}

// small is a scope that SPIN visits in a moment.
func small(mode explore.Mode) promela.Config {
	return promela.Config{Mode: mode, Blocks: 1, Requests: 1, Loss: true, Doubles: 1, Crashes: 1}
}

func verify(t *testing.T, c promela.Config) (dir string, s promela.Stats) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	dir = t.TempDir()
	begun := time.Now()
	s, err := promela.Verify(ctx, dir, c)
	require.NoError(t, err)
	t.Logf("%s, %d blocks, %d requests, loss %t, %d doubled, %d crashes, without %q: %d states, %d transitions, %v",
		c.Mode, c.Blocks, c.Requests, c.Loss, c.Doubles, c.Crashes, c.Without, s.States, s.Transitions, time.Since(begun).Round(time.Millisecond))
	return dir, s
}

// TestCorrectProtocol has SPIN check the whole protocol for one request.
func TestCorrectProtocol(t *testing.T) {
	needSpin(t)
	for _, mode := range []explore.Mode{explore.Push, explore.Pull} {
		_, s := verify(t, small(mode))
		require.False(t, s.Broken)
		require.Greater(t, s.States, 1000)
	}
}

// TestSomeGuards has SPIN find what some guards are for; TestLongEveryGuard does
// it for all.
func TestSomeGuards(t *testing.T) {
	needSpin(t)
	judgeGuard(t, explore.Push, guard(t, "ack-drained"), spec.SIG1)
	judgeGuard(t, explore.Pull, guard(t, "fence-first"), spec.BLK2)
}

func guard(t *testing.T, name string) explore.Guard {
	t.Helper()
	g, ok := explore.GuardByName(name)
	require.True(t, ok)
	return g
}

// judgeGuard has SPIN find the shortest run that breaks the rule without the
// guard. The judge must find the rule broken in its trace, with the same verdict
// as in that of package explore's run.
func judgeGuard(t *testing.T, mode explore.Mode, g explore.Guard, rule spec.RuleID) {
	t.Helper()
	c := small(mode)
	c.Crashes, c.Without, c.Want, c.Shortest = 0, g.Name, rule, true
	dir, s := verify(t, c)
	if !s.Broken {
		c.Requests, c.Loss, c.Doubles, c.Shortest = 2, false, 0, false
		dir, s = verify(t, c)
	}
	require.True(t, s.Broken, "idle in %s: without %s nothing breaks %s", mode, g.Name, rule)
	tr, err := promela.Trail(context.Background(), dir, c)
	require.NoError(t, err)
	theirs := verdict(t, tr, rule)

	v, err := explore.Counterexample(context.Background(), mode, g, rule)
	require.NoError(t, err)
	require.NotNil(t, v)
	ours := verdict(t, v.Trace, rule)
	require.Equal(t, ours, theirs, "%s %s %s\n%s", mode, g.Name, rule, lines(tr))
	if ours != spec.NotJudged {
		require.GreaterOrEqual(t, theirs, spec.Unproven, "%s %s %s\n%s", mode, g.Name, rule, lines(tr))
	}
	if rule != spec.SIG2 && rule != spec.REQ2 && ours != spec.NotJudged {
		require.Equal(t, spec.Fail, theirs)
	}
}

// verdict is what the judge says of a rule.
func verdict(t *testing.T, tr *spec.Trace, rule spec.RuleID) spec.Verdict {
	t.Helper()
	res, err := check.Judge(context.Background(), tr, check.Options{})
	require.NoError(t, err, "%s", lines(tr))
	i := slices.IndexFunc(res.Rules, func(r check.RuleResult) bool { return r.ID == rule })
	require.GreaterOrEqual(t, i, 0)
	return res.Rules[i].Verdict
}

func lines(tr *spec.Trace) string {
	var b strings.Builder
	for i := range tr.Events {
		b.Write(append(tr.Events[i].AppendJSON(nil), '\n'))
	}
	return b.String()
}

func TestConvertRefuses(t *testing.T) {
	for _, text := range []string{
		"EV O", "EV O alloc", "EV O alloc 2 0", "EV O alloc 0", "EV O alloc 0 x", "EV O observe 0 DONE",
		"EV H drop 0 DONE", "EV O dance 0", "EV H exit", "EV O emit 0",
	} {
		_, err := promela.Convert(small(explore.Push), strings.NewReader(text))
		require.ErrorIs(t, err, promela.ErrTrail, text)
	}
	tr, err := promela.Convert(small(explore.Push), strings.NewReader("spin: trail ends after 3 steps\n   EV C submit 0 1\n"))
	require.NoError(t, err)
	require.Len(t, tr.Events, 4+2+1+4, "sources, pool and capacity, the event, seals")
}

func TestVerifyRefuses(t *testing.T) {
	c := small(explore.Push)
	c.Without = "no-such-guard"
	_, err := promela.Verify(context.Background(), t.TempDir(), c)
	require.ErrorContains(t, err, "no-such-guard")
	c = small(explore.Push)
	c.Want = "XYZ-1"
	_, err = promela.Verify(context.Background(), t.TempDir(), c)
	require.ErrorContains(t, err, "XYZ-1")
	_, err = promela.Verify(context.Background(), filepath.Join(t.TempDir(), "none"), small(explore.Push))
	require.Error(t, err)
}

// TestTheModelsHaveTheSameGuards holds that the two models agree on what guards
// there are, by name.
func TestTheModelsHaveTheSameGuards(t *testing.T) {
	text, err := os.ReadFile("handoff.pml")
	require.NoError(t, err)
	macros := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#ifn?def NO_([A-Z_]+)`).FindAllStringSubmatch(string(text), -1) {
		macros[strings.ReplaceAll(strings.ToLower(m[1]), "_", "-")] = true
	}
	for _, g := range explore.Guards() {
		require.True(t, macros[g.Name], "the model in Promela has no guard %s", g.Name)
		delete(macros, g.Name)
	}
	require.Empty(t, macros)
}
