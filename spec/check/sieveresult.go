package check

import (
	"fmt"

	"conform/spec"
)

// Result is what [Judge] gives for the events so far, taken as a whole trace. It
// is false if the sieve cannot tell. It is to be called once, after the last event.
func (s *Sieve) Result() (*Result, bool) {
	if s.stopped == "" {
		s.finishUp()
	}
	if s.stopped != "" {
		return nil, false
	}
	return s.result()
}

// result is Result once all was judged.
func (s *Sieve) result() (*Result, bool) {
	s.stats.Reused = s.stats.Leases - s.stats.Blocks
	res := &Result{Verdict: spec.Unexercised, Signals: s.signalTable(), Stats: s.stats, Clocks: s.times.results(), Notes: s.notes()}
	res.Stats.Events = int(s.n)
	counts := s.ruleCounts()
	for _, r := range spec.Rules() {
		n, known := counts[r.ID]
		if !known {
			s.giveUp("a rule that the sieve does not know")
			return nil, false
		}
		rr := RuleResult{ID: r.ID, Verdict: spec.Unexercised, Level: r.Level, Judged: n, Findings: []Finding{}}
		if n > 0 {
			rr.Verdict = spec.Pass
		}
		res.Rules = append(res.Rules, rr)
		res.Verdict = spec.Worst(res.Verdict, rr.Verdict)
	}
	if res.Verdict == spec.Unexercised {
		res.Verdict = spec.Inconclusive
	}
	return res, true
}

func (s *Sieve) ruleCounts() map[spec.RuleID]int {
	c := &s.counts
	return map[spec.RuleID]int{
		spec.BLK1: c.blk1, spec.BLK2: c.blk2, spec.BLK3: c.blk3, spec.BLK4: c.blk4, spec.BLK5: c.blk5,
		spec.REQ1: c.req1, spec.REQ2: 0, spec.REQ3: c.req3, spec.REQ4: c.req4, spec.REQ5: c.req5,
		spec.SIG1: c.sig1, spec.SIG2: c.sig2, spec.SIG3: c.sig3, spec.SIG4: c.sig4, spec.DAT1: c.dat1, spec.DAT2: c.dat2,
	}
}

// finishUp judges what is left at the end.
func (s *Sieve) finishUp() {
	if !s.times.solve() {
		s.giveUp("an order of lines that no offsets of the clocks allow")
	}
	for _, p := range s.memory.pools {
		for _, w := range s.idles {
			if w == p.worker {
				s.counts.blk5++
			}
		}
	}
	for w, n := range s.asking {
		if n > 0 {
			s.suspectAsks("SIG-4: not answered", w)
		}
	}
	seen := map[*sieveGroup]bool{}
	for _, m := range []map[string]*sieveName{s.names.handoffs, s.names.reqs} {
		for _, n := range m {
			if g := n.group.root(); !seen[g] {
				seen[g] = true
				s.settle(g)
			}
		}
	}
	if s.core != nil && s.core.any {
		return // what its signals prove is known once its core was judged
	}
	s.proved()
}

// proved asks of what each kind of signal proves whether it is sure.
func (s *Sieve) proved() {
	for _, k := range s.signals.kinds {
		if _, sure := k.predicate(); !sure {
			s.giveUp("a signal of which order alone does not say what it proves")
		}
	}
}

// predicate is what shown.predicate says, if that is sure.
func (k *sieveKind) predicate() (spec.Predicate, bool) {
	stopped, ended := !k.unstopped, !k.unended
	switch {
	case !k.accesses:
		return spec.ClaimsNothing, true
	case stopped && k.stopUnsure, ended && k.endUnsure:
		return spec.ClaimsNothing, false
	case stopped && ended:
		return spec.ClaimsDrained, true
	case ended && !k.past && k.pastUnsure:
		return spec.ClaimsNothing, false
	case ended && k.past:
		return spec.ClaimsCompleted, true
	case stopped:
		return spec.ClaimsStopped, true
	}
	return spec.ClaimsReceived, true
}

func (s *Sieve) signalTable() []SignalResult {
	out := make([]SignalResult, 0, len(s.signals.kinds))
	for name, k := range s.signals.kinds {
		p, _ := k.predicate()
		r := SignalResult{Signal: name, Claims: k.claims, Inferred: p, Seen: k.seen}
		if k.unstopped {
			r.Refuted = append(r.Refuted, Refutation{Claim: spec.ClaimsStopped, Events: k.later.events[:]})
		}
		if k.unended {
			r.Refuted = append(r.Refuted, Refutation{Claim: spec.ClaimsCompleted, Events: k.amid.events[:]})
		}
		out = append(out, r)
	}
	sortSignals(out)
	return out
}

// notes says which sources end without a seal, as court.notes does.
func (s *Sieve) notes() []string {
	var notes []string
	for i := range s.sources {
		if src := &s.sources[i]; !src.sealed {
			notes = append(notes, fmt.Sprintf("source %s of %s ends without a seal: its last event is %s", src.name, s.texts[src.worker], s.sayLast(src)))
		}
	}
	return notes
}

// sayLast names the last event of a source, as court.say does.
func (s *Sieve) sayLast(src *sieveSource) string {
	e := spec.Event{
		Src: src.name, Seq: src.last.seq, T: src.last.t, T2: src.last.t2, K: src.last.kind,
		Sig: string(src.last.sig), Signal: string(src.last.signal),
	}
	h := history{ev: []spec.Event{e}, clockOf: []int32{0}, zero: []int64{s.times.first(int(src.clock))}}
	return (&court{h: &h}).say(0)
}
