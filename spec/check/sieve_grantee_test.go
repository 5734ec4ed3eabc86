package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// granted is a trace in which Q touches a lease that was granted to it, and says so
// by a list. Where P was granted it as well, nothing is known of P.
func granted(alsoP bool) *writer {
	w := newWriter()
	w.source("P", "p0", spec.RolePrefill, "m")
	w.source("D", "d0", spec.RoleDecode, "m")
	w.source("Q", "q0", spec.RolePrefill, "m")
	t := int64(0)
	add := func(src string, e spec.Event) {
		t++
		if e.K != spec.KindEnd && e.K != spec.KindObserve && e.K != spec.KindPool {
			e.Req = "r"
		}
		w.add(src, "main", t, 0, e)
	}
	b := spec.MakeBlocks(1)
	add("D", spec.Event{K: spec.KindPool, Pool: "kv", Count: 4})
	add("D", spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: b, Holder: "r", Handoff: "h2"})
	if alsoP {
		add("D", spec.Event{K: spec.KindGrant, Pool: "kv", Blocks: b, Handoff: "h1", To: "p0", Mode: "w"})
	}
	add("D", spec.Event{K: spec.KindGrant, Pool: "kv", Blocks: b, Handoff: "h2", To: "q0", Mode: "w"})
	add("D", spec.Event{K: spec.KindEmit, Sig: "s1", Signal: "METADATA", Handoff: "h2", Claims: spec.ClaimsReceived})
	add("Q", spec.Event{K: spec.KindObserve, Sig: "s1"})
	add("Q", spec.Event{K: spec.KindBegin, Access: "a", Mode: "w", Target: "d0", Pool: "kv", Blocks: b, Handoff: "h2"})
	add("Q", spec.Event{K: spec.KindEnd, Access: "a"})
	add("Q", spec.Event{K: spec.KindEmit, Sig: "s2", Signal: "DONE", Handoff: "h2", Claims: spec.ClaimsCompleted, Accesses: []string{"a"}})
	add("D", spec.Event{K: spec.KindObserve, Sig: "s2"})
	add("D", spec.Event{K: spec.KindFree, Pool: "kv", Blocks: b, Holder: "r"})
	return w
}

// TestSieveGrantees holds that the sieve knows a grantee by its accesses up to the
// free that forgets them, and takes none for another's.
func TestSieveGrantees(t *testing.T) {
	w := granted(false)
	require.Empty(t, sameAsJudge(t, &w.tr, w), "the grantee was seen")
	w = granted(true)
	require.Contains(t, sameAsJudge(t, &w.tr, w), "grantee", "the other grantee was not")
}

// TestSieveEmptyHandoff holds that a grant under a handoff without a name is Judge's.
func TestSieveEmptyHandoff(t *testing.T) {
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "m")
	w.add("D", "main", 1, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 4})
	b := spec.MakeBlocks(1, 2)
	w.add("D", "main", 2, 0, spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: b, Holder: "r", Req: "r"})
	w.add("D", "main", 3, 0, spec.Event{K: spec.KindGrant, Pool: "kv", Blocks: b, Req: "r", To: "p0", Mode: "w"})
	w.add("D", "main", 4, 0, spec.Event{K: spec.KindFree, Pool: "kv", Blocks: b[:1], Holder: "r", Req: "r"})
	require.NotEmpty(t, sameAsJudge(t, &w.tr, w))
}
