package chain

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Bounds near the ends of the numbers: their sums take more than 64 bits, and are
// neither taken for what they are not nor missed.
func TestSumsOfFarBounds(t *testing.T) {
	for _, most := range []int64{1 << 61, 1<<63 - 2} {
		for clocks := range 9 {
			ring := func(most int64) *Offsets {
				o := NewOffsets(clocks + 1)
				for i := range clocks + 1 {
					o.Tighten(uint16(i), uint16((i+1)%(clocks+1)), most, Pair{i, i})
				}
				return o
			}
			require.Nil(t, ring(most).Contradiction(), "%d clocks", clocks+1)
			require.Len(t, ring(-most).Contradiction(), clocks+1)
		}
	}
}

// Against shortest paths by whole numbers of any size.
func TestContradictionsOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "clocks")
		o := NewOffsets(n)
		far := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64(), rapid.SampledFrom([]int64{1 << 61, -1 << 61, 1 << 62, -1 << 62}))
		for range rapid.IntRange(0, 12).Draw(t, "bounds") {
			clock := rapid.IntRange(0, n-1)
			o.Tighten(uint16(clock.Draw(t, "from")), uint16(clock.Draw(t, "to")), far.Draw(t, "most"), Pair{})
		}
		cycle := o.Contradiction()
		if (cycle != nil) != negativeCycle(o) {
			t.Fatalf("cycle %v of %v", cycle, o.most)
		}
		sum := new(big.Int)
		for i, b := range cycle {
			sum.Add(sum, big.NewInt(b.Most))
			if b.To != cycle[(i+1)%len(cycle)].From {
				t.Fatalf("%v is no cycle", cycle)
			}
		}
		if cycle != nil && sum.Sign() >= 0 {
			t.Fatalf("%v sums up to %v", cycle, sum)
		}
	})
}

// negativeCycle is Bellman and Ford's.
func negativeCycle(o *Offsets) bool {
	dist := make([]*big.Int, o.clocks)
	for i := range dist {
		dist[i] = new(big.Int)
	}
	for range o.clocks + 1 {
		changed := false
		for i := range o.clocks {
			for j := range o.clocks {
				if m := o.most[i*o.clocks+j]; m != unbounded {
					if d := new(big.Int).Add(dist[i], big.NewInt(m)); d.Cmp(dist[j]) < 0 {
						dist[j], changed = d, true
					}
				}
			}
		}
		if !changed {
			return false
		}
	}
	return true
}
