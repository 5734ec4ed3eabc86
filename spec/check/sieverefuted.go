package check

import "conform/spec"

// sieveAgainst is a counterexample to what a kind of signal proves, see [against]:
// the positions and the names of an emission and of an access's begin.
type sieveAgainst struct {
	emit, begin int32
	events      [2]spec.EventID
}

// maxSieveLooks bounds how many accesses are looked at for counterexamples.
const maxSieveLooks = 1 << 24

func (s *Sieve) idIn(thread int32, seq uint64) spec.EventID {
	return spec.EventID{Src: s.sources[s.threads[thread].source].name, Seq: seq}
}

// refuteStopped notes the first access that begins after a signal of the kind that
// speaks of it, with the last such signal.
func (s *Sieve) refuteStopped(m *sieveEmit, e *spec.Event, at *sievePlace) {
	k := m.kind
	if k.unstopped && (k.later.begin != s.n || k.later.emit > m.last) {
		return
	}
	k.later = sieveAgainst{m.last, s.n, [2]spec.EventID{s.idIn(m.thread, m.seq), s.idIn(at.thread, e.Seq)}}
}

// refuteEnded notes the first signal of the kind at which an access that it speaks
// of is open, with the first of these.
func (s *Sieve) refuteEnded(w *sieveWork, e *spec.Event, at *sievePlace, k *sieveKind) {
	if k.unended && k.amid.emit != s.n {
		return
	}
	if s.looks += len(s.memory.accesses); s.looks > maxSieveLooks {
		s.giveUp("many kinds of signals while accesses are open")
		return
	}
	for _, a := range s.memory.accesses {
		if a.ended || a.by != w.worker || a.handoff != w.handoff || a.group.root() != at.group.root() || k.amid.emit == s.n && k.amid.begin < a.pos {
			continue
		}
		k.amid = sieveAgainst{s.n, a.pos, [2]spec.EventID{s.idIn(at.thread, e.Seq), s.idIn(a.thread, a.seq)}}
	}
}
