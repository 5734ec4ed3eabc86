package explore

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// TestCorrectProtocol explores scopes that fit into an ordinary test: the full one
// in pull, smaller ones in push, whose full one is in TestLongFullScope.
func TestCorrectProtocol(t *testing.T) {
	for _, mode := range []Mode{Push, Pull} {
		for _, scope := range []Scope{
			{Mode: mode, Blocks: 1, Requests: 1, Loss: true, Duplicates: 2, Crashes: 1},
			{Mode: mode, Blocks: 1, Requests: 2},
			{Mode: mode, Blocks: 2, Requests: 1, Loss: true, Duplicates: 1, Crashes: 1},
		} {
			rep := mustExplore(t, scope, Options{})
			require.Nil(t, rep.Violation, "%v", rep.Violation)
			require.Positive(t, rep.Ends)
		}
	}
	rep := mustExplore(t, FullScope(Pull), Options{})
	require.Nil(t, rep.Violation, "%v", rep.Violation)
}

// TestOtherRulesHold takes a guard away and asks for a rule that it has nothing to
// do with: a search that always finds something would find it here.
func TestOtherRulesHold(t *testing.T) {
	g, ok := GuardByName("ack-drained")
	require.True(t, ok)
	scope := Scope{Mode: Push, Blocks: 1, Requests: 1, Loss: true, Duplicates: 1, Without: g}
	require.Nil(t, mustExplore(t, scope, Options{Until: spec.REQ5}).Violation)
	require.NotNil(t, mustExplore(t, scope, Options{Until: spec.SIG1}).Violation)
}

// TestScopeIsReached holds that the exploration does what it says: with more
// that may go wrong there are more states, and none is missed by counting twice.
func TestScopeIsReached(t *testing.T) {
	last := 0
	for _, scope := range []Scope{
		{Blocks: 1, Requests: 1},
		{Blocks: 1, Requests: 1, Loss: true},
		{Blocks: 1, Requests: 1, Loss: true, Duplicates: 1},
		{Blocks: 1, Requests: 1, Loss: true, Duplicates: 1, Crashes: 1},
	} {
		one := mustExplore(t, scope, Options{Workers: 1})
		two := mustExplore(t, scope, Options{Workers: 2})
		require.Greater(t, one.States, last)
		one.Elapsed, two.Elapsed = 0, 0
		require.Equal(t, one, two, "the order of the work changes nothing")
		last = one.States
	}
}

// TestSymmetry holds the canonical form sound: the literal exploration sees
// exactly the states that the canonical one stands for, and no fewer breaches.
func TestSymmetry(t *testing.T) {
	scope := Scope{Mode: Pull, Blocks: 2, Requests: 2}
	canonical := mustExplore(t, scope, Options{})
	literal := &search{scope: scope, opt: Options{Workers: 1, MaxStates: 1 << 22, literal: true}, table: newInterned(Pull), until: ^ruleSet(0)}
	_, err := literal.levels(context.Background())
	require.NoError(t, err)
	m := newModel(scope, literal.table)
	classes := map[packed]bool{}
	for i := range literal.shards {
		for j := range literal.shards[i].count {
			s := unpack(literal.shards[i].at(j).state)
			classes[m.canonical(&s)] = true
		}
	}
	require.Len(t, classes, canonical.States)
	require.Greater(t, literal.states(), 2*canonical.States)
	for _, name := range []string{"fence-first", "exact-handoff", "grant-once"} {
		g, ok := GuardByName(name)
		require.True(t, ok)
		scope.Without = g
		a := mustExplore(t, scope, Options{Workers: 1, Until: spec.BLK2})
		b := mustExplore(t, scope, Options{Workers: 1, Until: spec.BLK2, literal: true})
		require.Equal(t, a.Violation == nil, b.Violation == nil)
		if a.Violation != nil {
			require.Equal(t, len(a.Violation.Steps), len(b.Violation.Steps), "the shortest run is as short")
		}
	}
}

func TestPackIsExact(t *testing.T) {
	ws, err := NewWalks(Scope{Blocks: 2, Requests: 2, Loss: true, Duplicates: 2, Crashes: 1})
	require.NoError(t, err)
	m := newModel(ws.scope, ws.table)
	s := m.initial()
	for depth := range 30 {
		next := s
		m.successors(&s, func(_ string, _ stepKind, n *state) {
			require.Equal(t, *n, unpack(pack(n)))
			if (int(pack(n).hash())+depth)%3 != 0 {
				next = *n
			}
		})
		s = next
	}
	require.NotEqual(t, m.initial(), s)
}

func TestBadScopes(t *testing.T) {
	g, _ := GuardByName("ack-drained")
	for _, scope := range []Scope{
		{},
		{Blocks: 3, Requests: 1},
		{Blocks: 1, Requests: 3},
		{Blocks: 1, Requests: 1, Duplicates: 3},
		{Blocks: 1, Requests: 1, Crashes: 2},
		{Mode: Pull, Blocks: 1, Requests: 1, Without: g},
	} {
		_, err := Explore(context.Background(), scope, Options{})
		require.Error(t, err, "%s", scope)
		_, err = NewWalks(scope)
		require.Error(t, err)
	}
	_, err := Explore(context.Background(), Scope{Blocks: 1, Requests: 2}, Options{MaxStates: 1000})
	require.ErrorIs(t, err, ErrTooLarge)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Explore(ctx, Scope{Blocks: 1, Requests: 2}, Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func mustExplore(t *testing.T, scope Scope, opt Options) *Report {
	t.Helper()
	rep, err := Explore(context.Background(), scope, opt)
	require.NoError(t, err, "%s", scope)
	t.Logf("%s: %d states, %d transitions, %d ends, depth %d, %v", scope, rep.States, rep.Transitions, rep.Ends, rep.Depth, rep.Elapsed)
	return rep
}
