package check

import (
	"slices"
	"strings"

	"conform/spec"
)

// sieveAsk is a signal that asks for an answer and has none yet.
type sieveAsk struct {
	worker int32
	kind   string
}

// ask takes in a signal that asks for an answer (SIG-4). Until it has one, or its
// worker reports that none came, its group is kept.
func (s *Sieve) ask(e *spec.Event, at *sievePlace) {
	s.counts.sig4++
	g := at.group
	if g == nil || len(g.asks) == maxSieveList {
		s.giveUp("SIG-4: an answer about nothing, or many")
		return
	}
	g.asks = append(g.asks, sieveAsk{at.worker, strings.Clone(e.Asks)})
	g.refs++
	s.asking[at.worker]++
}

// settleAsks settles what a worker asked for by a signal of a kind that it
// observes, or by a report, which is of every kind: "".
func (s *Sieve) settleAsks(g *sieveGroup, worker int32, kind string) {
	if g == nil || len(g.asks) == 0 {
		return
	}
	g.asks = slices.DeleteFunc(g.asks, func(a sieveAsk) bool {
		settled := a.worker == worker && (kind == reported || a.kind == kind)
		if settled {
			g.refs--
			s.asking[worker]--
		}
		return settled
	})
}

// reported stands for every kind. No kind of a signal holds a slash once it was
// cut there.
const reported = "/"

// waitedFor judges a decision that says which signal it waited for (SIG-3), where
// both name a handoff, or both a request and the signal no handoff.
func (s *Sieve) waitedFor(e *spec.Event, at *sievePlace) {
	sig := s.signals.open[e.By]
	switch {
	case sig == nil:
		s.giveUp("a decision by a signal that is not known")
	case sig.handoff != nil && at.handoff != nil && sig.handoff == at.handoff,
		sig.handoff == nil && sig.req != nil && sig.req == at.req:
		s.counts.sig3++
	default:
		s.giveUp("SIG-3: a decision by another's signal")
	}
}
