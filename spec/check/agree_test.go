package check

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

// writer makes traces for tests: it numbers the events of each source and keeps
// t from decreasing within a thread.
type writer struct {
	tr  spec.Trace
	seq map[string]uint64
	t   map[spec.Thread]int64
}

func newWriter() *writer { return &writer{seq: map[string]uint64{}, t: map[spec.Thread]int64{}} }

func (w *writer) add(src, th string, t, width int64, e spec.Event) {
	e.Src, e.Th, e.Seq = src, th, w.seq[src]
	w.seq[src]++
	e.T = max(t, w.t[e.Thread()])
	e.T2 = e.T + width
	w.t[e.Thread()] = e.T
	e.Pos = spec.Position{File: "test", Line: len(w.tr.Events) + 1}
	w.tr.Events = append(w.tr.Events, e)
}

func (w *writer) source(src, worker string, role spec.Role, clock string) {
	w.add(src, "main", 0, 0, spec.Event{K: spec.KindSource, Worker: worker, Role: role, Host: "h", Clock: clock})
}

// String is the trace as JSON Lines, for a failure that one wants to look at.
func (w *writer) String() string {
	var b strings.Builder
	for i := range w.tr.Events {
		b.Write(w.tr.Events[i].AppendJSON(nil))
		b.WriteByte('\n')
	}
	return b.String()
}

// oneBlock draws the life of one block on one clock: a few leases with grants,
// revokes and a fence, and accesses that mostly, but not always, lie within them.
func oneBlock(t *rapid.T) *writer {
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "m")
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 8})
	w.source("P", "p0", spec.RolePrefill, "m")
	at := int64(10)
	num := func(max int, label string) int64 { return int64(rapid.IntRange(0, max).Draw(t, label)) }
	width := func() int64 { return num(3, "width") * num(2, "times") }
	threads := []string{"main", "net"}
	th := func() string { return rapid.SampledFrom(threads).Draw(t, "thread") }
	block := spec.MakeBlocks(3)
	leases := int(num(2, "leases")) + 1
	for l := range leases {
		h := fmt.Sprintf("room-%d", l)
		at += num(6, "gap")
		w.add("D", th(), at, width(), spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: block, Holder: h, Handoff: h})
		at += num(4, "gap")
		w.add("D", th(), at, width(), spec.Event{K: spec.KindGrant, Pool: "kv", Blocks: block, Handoff: h, To: "p0", Mode: "w"})
		if num(3, "revoke") == 0 {
			w.add("D", th(), at+num(20, "gap"), width(), spec.Event{K: spec.KindRevoke, Pool: "kv", Blocks: block, Handoff: h, To: "p0", Mode: "w"})
		}
		if num(4, "fence") == 0 {
			w.add("D", "nic", at+num(30, "gap"), width(), spec.Event{K: spec.KindFence, Handoff: h})
		}
		if l+1 < leases || num(2, "free") > 0 {
			at += num(20, "gap")
			w.add("D", th(), at, width(), spec.Event{K: spec.KindFree, Pool: "kv", Blocks: block})
		}
	}
	for a := range int(num(4, "accesses")) {
		drawAccess(t, w, a, leases, num, width)
	}
	if num(2, "seal") == 0 {
		w.add("P", "main", 30+num(60, "seal at"), 0, spec.Event{K: spec.KindSeal})
	}
	return w
}

func drawAccess(t *rapid.T, w *writer, a, leases int, num func(int, string) int64, width func() int64) {
	id := fmt.Sprintf("a%d", a)
	h := fmt.Sprintf("room-%d", rapid.IntRange(0, leases-1).Draw(t, "room"))
	src, th := "P", "w"+id
	e := spec.Event{K: spec.KindBegin, Access: id, Mode: "w", Target: "d0", Pool: "kv", Blocks: spec.MakeBlocks(3), Handoff: h}
	if num(4, "own") == 0 {
		src = "D"
	}
	begin := 10 + num(60, "begin")
	w.add(src, th, begin, width(), e)
	if num(4, "end seen") > 0 {
		w.add(src, th, begin+num(15, "end"), width(), spec.Event{K: spec.KindEnd, Access: id})
	}
}

// judgeForTest runs question 1 and returns the court.
func judgeForTest(t require.TestingT, tr *spec.Trace) *court {
	h, err := newHistory(tr)
	require.NoError(t, err)
	c := &court{ctx: context.Background(), opt: Options{Parallel: 1, Checker: CheckerBoth}.withDefaults(), h: h, rules: map[spec.RuleID]*RuleResult{}, lost: h.anyLost()}
	var why *conflict
	if c.base, why = newOrder(h, nil); why != nil {
		return nil
	}
	require.NoError(t, c.judge())
	return c
}

// agreement counts histories by what both judges said of them.
type agreement struct{ fine, wrong, bad int }

// hold holds the two judges of question 1 against each other on a history of one
// block on one clock, where both are exact: the solver finds a violation exactly
// where Porcupine finds no linearization.
func (a *agreement) hold(t require.TestingT, w *writer) {
	c := judgeForTest(t, &w.tr)
	if c == nil {
		a.bad++
		return
	}
	require.Empty(t, c.broken, "%s", w)
	violation, judged := false, false
	for i := range c.cases {
		k := &c.cases[i]
		violation = violation || k.state == caseStale || k.state == caseEarly
		judged = judged || k.state == caseStale || k.state == caseEarly || k.state == caseLegal
	}
	require.Zero(t, c.stats.Undecided)
	if judged {
		require.Equal(t, violation, c.stats.Refused > 0, "%s", w)
	}
	if violation {
		a.wrong++
	} else {
		a.fine++
	}
}

func TestPorcupineAgrees(t *testing.T) {
	var a agreement
	rapid.Check(t, func(t *rapid.T) {
		for range 40 {
			a.hold(t, oneBlock(t))
		}
	})
	t.Logf("%d without a violation, %d with one, %d without any order", a.fine, a.wrong, a.bad)
	require.NotZero(t, a.fine)
	require.NotZero(t, a.wrong)
}

// twoClocks is oneBlock with the accessor on a clock of its own, whose readings
// are off, and sometimes a signal each way to tie the two.
func twoClocks(t *rapid.T) *writer {
	one := oneBlock(t)
	w := newWriter()
	off := int64(rapid.IntRange(-40, 40).Draw(t, "offset"))
	tie := rapid.IntRange(0, 2).Draw(t, "tie")
	for i := range one.tr.Events {
		e := one.tr.Events[i]
		width := e.T2 - e.T
		at := e.T
		if e.Src == "P" {
			at += off
			if e.K == spec.KindSource {
				at = min(at, -50) // the source line orders nothing that the test is about
				e.Clock = "p"
			}
			if _, seen := w.t[e.Thread()]; !seen {
				w.t[e.Thread()] = -1000
			}
		}
		w.add(e.Src, e.Th, at, width, e)
	}
	if rapid.IntRange(0, 2).Draw(t, "compared") == 0 {
		lo := off + int64(rapid.IntRange(-20, 20).Draw(t, "lo"))
		cmp := spec.Event{K: spec.KindClockCmp, Clock: "p", Lo: lo, Hi: lo + int64(rapid.IntRange(0, 20).Draw(t, "hi"))}
		src := "D"
		if rapid.Bool().Draw(t, "by the other") {
			src, cmp.Clock, cmp.Lo, cmp.Hi = "P", "m", -cmp.Hi, -cmp.Lo
			w.t[spec.Thread{Src: "P", Th: "cmp"}] = -1000
		}
		w.add(src, "cmp", 0, 0, cmp)
	}
	if tie > 0 {
		w.add("D", "tie", 15, 5, spec.Event{K: spec.KindEmit, Sig: "s", Signal: "TIE"})
		w.t[spec.Thread{Src: "P", Th: "tie"}] = -1000
		w.add("P", "tie", 18+off, 10, spec.Event{K: spec.KindObserve, Sig: "s"})
	}
	if tie > 1 {
		w.add("P", "tie", 30+off, 5, spec.Event{K: spec.KindEmit, Sig: "r", Signal: "TIE"})
		w.add("D", "tie", 36, 10, spec.Event{K: spec.KindObserve, Sig: "r"})
	}
	return w
}

// TestReachesAgrees holds the two ways to answer what precedes what against each
// other and against following every edge.
func TestReachesAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := twoClocks(t)
		h, err := newHistory(&w.tr)
		require.NoError(t, err)
		with, why := newOrder(h, nil)
		if why != nil {
			return
		}
		without, _ := newOrder(h, nil)
		without.before, without.after = lanes{}, lanes{}
		n := int32(len(h.ev))
		for u := range n {
			after := map[int32]bool{}
			for stack := with.succs(nil, u); len(stack) > 0; {
				e := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				if !after[e] {
					after[e] = true
					stack = with.succs(stack, e)
				}
			}
			for v := range n {
				require.Equal(t, after[v], with.reaches(u, v), "%d to %d\n%s", u, v, w)
				require.Equal(t, after[v], without.reaches(u, v), "%d to %d\n%s", u, v, w)
			}
		}
	})
}
