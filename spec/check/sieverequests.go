package check

import (
	"slices"
	"strings"

	"conform/spec"
)

// request judges the events that are about requests and content.
func (s *Sieve) request(e *spec.Event, at *sievePlace) {
	switch e.K {
	case spec.KindCapacity:
		s.capacity(e, at.source)
		return
	case spec.KindDigest:
		if at.handoff == nil {
			s.giveUp("an empty handoff")
		}
	case spec.KindSubmit, spec.KindAdmit, spec.KindReject, spec.KindOffer, spec.KindAccept,
		spec.KindOutput, spec.KindCancel, spec.KindFinish, spec.KindAnswer:
		if at.req == nil {
			s.giveUp("an empty request")
		}
	}
	if at.group != nil {
		s.ofGroup(e, at)
	}
}

func (s *Sieve) ofGroup(e *spec.Event, at *sievePlace) {
	g, client := at.group, s.client[at.worker]
	switch e.K {
	case spec.KindSubmit:
		s.submit(e, g)
	case spec.KindAdmit:
		s.admit(e, at)
	case spec.KindReject:
		s.counts.req1++
		g.rejected, g.ended = true, true
		g.failed = g.failed || !client
		s.ender(g, at.worker, client)
	case spec.KindAccept, spec.KindOutput:
		if g.rejected {
			s.giveUp("REQ-1")
		}
	case spec.KindCancel:
		s.counts.req3++
		g.ended = true
		if !slices.Contains(g.cancellers, at.worker) {
			g.cancellers = append(g.cancellers, at.worker)
		}
	case spec.KindExpire:
		g.ended = true
		s.settleAsks(g, at.worker, reported)
		g.failed = g.failed || !client && at.req != nil
		s.ender(g, at.worker, client)
	case spec.KindFinish:
		s.finish(e, at, client)
	case spec.KindDigest:
		s.digest(e, at)
	case spec.KindAnswer:
		if e.HasExp {
			s.counts.dat2++
			if e.Sum != e.Expect {
				s.giveUp("DAT-2")
			}
		}
	}
	s.unsettled(g)
	if g.clientGood && g.failed {
		s.giveUp("REQ-4: told of success")
	}
}

// ender notes that a worker saw the request end.
func (s *Sieve) ender(g *sieveGroup, worker int32, client bool) {
	g.clientEnded = g.clientEnded || client
	if !slices.Contains(g.enders, worker) {
		if len(g.enders) == maxSieveList {
			s.giveUp("many workers")
			return
		}
		g.enders = append(g.enders, worker)
	}
}

func (s *Sieve) finish(e *spec.Event, at *sievePlace, client bool) {
	g := at.group
	s.counts.req4++
	if slices.Contains(g.finishers, at.worker) || len(g.finishers) == maxSieveList {
		s.giveUp("REQ-4: finished twice")
		return
	}
	g.finishers = append(g.finishers, at.worker)
	if e.Result == spec.OutcomeError {
		s.settleAsks(g, at.worker, reported)
	}
	s.ender(g, at.worker, client)
	switch {
	case client:
		g.clientGood = g.clientGood || saysGood(e)
	case e.Result == spec.OutcomeError, e.Result == spec.OutcomeRejected, e.Result == spec.OutcomeCancelled:
		g.failed = true
	}
}

func (s *Sieve) capacity(e *spec.Event, source int32) {
	key := sieveUnit{source, strings.Clone(e.Unit)} // a map takes the key of each assignment
	if _, known := s.limits[key]; !known && len(s.limits) == maxSieveList {
		s.giveUp("many units")
		return
	}
	s.limits[key] = e.Limit
}

func (s *Sieve) submit(e *spec.Event, g *sieveGroup) {
	if g.submit != nil {
		return
	}
	if g.bareAdmit {
		s.giveUp("a submit after its admit")
		return
	}
	g.submit = &sieveNeed{unit: strings.Clone(e.Unit)}
	if e.Need != nil {
		n := *e.Need
		g.submit.need = &n
	}
}

func (s *Sieve) admit(e *spec.Event, at *sievePlace) {
	need, unit := e.Need, e.Unit
	if need == nil {
		if at.group.submit == nil {
			at.group.bareAdmit = true
			return
		}
		need, unit = at.group.submit.need, at.group.submit.unit
	}
	if need == nil || unit == "" {
		return
	}
	limit, known := s.limits[sieveUnit{at.source, unit}]
	if !known {
		return
	}
	s.counts.req5++
	if *need > limit {
		s.giveUp("REQ-5")
	}
}

func (s *Sieve) digest(e *spec.Event, at *sievePlace) {
	g := at.group
	for i := range g.parts {
		p := &g.parts[i]
		if p.handoff != at.handoff || p.part != e.Part {
			continue
		}
		if p.sum != e.Sum {
			s.giveUp("DAT-1")
		}
		p.source, p.target = p.source || e.Side == "source", p.target || e.Side == "target"
		return
	}
	if len(g.parts) == maxSieveList {
		s.giveUp("many digests of one handoff")
		return
	}
	g.parts = append(g.parts, sievePart{
		handoff: at.handoff, part: e.Part, sum: strings.Clone(e.Sum), source: e.Side == "source", target: e.Side == "target",
	})
}

// idle judges what is still leased when the harness holds that nothing is in
// flight (BLK-5).
func (s *Sieve) idle(e *spec.Event) {
	for i, name := range e.Workers {
		if slices.Contains(e.Workers[:i], name) {
			continue
		}
		w, known := s.workers[name]
		if !known {
			s.giveUp("an idle of a worker that is not known yet")
			return
		}
		if s.asking[w] > 0 {
			s.suspectAsks("SIG-4: not answered at an idle", w)
			return
		}
		s.idles = append(s.idles, w)
		for _, p := range s.memory.pools {
			if p.worker == w {
				s.idlePool(p)
			}
		}
	}
}

func (s *Sieve) idlePool(p *sievePool) {
	for _, l := range p.open {
		if l.core {
			continue
		}
		if len(l.holders) == 0 {
			s.suspectLease("BLK-5: held by nobody", p, l, p.under(l))
			return
		}
		for i := range l.holders {
			h := &l.holders[i]
			g := h.group()
			if g == nil {
				continue // a cache
			}
			if g.req == nil {
				g.idled = true
				continue
			}
			if g.ended || g.clientEnded || slices.Contains(g.enders, p.worker) {
				s.suspect("BLK-5: held by a request that has ended", g)
				return
			}
		}
	}
}

// under lists the blocks of a lease.
func (p *sievePool) under(l *sieveLease) spec.Blocks {
	var out []int64
	for no, page := range p.pages {
		for i, o := range page.lease {
			if o == l {
				out = append(out, no*sievePageSize+int64(i))
			}
		}
	}
	slices.Sort(out)
	return spec.MakeBlocks(out...)
}
