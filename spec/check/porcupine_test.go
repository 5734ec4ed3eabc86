package check

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

// failsForTest lists the findings of BLK-1 to BLK-4 that fail, while the court sits.
func (c *court) failsForTest() []Finding {
	var out []Finding
	for _, id := range []spec.RuleID{spec.BLK1, spec.BLK2, spec.BLK3, spec.BLK4} {
		for _, f := range c.rules[id].Findings {
			if f.Verdict == spec.Fail {
				out = append(out, f)
			}
		}
	}
	return out
}

// eachIsRefused holds that Porcupine refuses the minimal sub-history of each
// finding, and that nothing of it can be left out. It returns how many there are
// of each rule, and the longest.
func eachIsRefused(t require.TestingT, c *court, what string) (found map[spec.RuleID]int, longest int) {
	found = map[spec.RuleID]int{}
	for _, f := range c.failsForTest() {
		require.NotNil(t, f.about, f.Text)
		h, res, panicked := c.minimalFor(f.about)
		require.Empty(t, panicked, f.Text)
		require.Equal(t, porcupine.Illegal, res, "%s\n%s", f.Text, what)
		found[f.Rule]++
		longest = max(longest, len(h.steps))
		for _, u := range h.units() {
			if less := h.without(u); less.sound() {
				res, _ := c.refused(less)
				require.Equal(t, porcupine.Ok, res, "%s\n%s", f.Text, what)
			}
		}
	}
	return found, longest
}

// TestEachFailIsRefused draws traces on one clock and on two.
func TestEachFailIsRefused(t *testing.T) {
	total, longest := map[spec.RuleID]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			draw := rapid.SampledFrom([]func(*rapid.T) *writer{oneBlock, twoClocks}).Draw(t, "trace")
			w := draw(t)
			c := judgeForTest(t, &w.tr)
			if c == nil {
				continue
			}
			require.Empty(t, c.broken, "%s", w)
			found, n := eachIsRefused(t, c, w.String())
			for id := range found {
				total[id] += found[id]
			}
			longest = max(longest, n)
		}
	})
	t.Logf("%v, the longest of %d operations", total, longest)
	require.NotZero(t, total[spec.BLK2])
	require.NotZero(t, total[spec.BLK3])
}

// TestEachFailOfTheSampleIsRefused does the same for the judged sample.
func TestEachFailOfTheSampleIsRefused(t *testing.T) {
	total, longest := map[spec.RuleID]int{}, 0
	caseTraces(t, func(t *testing.T, tr *spec.Trace, _ *Result) {
		c := judgeForTest(t, tr)
		require.Empty(t, c.broken)
		found, n := eachIsRefused(t, c, "")
		for id := range found {
			total[id] += found[id]
		}
		longest = max(longest, n)
	})
	t.Logf("%v, the longest of %d operations", total, longest)
	for _, id := range []spec.RuleID{spec.BLK1, spec.BLK2, spec.BLK3, spec.BLK4} {
		require.NotZero(t, total[id], id)
	}
}

// TestAnAcceptedFailIsAnError claims of a fine access that it outlasted its lease:
// Porcupine does not refuse it, and the court says that its judges disagree.
func TestAnAcceptedFailIsAnError(t *testing.T) {
	rule, _ := spec.RuleByID(spec.BLK2)
	good, err := rule.Good()
	require.NoError(t, err)
	c := judgeForTest(t, parseTrace(t, good))
	require.Empty(t, c.broken)
	require.Equal(t, caseLegal, c.cases[0].state)
	c.find(c.finding(&c.cases[0], spec.BLK2, spec.Fail, c.cases[0].firstNumber(), []int32{c.cases[0].a.begin}, "a lie"))
	c.confirm()
	require.Len(t, c.broken, 1)
	require.Contains(t, c.broken[0], "a lie")
	require.Equal(t, spec.Error, c.result().Verdict)
}

// TestPorcupineAlone judges random traces of one block and one clock by Porcupine
// alone: BLK-2 and BLK-3 fail exactly where the solver fails one of them, and of a
// single access it is the same one.
func TestPorcupineAlone(t *testing.T) {
	byRule := map[spec.RuleID]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			w := oneBlock(t)
			chain, err := Judge(context.Background(), &w.tr, Options{})
			if err != nil {
				continue
			}
			alone, err := Judge(context.Background(), &w.tr, Options{Checker: CheckerPorcupine})
			require.NoError(t, err)
			require.NotEqual(t, spec.Error, alone.Verdict, "%v\n%s", alone.Notes, w)
			fails := func(r *Result, id spec.RuleID) bool { return ruleResult(r, id).Verdict == spec.Fail }
			require.Equal(t, fails(chain, spec.BLK2) || fails(chain, spec.BLK3), fails(alone, spec.BLK2) || fails(alone, spec.BLK3), "%s", w)
			if chain.Stats.Accesses == 1 {
				require.Equal(t, fails(chain, spec.BLK2), fails(alone, spec.BLK2), "%s", w)
			}
			for _, id := range []spec.RuleID{spec.BLK2, spec.BLK3} {
				if fails(alone, id) {
					byRule[id]++
				}
			}
		}
	})
	t.Log(byRule)
	require.NotZero(t, byRule[spec.BLK2])
	require.NotZero(t, byRule[spec.BLK3])
}

// TestPorcupineIsBounded gives it too little memory, and too little time.
func TestPorcupineIsBounded(t *testing.T) {
	w := offered(to("*"))
	for i := range 14 {
		id := string(rune('a' + i))
		w.on("P", id, 20, room(spec.KindBegin, acc(id), wide(100))).on("P", id, 20, spec.Event{K: spec.KindEnd, Access: id, T2: 100})
	}
	w.on("P", "late", 130, room(spec.KindBegin, acc("late"))).on("P", "late", 160, end("late")).at("D", 150, room(spec.KindFree))
	for _, o := range []Options{{BlockMemory: 1 << 20}, {BlockTimeout: 1}} {
		o.Checker = CheckerPorcupine
		res, err := Judge(context.Background(), &w.tr, o)
		require.NoError(t, err)
		require.Equal(t, spec.Inconclusive, ruleResult(res, spec.BLK2).Verdict)
		require.Equal(t, 1, res.Stats.Undecided)
		require.Contains(t, ruleResult(res, spec.BLK2).Findings[0].Text, "Porcupine did not decide the history of block 3 of d0/kv")
	}
}

// TestPictures draws each fail of the sample; what is no fail of a chain has no
// picture.
func TestPictures(t *testing.T) {
	drawn, refused := 0, 0
	caseTraces(t, func(t *testing.T, tr *spec.Trace, res *Result) {
		judged, err := Open(context.Background(), tr, Options{})
		require.NoError(t, err)
		for _, f := range findingsOf(res) {
			var page bytes.Buffer
			err := judged.Picture(f, &page)
			if !isChain(f.Rule) || f.Verdict != spec.Fail {
				require.ErrorIs(t, err, ErrNoPicture)
				refused++
				continue
			}
			require.NoError(t, err, f.Text)
			require.True(t, strings.HasPrefix(page.String(), "<!doctype html>"), page.String()[:40])
			for _, id := range f.Events[:1] {
				require.Contains(t, page.String(), fmt.Sprintf("(%s#%d)", id.Src, id.Seq), f.Text)
			}
			drawn++
		}
	})
	require.NotZero(t, drawn)
	require.NotZero(t, refused)
	judged, err := Open(context.Background(), cancelRace(50, 1), Options{})
	require.NoError(t, err)
	err = judged.Picture(Finding{Rule: spec.BLK2, Text: "x"}, io.Discard)
	require.ErrorIs(t, err, ErrNoFinding)
}

// TestUnorderedAccesses gives Porcupine accesses that the solver did not place.
func TestUnorderedAccesses(t *testing.T) {
	rule, _ := spec.RuleByID(spec.BLK2)
	good, err := rule.Good()
	require.NoError(t, err)
	bad, err := rule.Bad()
	require.NoError(t, err)
	for _, want := range []struct {
		trace   []byte
		memory  int64
		verdict spec.Verdict
	}{{good, 0, spec.Pass}, {bad, 0, spec.Fail}, {good, 1, spec.Inconclusive}} {
		c := judgeForTest(t, parseTrace(t, want.trace))
		c.rules[spec.BLK2] = &RuleResult{ID: spec.BLK2, Verdict: spec.Unexercised}
		if want.memory > 0 {
			c.opt.BlockMemory = want.memory
		}
		c.unordered([]*accessCase{&c.cases[0]})
		r := c.rules[spec.BLK2]
		require.Equal(t, want.verdict, r.Verdict)
		if want.verdict == spec.Pass {
			require.Empty(t, r.Findings)
			continue
		}
		require.Len(t, r.Findings, 1)
		require.Contains(t, r.Findings[0].Text, "block 3 of d0/kv")
	}
}

// TestLongLeaseIsLeftToTheSolver fails an access to a lease with more mutations
// than a sub-history holds: the verdict stands, and the notes say who gave it.
func TestLongLeaseIsLeftToTheSolver(t *testing.T) {
	w := offered(to("*")).at("P", 20, room(spec.KindBegin, acc("a")))
	for i := range maxSteps {
		w.at("D", 21, room(spec.KindHold, holder(fmt.Sprint("h", i)))).at("D", 21, room(spec.KindDrop, holder(fmt.Sprint("h", i))))
	}
	w.at("D", 30, room(spec.KindFree)).at("P", 40, end("a"))
	res, err := Judge(context.Background(), &w.tr, Options{})
	require.NoError(t, err)
	require.Equal(t, spec.Fail, ruleResult(res, spec.BLK2).Verdict)
	require.Equal(t, spec.Fail, res.Verdict)
	require.Equal(t, 1, res.Stats.Undecided)
	require.Contains(t, strings.Join(res.Notes, "\n"), "the solver's proof stands alone: access a ")
}
