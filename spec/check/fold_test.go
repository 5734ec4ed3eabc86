package check

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

// judgeFolded judges with blocks that are never told apart as one, however few
// there are.
func judgeFolded(tr *spec.Trace) (*Result, error) {
	c, err := newCourt(context.Background(), tr, Options{})
	if err != nil {
		return nil, err
	}
	if err := c.h.fold(-1); err != nil {
		return nil, err
	}
	if err := c.judge(); err != nil {
		return nil, err
	}
	return c.result(), nil
}

// Judging one block for all that share its history says what judging each says, of
// the first of them.
func TestFoldedTracesAreJudgedTheSame(t *testing.T) {
	folded, failed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := wild(t)
		// Each block becomes a run, and some events name a part of one only.
		const wide = 4
		for i := range w.tr.Events {
			e := &w.tr.Events[i]
			e.Count *= wide
			for j := range e.Blocks {
				r := &e.Blocks[j]
				r.First, r.Last = r.First*wide, r.Last*wide+wide-1
				if rapid.IntRange(0, 9).Draw(t, "part") == 0 {
					r.First, r.Last = r.First+1, r.Last-1
				}
			}
		}
		want, err := Judge(context.Background(), &w.tr, Options{})
		got, foldedErr := judgeFolded(&w.tr)
		if err != nil {
			require.Equal(t, err, foldedErr, "%s", w)
			return
		}
		require.NoError(t, foldedErr, "%s", w)
		folded++
		if want.Verdict == spec.Fail {
			failed++
		}
		require.Equal(t, want.Verdict, got.Verdict, "%s", w)
		require.Equal(t, want.Stats, got.Stats, "%s", w)
		require.Equal(t, want.Signals, got.Signals, "%s", w)
		require.Equal(t, want.Settled, got.Settled, "%s", w)
		require.NotEqual(t, want.Notes, got.Notes)
		for i := range want.Rules {
			a, b := want.Rules[i], got.Rules[i]
			require.Equal(t, a.Verdict, b.Verdict, "%s\n%s", a.ID, w)
			require.Equal(t, keysOf(a.Findings, false), keysOf(b.Findings, false), "%s\n%s", a.ID, w)
			require.Subset(t, keysOf(a.Findings, true), keysOf(b.Findings, true), "%s\n%s", a.ID, w)
		}
	})
	require.NotZero(t, folded)
	require.NotZero(t, failed)
	t.Logf("%d traces, %d of them fail", folded, failed)
}

// keysOf tells findings apart, by their blocks too or not.
func keysOf(findings []Finding, blocks bool) []string {
	out := []string{}
	for _, f := range findings {
		key := fmt.Sprint(f.Rule, f.Verdict, f.Handoff, f.Req, f.Events)
		if blocks {
			key += fmt.Sprint(f.Block, f.Text)
		}
		out = append(out, key)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// What few lines say of many blocks costs what the lines cost.
func TestManyBlocksOnFewLines(t *testing.T) {
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "m")
	const each, events = maxEventBlocks, 1000
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: each * events})
	for i := range int64(events) {
		w.add("D", "main", i+1, 0, spec.Event{K: spec.KindAlloc, Pool: "kv", Holder: "x", Req: "r1", Handoff: "h1", Blocks: spec.Blocks{{First: i * each, Last: i*each + each - 1}}})
	}
	w.add("D", "main", events+1, 0, spec.Event{K: spec.KindAlloc, Pool: "kv", Holder: "y", Req: "r2", Handoff: "h2", Blocks: spec.Blocks{{First: 5, Last: 9}}})
	var res *Result
	bytes := testing.AllocsPerRun(1, func() {
		var err error
		res, err = Judge(context.Background(), &w.tr, Options{})
		require.NoError(t, err)
	})
	require.Less(t, bytes, 100_000.0)
	require.Equal(t, spec.Fail, res.Verdict)
	require.Equal(t, each*events, res.Stats.Blocks)
	require.Equal(t, int64(5), res.Rules[0].Findings[0].Block.Number)
	require.Contains(t, res.Notes[0], "judged as one")
}

// A list may name as many parts of ranges as it is long, for each other line: that
// is bounded by how many lines there are.
func TestTooManyBlocksForSoFewLines(t *testing.T) {
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "m")
	const blocks = 100_000
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: blocks})
	apart := make(spec.Blocks, 0, blocks)
	for n := range int64(blocks) {
		apart = append(apart, spec.BlockRange{First: n, Last: n})
	}
	for i := range int64(10) {
		w.add("D", "main", 2*i+1, 0, spec.Event{K: spec.KindAlloc, Pool: "kv", Holder: "x", Blocks: apart})
		w.add("D", "main", 2*i+2, 0, spec.Event{K: spec.KindFree, Pool: "kv", Holder: "x", Blocks: apart})
	}
	_, err := Judge(context.Background(), &w.tr, Options{})
	var limit *LimitError
	require.ErrorAs(t, err, &limit)
	require.Equal(t, "block numbers", limit.What)
}
