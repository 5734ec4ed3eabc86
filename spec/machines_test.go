package spec_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

func holder(name string) spec.Holder { return spec.Holder{Name: name} }

func begin(id string, gen int) spec.BlockOp {
	return spec.BlockOp{Kind: spec.KindBegin, Access: id, By: "p0", Remote: true, Handoff: "room-1", Mode: "w", Generation: gen, Granted: true}
}

var (
	allocR1 = spec.BlockOp{Kind: spec.KindAlloc, Holder: holder("r1")}
	grantP0 = spec.BlockOp{Kind: spec.KindGrant, Handoff: "room-1", To: "p0", Mode: "w"}
	free    = spec.BlockOp{Kind: spec.KindFree}
)

func TestBlockSteps(t *testing.T) {
	op := func(k spec.Kind, name string) spec.BlockOp { return spec.BlockOp{Kind: k, Holder: holder(name)} }
	grant := func(to, mode string) spec.BlockOp {
		return spec.BlockOp{Kind: spec.KindGrant, Handoff: "room-1", To: to, Mode: mode}
	}
	revoke := func(to, mode string) spec.BlockOp {
		return spec.BlockOp{Kind: spec.KindRevoke, Handoff: "room-1", To: to, Mode: mode}
	}
	fence := spec.BlockOp{Kind: spec.KindFence, Handoff: "room-1"}
	end := spec.BlockOp{Kind: spec.KindEnd, Access: "a1"}
	for name, c := range map[string]struct {
		ops  []spec.BlockOp
		last spec.RuleID // the rule that the last operation breaks; no other breaks any
	}{
		"a whole life":                 {[]spec.BlockOp{allocR1, grantP0, begin("a1", 1), end, free, allocR1, grantP0, begin("a2", 2)}, ""},
		"alloc while leased":           {[]spec.BlockOp{allocR1, op(spec.KindAlloc, "r2")}, spec.BLK1},
		"free while an access is open": {[]spec.BlockOp{allocR1, grantP0, begin("a1", 1), free}, spec.BLK2},
		"begin while free":             {[]spec.BlockOp{allocR1, free, begin("a1", 1)}, spec.BLK3},
		"begin under a later lease":    {[]spec.BlockOp{allocR1, free, allocR1, grantP0, begin("a1", 1)}, spec.BLK3},
		"begin without a grant":        {[]spec.BlockOp{allocR1, begin("a1", 1)}, spec.BLK3},
		"begin under a read grant":     {[]spec.BlockOp{allocR1, grant("p0", "r"), begin("a1", 1)}, spec.BLK3},
		"begin under a rw grant":       {[]spec.BlockOp{allocR1, grant("p0", "rw"), begin("a1", 1)}, ""},
		"begin under a grant to all":   {[]spec.BlockOp{allocR1, grant("*", "w"), begin("a1", 1)}, ""},
		"begin after the revoke":       {[]spec.BlockOp{allocR1, grantP0, revoke("p0", "w"), begin("a1", 1)}, spec.BLK3},
		"a revoke of the other mode":   {[]spec.BlockOp{allocR1, grant("p0", "rw"), revoke("p0", "r"), begin("a1", 1)}, ""},
		"a revoke to all":              {[]spec.BlockOp{allocR1, grantP0, revoke("*", "w"), begin("a1", 1)}, spec.BLK3},
		"a revoke from one of all":     {[]spec.BlockOp{allocR1, grant("*", "w"), revoke("p0", "w"), begin("a1", 1)}, spec.BLK3},
		"a revoke from another of all": {[]spec.BlockOp{allocR1, grant("*", "w"), revoke("p1", "w"), begin("a1", 1)}, ""},
		"granted again":                {[]spec.BlockOp{allocR1, grantP0, revoke("p0", "w"), grantP0, begin("a1", 1)}, ""},
		"a fence ends the access":      {[]spec.BlockOp{allocR1, grantP0, begin("a1", 1), fence, free}, ""},
		"a fence turns one away":       {[]spec.BlockOp{allocR1, grantP0, fence, free, begin("a1", 1)}, ""},
		"hold twice":                   {[]spec.BlockOp{allocR1, op(spec.KindHold, "r1")}, spec.BLK4},
		"hold of a free block":         {[]spec.BlockOp{op(spec.KindHold, "r1")}, spec.BLK4},
		"grant of a free block":        {[]spec.BlockOp{grantP0}, spec.BLK4},
		"revoke of a free block":       {[]spec.BlockOp{revoke("p0", "w")}, ""},
		"drop twice":                   {[]spec.BlockOp{allocR1, op(spec.KindDrop, "r1"), op(spec.KindDrop, "r1")}, spec.BLK4},
		"drop of a free block":         {[]spec.BlockOp{op(spec.KindDrop, "r1")}, spec.BLK4},
		"free when none is left":       {[]spec.BlockOp{allocR1, op(spec.KindDrop, "r1"), free}, ""},
		"free while another holds":     {[]spec.BlockOp{allocR1, op(spec.KindHold, "c"), op(spec.KindFree, "r1")}, spec.BLK4},
		"free for nobody of two":       {[]spec.BlockOp{allocR1, op(spec.KindHold, "c"), free}, spec.BLK4},
		"free by one who never held":   {[]spec.BlockOp{allocR1, op(spec.KindFree, "x")}, spec.BLK4},
		"free twice":                   {[]spec.BlockOp{allocR1, free, free}, spec.BLK4},
		"an end of nothing":            {[]spec.BlockOp{allocR1, end}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var b spec.Block
			for i, o := range c.ops {
				next, breach := b.Step(o)
				if i == len(c.ops)-1 && c.last != "" {
					require.NotNil(t, breach)
					require.Equal(t, c.last, breach.Rule)
					require.NotEmpty(t, breach.Text)
					require.Contains(t, breach.Error(), string(c.last))
				} else {
					require.Nil(t, breach, "step %d", i)
				}
				b = next
			}
		})
	}
}

// TestBlockIsAValue draws long lives and holds that no step changes the state
// that it was given, that equal states have equal keys and only they, and that
// the machine's invariants hold.
func TestBlockIsAValue(t *testing.T) {
	kinds := []spec.Kind{
		spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree, spec.KindGrant, spec.KindRevoke,
		spec.KindFence, spec.KindBegin, spec.KindEnd, spec.KindNote,
	}
	pick := func(t *rapid.T, label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	rapid.Check(t, func(t *rapid.T) {
		var b spec.Block
		seen := map[string]spec.Block{b.Key(): b}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := b.Key()
			next, breach := b.Step(spec.BlockOp{
				Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Holder: holder(pick(t, "holder", "r1", "r2", "")),
				Handoff: pick(t, "handoff", "room-1", "room-2"), To: pick(t, "to", "p0", "p1", "*"), Mode: pick(t, "mode", "r", "w", "rw"),
				Access: pick(t, "access", "a1", "a2"), By: pick(t, "by", "p0", "d0"), Remote: rapid.Bool().Draw(t, "remote"),
				Generation: b.Generation - rapid.IntRange(0, 1).Draw(t, "stale"), Granted: rapid.Bool().Draw(t, "granted"),
			})
			require.Equal(t, before, b.Key(), "a step changed its own state")
			if breach != nil {
				_, known := spec.RuleByID(breach.Rule)
				require.True(t, known)
			}
			if !next.Leased {
				require.Empty(t, next.Holders)
				require.Empty(t, next.Grants)
				require.Empty(t, next.Open)
			}
			require.True(t, slices.IsSortedFunc(next.Holders, func(x, y spec.Holder) int { return compare(x.Name, y.Name) }))
			for key, other := range seen {
				require.Equal(t, key == next.Key(), other.Equal(next))
			}
			b = next
			seen[b.Key()] = b
		}
	})
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestRequestSteps(t *testing.T) {
	op := func(k spec.Kind) spec.RequestOp { return spec.RequestOp{Kind: k} }
	finish := func(o spec.Outcome) spec.RequestOp { return spec.RequestOp{Kind: spec.KindFinish, Outcome: o} }
	told := func(o spec.Outcome, status int64) spec.RequestOp {
		return spec.RequestOp{Kind: spec.KindFinish, Outcome: o, Status: status, Client: true}
	}
	elsewhere := func(k spec.Kind) spec.RequestOp { return spec.RequestOp{Kind: k, Elsewhere: true} }
	submit, admit, reject := op(spec.KindSubmit), op(spec.KindAdmit), op(spec.KindReject)
	accept, begin, output := op(spec.KindAccept), op(spec.KindBegin), op(spec.KindOutput)
	cancel, expire := op(spec.KindCancel), op(spec.KindExpire)
	for name, c := range map[string]struct {
		ops   []spec.RequestOp
		last  spec.RuleID
		phase spec.Phase
	}{
		"a whole life":                 {[]spec.RequestOp{submit, admit, op(spec.KindOffer), accept, begin, output, finish(spec.OutcomeOK)}, "", spec.PhaseFinished},
		"accept after a reject":        {[]spec.RequestOp{submit, reject, accept}, spec.REQ1, spec.PhaseRejected},
		"begin after a rejected end":   {[]spec.RequestOp{submit, reject, finish(spec.OutcomeRejected), begin}, spec.REQ1, spec.PhaseFinished},
		"told ok, a stage was not":     {[]spec.RequestOp{submit, {Kind: spec.KindFinish, Outcome: spec.OutcomeError, Elsewhere: true}, told(spec.OutcomeOK, 200)}, spec.REQ4, spec.PhaseFinished},
		"told ok, as every stage was":  {[]spec.RequestOp{submit, {Kind: spec.KindFinish, Outcome: spec.OutcomeOK, Elsewhere: true}, told(spec.OutcomeOK, 200)}, "", spec.PhaseFinished},
		"begin after a reject":         {[]spec.RequestOp{submit, reject, begin}, spec.REQ1, spec.PhaseRejected},
		"output after a peer's reject": {[]spec.RequestOp{submit, admit, accept, elsewhere(spec.KindReject), output}, spec.REQ1, spec.PhaseAccepted},
		"begin after a cancel":         {[]spec.RequestOp{submit, admit, cancel, begin}, spec.REQ3, spec.PhaseCancelled},
		"begin after a peer's cancel":  {[]spec.RequestOp{submit, admit, elsewhere(spec.KindCancel), begin}, "", spec.PhaseAdmitted},
		"admitted above capacity":      {[]spec.RequestOp{submit, {Kind: spec.KindAdmit, Need: 5, Limit: 4}}, spec.REQ5, spec.PhaseAdmitted},
		"admitted at capacity":         {[]spec.RequestOp{submit, {Kind: spec.KindAdmit, Need: 4, Limit: 4}}, "", spec.PhaseAdmitted},
		"two outcomes":                 {[]spec.RequestOp{finish(spec.OutcomeOK), finish(spec.OutcomeOK)}, spec.REQ4, spec.PhaseFinished},
		"told ok after a peer's reject": {
			[]spec.RequestOp{submit, elsewhere(spec.KindReject), told(spec.OutcomeOK, 200)}, spec.REQ4, spec.PhaseFinished,
		},
		"told 200 after a peer's expiry": {
			[]spec.RequestOp{submit, elsewhere(spec.KindExpire), told(spec.OutcomeError, 200)}, spec.REQ4, spec.PhaseFinished,
		},
		"told the truth":       {[]spec.RequestOp{submit, reject, told(spec.OutcomeRejected, 400)}, "", spec.PhaseFinished},
		"an end is never left": {[]spec.RequestOp{submit, admit, expire, op(spec.KindOffer)}, "", spec.PhaseExpired},
		"another kind":         {[]spec.RequestOp{op(spec.KindNote)}, "", spec.PhaseNew},
	} {
		t.Run(name, func(t *testing.T) {
			var r spec.Request
			for i, o := range c.ops {
				next, breach := r.Step(o)
				if i == len(c.ops)-1 && c.last != "" {
					require.NotNil(t, breach)
					require.Equal(t, c.last, breach.Rule)
				} else {
					require.Nil(t, breach, "step %d", i)
				}
				require.Equal(t, r == next, r.Key() == next.Key())
				r = next
			}
			require.Equal(t, c.phase, r.Phase)
		})
	}
}

// TestTransitionsAreComplete holds that the table has a row for each event that
// the machines know and names only rules that exist.
func TestTransitionsAreComplete(t *testing.T) {
	rows := map[string][]spec.Kind{}
	for _, tr := range spec.Transitions() {
		rows[tr.Machine] = append(rows[tr.Machine], tr.Event)
		require.NotEmpty(t, tr.To)
		require.NotEmpty(t, tr.Who)
		require.NotEmpty(t, tr.Guard)
		require.NotEmpty(t, tr.Final)
		for _, id := range tr.Rules {
			_, ok := spec.RuleByID(id)
			require.True(t, ok, "%s", id)
		}
	}
	require.ElementsMatch(t, []spec.Kind{
		spec.KindAlloc, spec.KindHold, spec.KindGrant, spec.KindBegin, spec.KindEnd, spec.KindRevoke, spec.KindFence, spec.KindDrop, spec.KindFree,
	}, rows["Block"])
	require.ElementsMatch(t, []spec.Kind{
		spec.KindSubmit, spec.KindAdmit, spec.KindReject, spec.KindOffer, spec.KindAccept, spec.KindOutput, spec.KindCancel, spec.KindExpire, spec.KindFinish,
	}, rows["Request"])
	for _, f := range spec.Ownership() {
		require.NotEmpty(t, f.Owner)
		require.NotEmpty(t, f.EndedBy)
		require.NotEmpty(t, f.Evidence)
	}
	require.NotEmpty(t, spec.Phases())
}
