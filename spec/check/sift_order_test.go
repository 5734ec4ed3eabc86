package check

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// sifted holds that Sift tells of a trace what Judge tells, that a rule fails in it,
// and that some of the trace was not judged for it.
func sifted(t *testing.T, w *writer, fails spec.RuleID) {
	t.Helper()
	got, s, err := siftWith(context.Background(), again(&w.tr), NewSieve, Options{})
	require.NoError(t, err)
	require.NotNil(t, got, "%s", s.stopped)
	want, err := Judge(context.Background(), &w.tr, Options{})
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, r := range got.Rules {
		if r.ID == fails {
			require.Equal(t, spec.Fail, r.Verdict)
		}
	}
	require.Less(t, len(s.order.kept), len(w.tr.Events))
}

// TestSiftOrderByTheRest holds that what the rest of a trace says about the order of
// the core counts, where nothing else says it.
func TestSiftOrderByTheRest(t *testing.T) {
	b := spec.MakeBlocks(1)
	pools := func(clock string) *writer {
		w := newWriter()
		w.source("D", "d0", spec.RoleDecode, "m")
		w.source("P", "p0", spec.RolePrefill, clock)
		w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 4})
		w.add("P", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 4})
		return w
	}
	t.Run("an earlier event on another clock", func(t *testing.T) {
		w := pools("p")
		r := func(e spec.Event) spec.Event {
			e.Req, e.Handoff = "r", "h"
			return e
		}
		w.add("D", "main", 1, 0, r(spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: b, Holder: "r"}))
		w.add("D", "main", 2, 0, r(spec.Event{K: spec.KindGrant, Pool: "kv", Blocks: b, To: "p0", Mode: "w"}))
		w.add("D", "main", 3, 0, r(spec.Event{K: spec.KindEmit, Sig: "s1", Signal: "METADATA"}))
		w.add("P", "io", 4, 3000, spec.Event{K: spec.KindObserve, Sig: "s1"})
		w.add("P", "io", 5, 3000, r(spec.Event{K: spec.KindBegin, Access: "a", Mode: "w", Target: "d0", Pool: "kv", Blocks: b}))
		w.add("D", "main", 10, 0, r(spec.Event{K: spec.KindFree, Pool: "kv", Blocks: b, Holder: "r"}))
		w.add("D", "net", 12, 0, spec.Event{K: spec.KindEmit, Sig: "s2", Signal: "OTHER", Req: "r2"})
		w.add("P", "io", 6, 3000, spec.Event{K: spec.KindObserve, Sig: "s2"})
		w.add("P", "io", 6, 3000, spec.Event{K: spec.KindEnd, Access: "a"})
		// It is not what bounds the offset of the two clocks most.
		w.add("D", "net", 40, 0, spec.Event{K: spec.KindEmit, Sig: "s3", Signal: "OTHER", Req: "r2"})
		w.add("P", "net", 45, 0, spec.Event{K: spec.KindObserve, Sig: "s3"})
		sifted(t, w, spec.BLK2)
	})
	t.Run("an access that begins and ends in two threads", func(t *testing.T) {
		w := pools("m")
		at := func(e spec.Event) spec.Event {
			e.Req = "r2"
			return e
		}
		w.add("P", "io", 1, 0, at(spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: b, Holder: "r2"}))
		w.add("P", "io", 10, 90, spec.Event{K: spec.KindReject, Req: "r"})
		w.add("P", "io", 11, 89, at(spec.Event{K: spec.KindBegin, Access: "a", Mode: "w", Target: "p0", Pool: "kv", Blocks: b}))
		w.add("P", "main", 20, 80, spec.Event{K: spec.KindEnd, Access: "a"})
		w.add("P", "main", 21, 79, spec.Event{K: spec.KindOutput, Req: "r"})
		sifted(t, w, spec.REQ1)
	})
}

// TestSiftHeldByNobody holds that a lease that nobody holds at an idle, and of which no
// request or handoff is known, is judged with its blocks.
func TestSiftHeldByNobody(t *testing.T) {
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "m")
	w.source("H", "h0", spec.RoleHarness, "m")
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 9})
	w.add("D", "main", 1, 0, spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: spec.MakeBlocks(1, 2), Holder: "cache"})
	w.add("D", "main", 2, 0, spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: spec.MakeBlocks(3), Holder: "r", Req: "r"})
	w.add("D", "main", 3, 0, spec.Event{K: spec.KindDrop, Pool: "kv", Blocks: spec.MakeBlocks(2), Holder: "cache"})
	w.add("D", "main", 4, 0, spec.Event{K: spec.KindFree, Pool: "kv", Blocks: spec.MakeBlocks(3), Holder: "r", Req: "r"})
	w.add("H", "main", 5, 0, spec.Event{K: spec.KindIdle, Workers: []string{"d0"}})
	sifted(t, w, spec.BLK5)
}
