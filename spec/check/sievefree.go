package check

import (
	"slices"
	"strings"

	"conform/spec"
)

// free judges the end of leases: who still holds them, what accesses are open
// (BLK-2), and whether evidence leads from each end, and from each grantee of whom
// no access was seen, to the free (SIG-2).
func (s *Sieve) free(p *sievePool, hit []*sieveLease, e *spec.Event, at *sievePlace) {
	for i, l := range hit {
		if !l.mayFree(e.Holder) {
			s.brokenChain("BLK-4", p, e.Blocks)
			return
		}
		for j := range l.holders {
			s.release(p, e.Blocks, l.holders[j].group())
		}
		for j := range l.grants {
			s.release(p, e.Blocks, l.grants[j].handoff.group.root())
		}
		s.grantees(l, hit[:i], e, at) // before its accesses are forgotten
		for _, a := range l.accesses {
			s.outlive(l, a, e, at)
		}
		if s.stopped != "" {
			return
		}
	}
	s.clear(p, hit, e.Blocks)
}

// clear ends leases.
func (s *Sieve) clear(p *sievePool, hit []*sieveLease, b spec.Blocks) {
	for n := range b.All {
		if page := s.page(p, n, false); page != nil {
			page.lease[n%sievePageSize] = nil
		}
	}
	for _, l := range hit {
		l.keep(-1)
		last := p.open[len(p.open)-1]
		p.open[l.at], last.at = last, l.at
		p.open = p.open[:len(p.open)-1]
		clear(l.holders)
		clear(l.grants)
		clear(l.accesses)
		*l = sieveLease{holders: l.holders[:0], grants: l.grants[:0], accesses: l.accesses[:0]}
		s.memory.spare = append(s.memory.spare, l)
	}
}

// mayFree reports whether nobody but the one who frees is left.
func (l *sieveLease) mayFree(holder string) bool {
	if holder == "" {
		return len(l.holders) <= 1
	}
	return len(l.holders) == 1 && l.holders[0].holder == holder
}

// outlive judges an access to a lease that ends.
func (s *Sieve) outlive(l *sieveLease, a *sieveAccess, e *spec.Event, at *sievePlace) {
	if !a.ended {
		s.suspectLease("BLK-2", l.pool, l, e.Blocks)
		return
	}
	if !a.told(a.group.root(), at.thread) {
		s.suspectLease("SIG-2: an end that does not lead to the free", l.pool, l, e.Blocks)
		return
	}
	if !a.freed {
		a.freed = true
		s.counts.blk2++
		s.counts.sig2++
	}
	a.leases--
	s.drain(a)
}

// drain forgets an access that is over with all of its leases.
func (s *Sieve) drain(a *sieveAccess) {
	if a.leases > 0 || !a.ended {
		return
	}
	a.group.root().refs--
	delete(s.memory.accesses, a.id)
	*a = sieveAccess{fronts: a.fronts[:0], after: a.after.emptied()}
	s.memory.spareA = append(s.memory.spareA, a)
}

// grantees judges those whom a lease was granted to. The same question about the
// leases before it in the same free counts once.
func (s *Sieve) grantees(l *sieveLease, before []*sieveLease, e *spec.Event, at *sievePlace) {
	owner := s.texts[l.pool.worker]
	for i := range l.grants {
		g := &l.grants[i]
		if g.to == owner {
			continue
		}
		same := func(o sieveGrant) bool { return o.handoff == g.handoff && o.to == g.to }
		known := slices.ContainsFunc(l.grants[:i], same)
		for _, b := range before {
			known = known || slices.ContainsFunc(b.grants, same)
		}
		if !known {
			s.counts.sig2++
		}
		if !s.touched(l, g) && !s.quiet(l, g, at.thread) {
			s.suspectLease("SIG-2: a grantee who may still begin", l.pool, l, e.Blocks)
			return
		}
	}
}

// touched reports whether an access by the grantee was seen.
func (s *Sieve) touched(l *sieveLease, g *sieveGrant) bool {
	for _, a := range l.accesses {
		if a.by == l.pool.worker || a.handoff != nil && a.handoff != g.handoff {
			continue
		}
		if g.to == "*" || s.texts[a.by] == g.to {
			return true
		}
	}
	return false
}

// quiet reports whether a signal by which the grantee says that it is quiet leads
// to the thread.
func (s *Sieve) quiet(l *sieveLease, g *sieveGrant, thread int32) bool {
	k := g.handoff.group.root().knows(thread)
	if k == nil {
		return false
	}
	for i := range k.of {
		w := s.threads[k.of[i].thread].worker
		if k.of[i].by[pathQuiet] > 0 && (g.to == "*" && w != l.pool.worker || s.texts[w] == g.to) {
			return true
		}
	}
	return false
}

// begin judges the begin of an access: it must fall within leases that are its
// own (BLK-3), and something must have told the accessor of them (SIG-2).
func (s *Sieve) begin(e *spec.Event, at *sievePlace) {
	s.stats.Accesses++
	g := at.group
	if g == nil || g.rejected {
		s.giveUp("REQ-1")
		return
	}
	if slices.Contains(g.cancellers, at.worker) {
		s.giveUp("REQ-3")
		return
	}
	s.beganWork(e, at)
	target, known := s.workers[e.Target]
	p := s.memory.pools[sievePoolKey{target, e.Pool}]
	if !known || p == nil || !s.usual(e.Blocks) {
		s.giveUp("an access to what was not recorded")
		return
	}
	g.begun = true
	a := s.newAccess()
	*a = sieveAccess{
		id: strings.Clone(e.Access), by: at.worker, group: g, handoff: at.handoff, thread: at.thread, pos: s.n, seq: e.Seq, beginBy: e.T2,
		fronts: a.fronts[:0], after: a.after.emptied(),
	}
	at.begun = a
	g.refs++
	if _, dup := s.memory.accesses[a.id]; dup {
		s.giveUp("an access twice")
		return
	}
	s.memory.accesses[a.id] = a
	if len(e.Blocks) == 0 {
		return
	}
	s.counts.blk3++
	hit, all := s.leases(p, e.Blocks)
	if !all {
		s.giveUp("BLK-3")
		return
	}
	for _, l := range hit {
		if !s.belongs(l, e, at) {
			return
		}
		if len(l.accesses) >= maxSieveRefs {
			s.giveUp("many accesses of one lease")
			return
		}
		l.accesses = append(l.accesses, a)
		a.leases++
	}
}

// maxSieveRefs bounds the accesses that are kept for one lease.
const maxSieveRefs = 1 << 20

func (s *Sieve) newAccess() *sieveAccess {
	if n := len(s.memory.spareA); n > 0 {
		a := s.memory.spareA[n-1]
		s.memory.spareA = s.memory.spareA[:n-1]
		return a
	}
	return &sieveAccess{}
}

// belongs reports whether the lease is one that the access may belong to, and the
// only one, and that the accessor knew of it.
func (s *Sieve) belongs(l *sieveLease, e *spec.Event, at *sievePlace) bool {
	g := at.group
	if at.worker != l.pool.worker && at.handoff != nil {
		if i := slices.IndexFunc(l.grants, func(o sieveGrant) bool { return o.handoff == at.handoff }); i >= 0 {
			o := &l.grants[i]
			switch {
			case o.revoked || o.to != "*" && o.to != s.texts[at.worker] || !strings.Contains(o.mode, e.Mode):
				return s.giveUp("BLK-3: a grant that does not cover it")
			case !o.told || !g.leads(pathAny, o.thread, o.pos, at.thread):
				return s.giveUp("SIG-2: nothing told the accessor")
			}
			return true
		}
		if g.granted {
			return s.giveUp("an access without its grant")
		}
		g.ungranted = true
	}
	for i := range l.holders {
		if l.holders[i].concerns(at) {
			if !g.leads(pathAny, l.thread, l.pos, at.thread) {
				return s.giveUp("SIG-2: nothing told the accessor")
			}
			return true
		}
	}
	return s.giveUp("BLK-3: nobody of its own holds it")
}

// concerns reports whether the holder is one whom the event names, or is linked
// to one.
func (h *sieveHolder) concerns(at *sievePlace) bool {
	switch {
	case h.handoff != nil && h.handoff == at.handoff, h.req != nil && h.req == at.req:
		return true
	case h.group() != at.group:
		return false
	}
	// In one group, each handoff is linked to its request.
	return h.req != nil || at.req != nil
}

// end takes the end of an access.
func (s *Sieve) end(e *spec.Event, at *sievePlace) {
	a := s.memory.accesses[e.Access]
	if a == nil || a.ended {
		s.wantAccess("an end without its begin", e.Access)
		return
	}
	if s.order != nil {
		s.order.join(orderLegal, at.thread, &a.after)
	}
	a.ended, a.endTh, a.endAt, a.endBy = true, at.thread, s.n, e.T2
	s.endedWork(a, e, at)
	s.drain(a)
}
