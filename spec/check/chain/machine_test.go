package chain

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// rules says which rule of the specification a violation of the state machine
// breaks.
var rules = map[Rule]spec.RuleID{DoubleAlloc: spec.BLK1, NotHeld: spec.BLK4, StillHeld: spec.BLK4, NoLease: spec.BLK3}

// TestMachineAgrees holds the state machine against the specification's own, on
// random sequences up to the first operation that either refuses.
func TestMachineAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	refused := map[Rule]int{}
	for range 20_000 {
		c := NewChecker(1)
		var b spec.Block
		for i := range 12 {
			op := Op{Kind: Kind(r.IntN(4)), Who: uint32(r.IntN(4)), T: int64(i), T2: int64(i)}
			if op.Kind != Free && op.Who == 0 {
				op.Who = 1
			}
			name := ""
			if op.Who != 0 {
				name = fmt.Sprint(op.Who)
			}
			require.NoError(t, c.Add(&op))
			next, breach := b.Step(spec.BlockOp{Kind: spec.Kind(op.Kind.String()), Holder: spec.Holder{Name: name}})
			require.Equal(t, breach != nil, len(c.Found) > 0, "%v on %+v", op, b)
			if breach != nil {
				require.Equal(t, breach.Rule, rules[c.Found[0].Rule])
				refused[c.Found[0].Rule]++
				break
			}
			b = next
		}
	}
	require.Len(t, refused, 3, "each rule of the machine was broken: %v", refused)
}

// point is an operation at one instant on one clock.
func point(k Kind, lease, who uint32, t int64) Op {
	return Op{Kind: k, Lease: lease, Who: who, T: t, T2: t}
}

func TestViolations(t *testing.T) {
	for name, v := range map[string]struct {
		ops  []Op
		want []Violation
	}{
		"nothing": {},
		"a second alloc": {
			[]Op{point(Alloc, 0, 1, 1), point(Alloc, 0, 2, 2)},
			[]Violation{{Rule: DoubleAlloc, Pair: Pair{0, 1}}},
		},
		"a second alloc after a loss": {
			[]Op{point(Alloc, 0, 1, 1), {Kind: Gap}, point(Alloc, 0, 2, 2), point(Begin, 2, 1, 3)},
			[]Violation{{Rule: DoubleAlloc, Pair: Pair{0, 2}, Unsure: true}},
		},
		"a lease that never was": {
			[]Op{point(Alloc, 0, 1, 1), point(Begin, 2, 1, 2)},
			[]Violation{{Rule: NoLease, Pair: Pair{0, 1}}},
		},
		"an end without a begin": {
			[]Op{point(Alloc, 0, 1, 1), point(End, 1, 1, 2)},
			[]Violation{{Rule: NoBegin, Pair: Pair{0, 1}}},
		},
		"an end after the free": {
			[]Op{point(Alloc, 0, 1, 1), point(Begin, 1, 1, 2), point(Free, 0, 1, 3), point(End, 1, 1, 4)},
			[]Violation{{Rule: Order, Pair: Pair{3, 2}}},
		},
		"an end that may have come before the free": {
			[]Op{point(Alloc, 0, 1, 1), point(Begin, 1, 1, 2), point(Free, 0, 1, 3), {Kind: End, Lease: 1, Who: 1, T: 3, T2: 9}},
			nil,
		},
		"an end never seen, after the seal of its source": {
			[]Op{point(Alloc, 0, 1, 1), point(Begin, 1, 1, 2), point(Free, 0, 1, 3), {Kind: End, Lease: 1, Who: 1, T: 5, T2: Forever}},
			[]Violation{{Rule: Order, Pair: Pair{3, 2}}},
		},
		"an end never seen": {
			[]Op{point(Alloc, 0, 1, 1), point(Begin, 1, 1, 2), point(Free, 0, 1, 3), point(Alloc, 0, 2, 4)},
			nil,
		},
		"an access across two leases bounds the second": {
			[]Op{point(Alloc, 0, 1, 1), {Kind: Begin, Lease: 1, Who: 1, T: 4, T2: 9}, {Kind: Free, Who: 1, T: 2, T2: 9}, point(Alloc, 0, 2, 3)},
			[]Violation{{Rule: Order, Pair: Pair{1, 3}}},
		},
		"a hold among accesses": {
			[]Op{
				point(Alloc, 0, 1, 1), point(Begin, 1, 1, 2), point(Hold, 0, 2, 3), point(Drop, 0, 1, 4),
				point(End, 1, 1, 5), point(Free, 0, 2, 6),
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Check(v.ops, 1)
			require.NoError(t, err)
			require.Equal(t, v.want, got)
		})
	}
}

// Two accesses need the clocks to differ by two amounts.
func TestTwoClocks(t *testing.T) {
	on := func(clock uint16, o Op) Op { o.Clock = clock; return o }
	ops := []Op{
		point(Alloc, 0, 1, 100), on(1, point(Begin, 1, 1, 10)), on(1, point(End, 1, 1, 11)), point(Free, 0, 1, 110),
		point(Alloc, 0, 2, 200), on(1, point(Begin, 2, 2, 90)), on(1, point(End, 2, 2, 91)), point(Free, 0, 2, 210),
	}
	found, err := Check(ops, 2)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, NoOffsets, found[0].Rule)
	require.Len(t, found[0].Cycle, 2)
	holdWitness(t, ops, &found[0])
	ops[5].T, ops[5].T2, ops[6].T, ops[6].T2 = 110, 110, 111, 111
	found, err = Check(ops, 2)
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestOutOfBounds(t *testing.T) {
	for _, op := range []Op{{Clock: 1}, {T: 2, T2: 1}, {T: MaxTime + 1, T2: MaxTime + 1}, {Kind: Gap + 1}} {
		_, err := Check([]Op{op}, 1)
		require.Error(t, err)
	}
	require.Panics(t, func() { NewChecker(0) })
	c := NewChecker(1)
	c.MaxFound = 1
	for i := range 3 {
		require.NoError(t, c.Add(&Op{Kind: Free, T: int64(i), T2: int64(i)}))
	}
	require.Len(t, c.Finish(), 1)
	require.Equal(t, 3, c.Count)
}
