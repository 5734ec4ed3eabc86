package clock

import "math/bits"

const (
	// Far is past every reading: they, and the bounds of comparisons, lie within
	// [-Far, Far].
	Far = int64(1) << 60
	// Unbounded is no bound at all. Sums of readings are clamped to it, so that no
	// input overflows.
	Unbounded = int64(1) << 62
	// MaxDriftPPM is the largest drift that the solver takes: one in a hundred.
	MaxDriftPPM = 10_000
)

// Trace is what the solver sees of a trace: events, numbered from 0, their clocks,
// numbered from 0, and a known partial order. Readings are in ns from any zero
// that is the caller's, one per clock, and within [-Far, Far].
type Trace struct {
	Clocks int
	Of     []int32 // the clock of each event
	Order  []int32 // the events, each after all that precede it
	// Preds and Succs append the direct predecessors and successors of an event.
	Preds, Succs func(buf []int32, e int32) []int32
	// From and Till are what the event's clock read at the earliest and at the
	// latest when it took effect.
	From, Till func(e int32) int64
	// Compared are bounds on offsets that come from elsewhere.
	Compared []Comparison
	// DriftPPM bounds how much the rates of two clocks differ, in millionths; 0
	// are clocks whose offsets are constant. At most MaxDriftPPM.
	DriftPPM int64
}

// Comparison says that, when an event on clock This took effect, the reading of
// That minus the reading of This was within [Lo, Hi]; -Unbounded and Unbounded
// are no bound.
type Comparison struct {
	Event      int32
	This, That int32
	Lo, Hi     int64
}

// Elapsed is the most that time advances while a clock's reading advances by s:
// for s < 0, minus the least that it goes by while the reading advances by −s. It
// is s without drift, and rounded up with it.
func Elapsed(s, driftPPM int64) int64 { return s + relax(s, driftPPM) }

// relax is half the drift of |s|, rounded up.
func relax(s, driftPPM int64) int64 {
	if driftPPM == 0 {
		return 0
	}
	if s < 0 {
		s = -s
	}
	hi, lo := bits.Mul64(uint64(s), uint64(driftPPM))
	q, r := bits.Div64(hi, lo, 2_000_000)
	if r > 0 {
		q++
	}
	return int64(q)
}

// advance is the reverse of Elapsed: a reading of which time has advanced by s or
// more has advanced by this much at least.
func advance(s, driftPPM int64) int64 {
	if s < 0 {
		return s - 2*relax(s, driftPPM) // 1/(1−ρ/2) ≤ 1+ρ
	}
	return s - relax(s, driftPPM) // 1/(1+ρ/2) ≥ 1−ρ/2
}

func plus(a, b int64) int64 {
	if a >= Unbounded || b >= Unbounded {
		return Unbounded
	}
	return max(a+b, -Unbounded)
}
