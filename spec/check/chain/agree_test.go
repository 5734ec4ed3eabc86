package chain

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// agreeOnce draws a history on one clock and holds Check against Porcupine.
func agreeOnce(t *testing.T, r *rand.Rand) bool {
	t.Helper()
	s := shape{
		blocks: 1 + r.IntN(2), ops: 2 + r.IntN(12), clocks: 1, width: r.Int64N(8), step: 1 + r.Int64N(6),
		missing: []float64{0, 0.1, 0.5}[r.IntN(3)],
	}
	h := legal(r, s)
	if r.IntN(4) > 0 {
		h.spoil(r, 1)
	}
	found, err := Check(h.ops, 1)
	require.NoError(t, err)
	want := porcupine.CheckOperationsTimeout(model, operations(h.ops, nil), time.Minute)
	require.NotEqual(t, porcupine.Unknown, want)
	require.Equal(t, want == porcupine.Ok, len(found) == 0, "%v\n%v", h.ops, found)
	for i := range found {
		holdWitness(t, h.ops, &found[i])
	}
	return len(found) == 0
}

// holdWitness checks a violation against the history by definition.
func holdWitness(t *testing.T, ops []Op, v *Violation) {
	t.Helper()
	switch v.Rule {
	case Order:
		a, b := &ops[v.First], &ops[v.Second]
		require.Equal(t, a.Block, b.Block)
		require.Equal(t, a.Clock, b.Clock)
		require.Greater(t, a.T, b.T2, "the second is surely over before the first begins")
	case NoOffsets:
		sum := int64(0)
		for i, b := range v.Cycle {
			first, second := &ops[b.First], &ops[b.Second]
			require.Equal(t, first.Clock, b.From)
			require.Equal(t, second.Clock, b.To)
			require.Equal(t, first.Block, second.Block)
			require.Equal(t, second.T2-first.T, b.Most)
			require.Equal(t, b.To, v.Cycle[(i+1)%len(v.Cycle)].From, "the bounds close a cycle")
			sum += b.Most
		}
		require.Negative(t, sum)
	}
}

// TestPorcupineAgrees holds the checker against Porcupine on random histories.
func TestPorcupineAgrees(t *testing.T) {
	agreeMany(t, 20_000)
}

func agreeMany(t *testing.T, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	fine := 0
	for range n {
		if agreeOnce(t, r) {
			fine++
		}
	}
	t.Logf("%d histories: %d legal, %d not", n, fine, n-fine)
	require.Greater(t, fine, n/5)
	require.Greater(t, n-fine, n/5)
}

// TestClocksAgree holds the offsets against trying out all that could matter: a
// history is legal exactly where some offsets make one clock of its clocks, and
// Porcupine finds it legal there.
func TestClocksAgree(t *testing.T) {
	clocksMany(t, 1500)
}

func clocksMany(t *testing.T, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(2, uint64(n)))
	fine := 0
	for range n {
		clocks := 2 + r.IntN(2)
		s := shape{blocks: 1 + r.IntN(2), ops: 3 + r.IntN(8), clocks: clocks, width: r.Int64N(4), step: 1 + r.Int64N(3), missing: 0.1, skew: 6}
		h := legal(r, s)
		h.spoil(r, clocks)
		found, err := Check(h.ops, clocks)
		require.NoError(t, err)
		require.Equal(t, someOffsets(h.ops, clocks), len(found) == 0, "%v\n%v", h.ops, found)
		for i := range found {
			holdWitness(t, h.ops, &found[i])
		}
		if len(found) == 0 {
			fine++
		}
	}
	t.Logf("%d histories: %d legal, %d not", n, fine, n-fine)
	require.Greater(t, fine, n/5)
	require.Greater(t, n-fine, n/5)
}

// someOffsets tries out every offset up to a distance beyond all that tests draw.
func someOffsets(ops []Op, clocks int) bool {
	const most = 24
	skew := make([]int64, clocks)
	var try func(c int) bool
	try = func(c int) bool {
		if c == clocks {
			one := make([]Op, len(ops))
			for i, op := range ops {
				op.T, op.T2, op.Clock = op.T-skew[op.Clock], op.T2-skew[op.Clock], 0
				one[i] = op
			}
			// Porcupine and the checker on one clock agree, and the latter is quick.
			found, err := Check(one, 1)
			return err == nil && len(found) == 0 && porcupine.CheckOperations(model, operations(ops, skew))
		}
		for skew[c] = -most; skew[c] <= most; skew[c]++ {
			if try(c + 1) {
				return true
			}
		}
		return false
	}
	return try(1)
}

// TestStreamAgrees holds that adding operations as they happen finds what
// sorting them first does.
func TestStreamAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	late := 0
	for range 5000 {
		clocks := 1 + r.IntN(3)
		h := legal(r, shape{blocks: 1 + r.IntN(3), ops: 2 + r.IntN(30), clocks: clocks, width: r.Int64N(5), step: 1 + r.Int64N(3), missing: 0.2, skew: 9})
		if r.IntN(2) == 0 {
			h.spoil(r, clocks)
		}
		c := NewChecker(clocks)
		ok := true
		for i := range h.ops {
			if err := c.Add(&h.ops[i]); err != nil {
				require.ErrorIs(t, err, ErrOrder)
				ok = false
			}
		}
		if !ok {
			late++
			continue
		}
		all, err := Check(h.ops, clocks)
		require.NoError(t, err)
		require.Equal(t, len(all) == 0, len(c.Finish()) == 0, "%v\n%v\n%v", h.ops, all, c.Found)
	}
	require.NotZero(t, late, "and one that comes too late is said to")
}
