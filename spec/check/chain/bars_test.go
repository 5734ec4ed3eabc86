package chain

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// BenchmarkBars prints the figures of the checker beside Porcupine's on the same
// histories, each measured once in the same process.
func BenchmarkBars(b *testing.B) {
	b.Run("1M-operations-10000-blocks", func(b *testing.B) {
		bar(b, shape{blocks: 10_000, ops: 1_000_000, clocks: 1, width: 900, step: 1000, missing: 0.02}, time.Minute)
	})
	b.Run("100k-operations-1-block", func(b *testing.B) {
		bar(b, shape{blocks: 1, ops: 100_000, clocks: 1, width: 900, step: 1000, missing: 0.02}, 2*time.Minute)
	})
	b.Run("1k-failing-5pc-lost", func(b *testing.B) {
		r := rand.New(rand.NewPCG(7, 7))
		h := lateEnd(b, r)
		bar2(b, h.ops, 5*time.Second)
	})
}

func bar(b *testing.B, s shape, limit time.Duration) {
	h := legal(rand.New(rand.NewPCG(5, 5)), s)
	bar2(b, h.ops, limit)
}

func bar2(b *testing.B, ops []Op, limit time.Duration) {
	var found []Violation
	ours, oursBytes := cost(b, func() {
		var err error
		found, err = Check(ops, 1)
		require.NoError(b, err)
	})
	history := operations(ops, nil)
	var answer porcupine.CheckResult
	theirs, theirBytes := cost(b, func() { answer = porcupine.CheckOperationsTimeout(model, history, limit) })
	if answer != porcupine.Unknown {
		require.Equal(b, answer == porcupine.Ok, len(found) == 0)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours.Seconds()*1000, "ms")
	b.ReportMetric(float64(oursBytes)/1e6, "MB")
	b.ReportMetric(theirs.Seconds()*1000, "porcupine-ms")
	b.ReportMetric(float64(theirBytes)/1e6, "porcupine-MB")
	b.ReportMetric(float64(theirs)/float64(ours), "times-as-fast")
	b.ReportMetric(float64(theirBytes)/float64(oursBytes), "times-as-small")
	b.Logf("violations %d; Porcupine says %s", len(found), answer)
}

// cost is the time and the allocated bytes of a call.
func cost(b *testing.B, f func()) (time.Duration, uint64) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return took, after.TotalAlloc - before.TotalAlloc
}

// lateEnd is a history of 1,000 operations, of which 5 % of the ends are lost,
// and in which one access near the end outlasts its lease.
func lateEnd(tb testing.TB, r *rand.Rand) history {
	h := legal(r, shape{blocks: 1, ops: 1000, clocks: 1, width: 20_000, step: 1000, missing: 0.05})
	for i := len(h.ops) - 1; i > 0; i-- {
		if op := &h.ops[i]; op.Kind == Free {
			for j := i - 1; j > 0; j-- {
				if e := &h.ops[j]; e.Kind == End && e.Lease > 1 {
					e.T, e.T2 = op.T2+10, op.T2+20
					return h
				}
			}
		}
	}
	require.Fail(tb, "no lease was freed")
	return h
}

// TestLateEnd holds that such a history is refused with the two operations that
// show it.
func TestLateEnd(t *testing.T) {
	h := lateEnd(t, rand.New(rand.NewPCG(7, 7)))
	found, err := Check(h.ops, 1)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, Order, found[0].Rule)
	require.Equal(t, End, h.ops[found[0].First].Kind)
	require.Equal(t, Free, h.ops[found[0].Second].Kind)
	holdWitness(t, h.ops, &found[0])
}
