package export

import (
	"math"
	"math/big"

	"conform/spec"
	"conform/spec/check"
)

// times puts the readings of several clocks on one line that begins at 0.
type times struct {
	first map[string]int64  // the least reading of each clock
	shift map[string]uint64 // where on the line that is
}

// firstReadings is the least reading of each clock.
func firstReadings(events Events) (map[string]int64, error) {
	first, o := map[string]int64{}, origins{}
	err := events(func(e *spec.Event) error {
		clock := o.of(e).clock
		if t, ok := first[clock]; !ok || e.T < t {
			first[clock] = e.T
		}
		return nil
	})
	return first, err
}

// timesOf puts the clocks beside the first of those that were compared, each at the
// middle of what its offset may be.
func timesOf(first map[string]int64, compared []check.ClockResult) times {
	t := times{first, map[string]uint64{}}
	if len(compared) == 0 {
		return t
	}
	reference := compared[0].Minus
	line := map[string]*big.Int{reference: big.NewInt(first[reference])}
	for _, c := range compared {
		start, there := first[c.Clock]
		if offset := middle(c.Lo, c.Hi); c.Minus == reference && there && offset != nil {
			line[c.Clock] = new(big.Int).Sub(big.NewInt(start), offset)
		}
	}
	least := new(big.Int).Set(line[reference])
	for _, v := range line {
		if v.Cmp(least) < 0 {
			least.Set(v)
		}
	}
	for clock, v := range line {
		if d := new(big.Int).Sub(v, least); d.IsUint64() && d.Uint64() < math.MaxInt64 {
			t.shift[clock] = d.Uint64()
		}
	}
	return t
}

// middle is the middle of two bounds, the one that there is, or nil.
func middle(lo, hi *int64) *big.Int {
	switch {
	case lo == nil && hi == nil:
		return nil
	case lo == nil:
		return big.NewInt(*hi)
	case hi == nil:
		return big.NewInt(*lo)
	}
	sum := new(big.Int).Add(big.NewInt(*lo), big.NewInt(*hi))
	return sum.Rsh(sum, 1)
}

// of is where a reading lies, at most the largest time that Perfetto takes.
func (t times) of(clock string, reading int64) uint64 {
	since := min(uint64(reading)-uint64(t.first[clock]), math.MaxInt64)
	return min(since+t.shift[clock], math.MaxInt64)
}
