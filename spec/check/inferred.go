package check

import (
	"cmp"
	"slices"
	"strings"

	"conform/spec"
)

// signalResults says for each kind of signal what its emissions declared, and the
// strongest predicate that held at every one of them.
//
// It is inferred from what the emitter's own accesses did, never from the claim,
// and only from emissions that speak of some access: of a kind that never spoke
// of one, the trace shows nothing.
func (c *court) signalResults() []SignalResult {
	kinds := map[string]*SignalResult{}
	for _, e := range c.h.emits {
		ev := &c.h.ev[e]
		s := kinds[ev.Signal]
		if s == nil {
			s = &SignalResult{Signal: ev.Signal, Claims: ev.Claims}
			kinds[ev.Signal] = s
		}
		s.Seen++
		s.Claims = stronger(s.Claims, ev.Claims)
	}
	held := c.shownByKind()
	out := make([]SignalResult, 0, len(kinds))
	for name, s := range kinds {
		k := held[name]
		s.Inferred = inferred(k.accesses, k.past, !k.later.found, !k.open.found)
		for _, r := range []struct {
			claim spec.Predicate
			by    against
		}{{spec.ClaimsStopped, k.later}, {spec.ClaimsCompleted, k.open}} {
			if r.by.found {
				s.Refuted = append(s.Refuted, Refutation{Claim: r.claim, Events: c.ids(r.by.emit, r.by.begin)})
			}
		}
		out = append(out, *s)
	}
	sortSignals(out)
	return out
}

// shownByKind is what the emissions of each kind of signal have shown.
func (c *court) shownByKind() map[string]*shown {
	if c.legal == nil {
		c.legal = c.base
	}
	by := c.accessesByName()
	held := map[string]*shown{}
	for _, e := range c.h.emits {
		kind := c.h.ev[e].Signal
		if held[kind] == nil {
			held[kind] = &shown{}
		}
		c.show(e, by, held[kind])
	}
	return held
}

func sortSignals(s []SignalResult) {
	slices.SortFunc(s, func(a, b SignalResult) int { return strings.Compare(a.Signal, b.Signal) })
}

// shown is what the emissions of a kind have shown so far.
type shown struct {
	accesses    bool
	past        bool    // some access had surely ended
	later, open against // an access that may begin after one, or be open at one
}

// against is a counterexample: an emission, and the begin of an access. One whose
// events lie in the order of the lines is preferred: that is the one that a
// [Sieve] sees too.
type against struct {
	emit, begin   int32
	inLine, found bool
}

// better reports whether b is to be preferred to a; order compares two that are
// alike else.
func (a against) better(b against, order int) bool {
	switch {
	case !a.found:
		return true
	case a.inLine != b.inLine:
		return b.inLine
	}
	return order < 0
}

// inferred is the strongest predicate that held at every emission: whether any
// spoke of an access, whether any access had ended, and what was never refuted.
func inferred(accesses, past, stopped, ended bool) spec.Predicate {
	switch {
	case !accesses:
		return spec.ClaimsNothing
	case stopped && ended:
		return spec.ClaimsDrained
	case ended && past:
		return spec.ClaimsCompleted
	case stopped:
		return spec.ClaimsStopped
	}
	return spec.ClaimsReceived // accesses went on, or began later: it proves no more
}

// show takes in what one emission shows.
func (c *court) show(e int32, by map[[2]int32][]int32, s *shown) {
	ids := c.spokenOf(e, by)
	if ev := &c.h.ev[e]; ev.Accesses != nil {
		ids = nil
		for _, name := range ev.Accesses {
			if i, ok := c.h.accessID[name]; ok {
				ids = append(ids, i)
			}
		}
	}
	for _, i := range ids {
		a := &c.h.accesses[i]
		s.accesses = true
		s.past = s.past || a.end != none && c.legal.surelyBefore(a.end, e)
		// Of those that begin later the first begin counts, and the last emission before it.
		later := against{emit: e, begin: a.begin, inLine: e < a.begin, found: true}
		if s.later.better(later, cmp.Or(cmp.Compare(later.begin, s.later.begin), cmp.Compare(s.later.emit, e))) && !c.legal.surelyBefore(a.begin, e) {
			s.later = later
		}
		// Of those that are open the first emission counts, and the first begin.
		open := against{emit: e, begin: a.begin, inLine: a.begin < e && (a.end == none || e < a.end), found: true}
		if s.open.better(open, cmp.Or(cmp.Compare(e, s.open.emit), cmp.Compare(open.begin, s.open.begin))) &&
			!c.legal.surelyBefore(e, a.begin) && (a.end == none || !c.legal.surelyBefore(a.end, e)) {
			s.open = open
		}
	}
}

// stronger is the stronger of two predicates, by their place in TRACE.md's list. It
// is one of the constants, for the text of an event may not last.
func stronger(a, b spec.Predicate) spec.Predicate {
	order := []spec.Predicate{spec.ClaimsNothing, spec.ClaimsReceived, spec.ClaimsScheduled, spec.ClaimsStopped, spec.ClaimsCompleted, spec.ClaimsDrained}
	return order[max(slices.Index(order, a), slices.Index(order, b), 0)]
}

// TraceSignals is what one trace shows of its signals, with the trace's name.
type TraceSignals struct {
	Trace   string
	Signals []SignalResult
}

// JoinSignals says what several traces together show of each kind of signal: the
// strongest predicate that held at every emission in all of them, with the first
// counterexample to each stronger one and the trace that it is in. It is exactly
// what one trace of all their events would show. A trace that had nothing to judge
// a kind by takes nothing from what another shows.
func JoinSignals(traces []TraceSignals) []SignalResult {
	kinds := map[string]*SignalResult{}
	past := map[string]bool{}
	for _, t := range traces {
		for _, s := range t.Signals {
			k := kinds[s.Signal]
			if k == nil {
				k = &SignalResult{Signal: s.Signal}
				kinds[s.Signal] = k
			}
			k.Seen += s.Seen
			k.Claims = stronger(k.Claims, s.Claims)
			past[s.Signal] = past[s.Signal] || s.Inferred == spec.ClaimsCompleted || s.Inferred == spec.ClaimsDrained
			for _, r := range s.Refuted {
				if !k.refutes(r.Claim) {
					r.Trace = cmp.Or(r.Trace, t.Trace)
					k.Refuted = append(k.Refuted, r)
				}
			}
			if s.Inferred != spec.ClaimsNothing {
				k.Inferred = spec.ClaimsReceived // at least, and below says how much more
			}
		}
	}
	out := make([]SignalResult, 0, len(kinds))
	for name, k := range kinds {
		k.Inferred = inferred(k.Inferred != spec.ClaimsNothing, past[name], !k.refutes(spec.ClaimsStopped), !k.refutes(spec.ClaimsCompleted))
		slices.SortFunc(k.Refuted, func(a, b Refutation) int { return strings.Compare(string(b.Claim), string(a.Claim)) })
		out = append(out, *k)
	}
	sortSignals(out)
	return out
}

func (s *SignalResult) refutes(claim spec.Predicate) bool {
	return slices.ContainsFunc(s.Refuted, func(r Refutation) bool { return r.Claim == claim })
}
