package check

import (
	"strings"

	"conform/spec"
	"conform/spec/check/clock"
)

// sieveTimes holds what the events say about time, as bounds between clocks.
//
// An event comes after others, and so after the latest of their times on each
// clock. That bounds by how much the offsets of two clocks differ, and what a
// trace of any length imposes is one bound for each pair of clocks. The sieve
// keeps two such tables. In one, an event comes after all that were given before
// it: that there are offsets which satisfy it makes the given order legal. In the
// other it comes only after what program order, pool order and signals put before
// it: what it says about the offsets is reported.
type sieveTimes struct {
	clockID  map[string]int32
	clocks   []string
	zero     []int64 // of each clock: its first time, from which the others count
	least    []int64 // of each clock, counted so
	given    sieveLatest
	byGiven  sieveBounds
	byBase   sieveBounds
	compared []sieveCompared
}

// sieveLatest is a latest earlier time on each clock, never where there is none.
type sieveLatest [maxSieveClocks]int64

// sieveBounds are, of clocks c and d, the bounds of θc − θd.
type sieveBounds [maxSieveClocks][maxSieveClocks]int64

type sieveCompared struct {
	this, that int32
	lo, hi     int64
}

const (
	// maxSieveClocks bounds the work for one event; a trace with more is left to
	// Judge.
	maxSieveClocks = 16
	// maxSieveTime bounds times, counted from the first of their clock, so that
	// sums over all clocks do not overflow. It is two years.
	maxSieveTime = int64(1) << 56
	// maxSieveCompared bounds the clockcmps that are kept.
	maxSieveCompared = 1 << 16
	// never is before every time, and farther than any two are apart.
	never = -int64(1) << 60
)

// nothingYet is the latest time before the first event.
func nothingYet() (l sieveLatest) {
	for c := range l {
		l[c] = never
	}
	return l
}

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
	name = strings.Clone(name)
	m.clockID[name] = id
	m.clocks, m.zero, m.least = append(m.clocks, name), append(m.zero, t), append(m.least, 0)
	for c := range m.byGiven[id] {
		m.byGiven[id][c], m.byGiven[c][id] = clock.Unbounded, clock.Unbounded
		m.byBase[id][c], m.byBase[c][id] = clock.Unbounded, clock.Unbounded
	}
	if id > 0 && (s.drifting || s.signals.late) {
		s.giveUp("clocks that may drift, or one that comes late")
	}
	return id
}

// add places an event after all that were given before it, and after what its
// thread has come to.
func (m *sieveTimes) add(s *Sieve, e *spec.Event, on int32, thread *sieveLatest) {
	from, ok := since(e.T, m.zero[on])
	till, ok2 := since(e.T2, m.zero[on])
	if !ok || !ok2 {
		s.giveUp("times far apart")
		return
	}
	m.least[on] = min(m.least[on], from)
	m.given[on], thread[on] = max(m.given[on], from), max(thread[on], from)
	for c := range m.zero {
		m.byGiven[c][on] = min(m.byGiven[c][on], bound(till, m.given[c]))
		m.byBase[c][on] = min(m.byBase[c][on], bound(till, thread[c]))
	}
	if m.byGiven[on][on] < 0 {
		s.giveUp("an order of lines that time forbids")
	}
}

func bound(till, latest int64) int64 {
	if latest == never {
		return clock.Unbounded
	}
	return till - latest
}

// join takes in what comes before as well.
func (l *sieveLatest) join(o *sieveLatest, clocks int) {
	for c := range clocks {
		l[c] = max(l[c], o[c])
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

// compare takes in a clockcmp; see history.comparison.
func (m *sieveTimes) compare(s *Sieve, e *spec.Event, this int32) {
	that, known := m.clockID[e.Clock]
	if !known || len(m.compared) == maxSieveCompared {
		s.giveUp("a clockcmp of a clock that is not known yet")
		return
	}
	hi, ok := sum(e.Hi, m.zero[this], m.zero[that])
	lo, ok2 := sum(e.Lo, m.zero[this], m.zero[that])
	if !ok || !ok2 || max(hi, lo) > maxSieveTime || min(hi, lo) < -maxSieveTime {
		s.giveUp("a clockcmp of times far apart")
		return
	}
	m.compared = append(m.compared, sieveCompared{this, that, lo, hi})
}

// solve closes both tables, and reports whether offsets exist that make the given
// order legal.
func (m *sieveTimes) solve() bool {
	for _, k := range m.compared {
		for _, b := range []*sieveBounds{&m.byGiven, &m.byBase} {
			b[k.this][k.that] = min(b[k.this][k.that], k.hi)
			b[k.that][k.this] = min(b[k.that][k.this], -k.lo)
		}
	}
	n := len(m.zero)
	return m.byGiven.close(n) && m.byBase.close(n)
}

// close takes what follows from the bounds, and reports that they do not
// contradict.
func (b *sieveBounds) close(n int) bool {
	for i := range n {
		if b[i][i] < 0 {
			return false
		}
		b[i][i] = 0
	}
	for k := range n {
		for i := range n {
			for j := range n {
				if b[i][k] < clock.Unbounded && b[k][j] < clock.Unbounded {
					b[i][j] = min(b[i][j], b[i][k]+b[k][j])
				}
			}
			if b[i][i] < 0 {
				return false
			}
		}
	}
	return true
}

// first is the least time on a clock.
func (m *sieveTimes) first(c int) int64 { return m.zero[c] + m.least[c] }

// results is what court.clockResults says, from the closed table.
func (m *sieveTimes) results() []ClockResult {
	var out []ClockResult
	n := len(m.clocks)
	for i := range n {
		for j := i + 1; j < n; j++ {
			r := ClockResult{Clock: m.clocks[j], Minus: m.clocks[i]}
			// Clock j's reading less clock i's is θi − θj.
			shift := m.least[i] - m.least[j]
			if lo := m.byBase[j][i]; lo < clock.Unbounded {
				if abs, ok := sum(-lo+shift, m.first(j), m.first(i)); ok {
					r.Lo = &abs
				}
			}
			if hi := m.byBase[i][j]; hi < clock.Unbounded {
				if abs, ok := sum(hi+shift, m.first(j), m.first(i)); ok {
					r.Hi = &abs
				}
			}
			out = append(out, r)
		}
	}
	return out
}
