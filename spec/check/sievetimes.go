package check

import (
	"strings"

	"conform/spec"
	"conform/spec/check/chain"
)

// sieveTimes checks that instants exist that do not decrease along the order in
// which the events are given, for some constant offsets of the clocks. An event
// comes after the latest earlier one on each clock, which bounds the difference of
// two offsets: what a trace of any length imposes is one bound for each pair of
// clocks.
type sieveTimes struct {
	clockID  map[string]int32
	zero     []int64                               // of each clock: its first time, from which the others count
	least    []int64                               // of each clock, counted so
	latest   [maxSieveClocks]int64                 // of each clock: the latest t so far, counted so
	most     [maxSieveClocks][maxSieveClocks]int64 // of c, d: the bound of θc − θd
	seen     [maxSieveClocks]bool
	compared []sieveCompared
}

// sieveCompared is a clockcmp, which may name a clock of which no source is known
// yet.
type sieveCompared struct {
	this   int32
	that   string
	lo, hi int64
}

const (
	// maxSieveClocks bounds the work for one event; a trace with more is left to
	// Judge.
	maxSieveClocks = 32
	// maxSieveTime bounds times, counted from the first of their clock, so that
	// sums over all clocks do not overflow. It is two years.
	maxSieveTime = int64(1) << 56
	// maxSieveCompared bounds the clockcmps that are kept.
	maxSieveCompared = 1 << 16
)

// clock is the number of a clock, which a source at time t makes known.
func (m *sieveTimes) clock(s *Sieve, name string, t int64) int32 {
	if id, ok := m.clockID[name]; ok {
		return id
	}
	id := int32(len(m.zero))
	if id == maxSieveClocks {
		s.giveUp("many clocks")
		return 0
	}
	m.clockID[strings.Clone(name)] = id
	m.zero, m.least = append(m.zero, t), append(m.least, 0)
	for c := range m.most[id] {
		m.most[id][c], m.most[c][id] = unbounded, unbounded
	}
	return id
}

// add places an event after all earlier ones.
func (m *sieveTimes) add(s *Sieve, e *spec.Event, clock int32) {
	from, ok := since(e.T, m.zero[clock])
	till, ok2 := since(e.T2, m.zero[clock])
	if !ok || !ok2 {
		s.giveUp("times far apart")
		return
	}
	m.least[clock] = min(m.least[clock], from)
	if !m.seen[clock] || from > m.latest[clock] {
		m.seen[clock], m.latest[clock] = true, from
	}
	for c := range m.zero {
		if m.seen[c] {
			m.most[c][clock] = min(m.most[c][clock], till-m.latest[c])
		}
	}
	if m.most[clock][clock] < 0 {
		s.giveUp("an order of lines that time forbids")
	}
}

// since is t − zero, if it is a time that the sieve takes.
func since(t, zero int64) (int64, bool) {
	d := t - zero // wraps only where it is out of bounds
	if t >= zero {
		return d, uint64(d) < uint64(maxSieveTime)
	}
	return d, uint64(-d) < uint64(maxSieveTime)
}

func (m *sieveTimes) compare(s *Sieve, e *spec.Event, this int32) {
	if len(m.compared) == maxSieveCompared {
		s.giveUp("many clockcmps")
		return
	}
	m.compared = append(m.compared, sieveCompared{this, strings.Clone(e.Clock), e.Lo, e.Hi})
}

// solvable reports whether offsets exist.
func (m *sieveTimes) solvable() bool {
	n := len(m.zero)
	o := chain.NewOffsets(n)
	for c := range n {
		for d := range n {
			if m.most[c][d] < unbounded {
				o.Tighten(uint16(c), uint16(d), m.most[c][d], chain.Pair{})
			}
		}
	}
	for _, k := range m.compared {
		that, known := m.clockID[k.that]
		if !known {
			return false
		}
		// As in order.compare: that clock's reading less this one's is θ(this) − θ(that).
		hi, ok := sum(k.hi, m.zero[k.this], m.zero[that])
		lo, ok2 := sum(k.lo, m.zero[k.this], m.zero[that])
		if !ok || !ok2 || hi > maxSieveTime || lo < -maxSieveTime || hi < -maxSieveTime || lo > maxSieveTime {
			return false
		}
		o.Tighten(uint16(k.this), uint16(that), hi, chain.Pair{})
		o.Tighten(uint16(that), uint16(k.this), -lo, chain.Pair{})
	}
	return o.Contradiction() == nil
}
