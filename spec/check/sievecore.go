package check

import (
	"strings"

	"conform/spec"
)

// sieveCore is the part of a trace that a [Sieve] leaves to Judge: all events of
// some requests and handoffs with what is linked to them, and all that ever
// happened to some blocks. It grows from one pass over the trace to the next, until
// in a pass the rest shows nothing that the sieve cannot tell.
//
// What makes the two parts separable is checked in that last pass: a lease, an
// access and a signal are wholly in the core or wholly outside it, with every event
// that names them.
type sieveCore struct {
	names    map[nameKey]bool
	blocks   map[coreKey]map[int64]bool
	sigs     map[string]bool
	accesses map[string]bool
	n        int             // of all that is in it
	begun    map[string]bool // accesses of the core that began in this pass
	ended    map[string]bool // and those that ended
	any      bool            // something is in it
	grown    bool            // in this pass
	unclean  bool            // this pass showed something outside the core
}

// coreKey is a pool, by worker and name.
type coreKey struct{ worker, pool string }

// maxCore bounds what is in a core.
const maxCore = 1 << 18

func newSieveCore() *sieveCore {
	return &sieveCore{
		names: map[nameKey]bool{}, blocks: map[coreKey]map[int64]bool{}, sigs: map[string]bool{}, accesses: map[string]bool{},
		begun: map[string]bool{}, ended: map[string]bool{},
	}
}

// again readies the core for another pass.
func (c *sieveCore) again() {
	clear(c.begun)
	clear(c.ended)
	c.any, c.grown, c.unclean = c.n > 0, false, false
}

func (c *sieveCore) has(text string, req bool) bool {
	return c != nil && c.any && c.names[nameKey{text, req}]
}

// add notes that something was found to belong to the core in this pass.
func (c *sieveCore) add(fresh bool) {
	c.any, c.unclean = true, true
	if fresh {
		c.grown = true
		c.n++
	}
}

func (c *sieveCore) addSig(sig string) {
	fresh := !c.sigs[sig]
	if fresh {
		c.sigs[strings.Clone(sig)] = true
	}
	c.add(fresh)
}

func (c *sieveCore) addAccess(id string) {
	fresh := !c.accesses[id]
	if fresh {
		c.accesses[strings.Clone(id)] = true
	}
	c.add(fresh)
}

// addBlock adds a block and reports whether it is new.
func (c *sieveCore) addBlock(key coreKey, n int64) bool {
	if c.blocks[key] == nil {
		c.blocks[key] = map[int64]bool{}
	}
	fresh := !c.blocks[key][n]
	c.blocks[key][n] = true
	c.add(fresh)
	return fresh
}

// taint adds a group to the core. It is false for none.
func (s *Sieve) taint(g *sieveGroup) bool {
	if g == nil {
		return false
	}
	g = g.root()
	g.core = true
	c := s.core
	c.add(false)
	for _, n := range g.names {
		key := nameKey{n.text, n == g.req || s.names.reqs[n.text] == n}
		fresh := !c.names[key]
		c.names[key] = true
		c.add(fresh)
	}
	if c.n > maxCore {
		s.stop("a core that is too large")
	}
	return true
}

func (s *Sieve) stop(why string) {
	if s.stopped == "" {
		s.stopped = why
	}
}

// suspect is giveUp for what is about other groups than the event's.
func (s *Sieve) suspect(why string, groups ...*sieveGroup) bool {
	if s.core == nil {
		return s.giveUp(why)
	}
	tainted := false
	for _, g := range groups {
		tainted = s.taint(g) || tainted
	}
	if !tainted {
		s.stop(why)
	}
	return false
}

// suspectLease is suspect for all who hold a lease or were granted it, or for its
// blocks where those have no name.
func (s *Sieve) suspectLease(why string, p *sievePool, l *sieveLease, b spec.Blocks) {
	if s.core == nil {
		s.giveUp(why)
		return
	}
	tainted := l.core
	for i := range l.holders {
		tainted = s.taint(l.holders[i].group()) || tainted
	}
	for i := range l.grants {
		tainted = s.taint(l.grants[i].handoff.group) || tainted
	}
	for _, a := range l.accesses {
		tainted = s.taint(a.group) || tainted
	}
	if !tainted {
		s.brokenChain(why, p, b)
	}
}

// brokenChain is giveUp for what the model of a block does not allow, or the sieve
// does not know a name for: all that happens to the blocks is left to Judge.
func (s *Sieve) brokenChain(why string, p *sievePool, b spec.Blocks) {
	if s.core == nil {
		s.giveUp(why)
		return
	}
	key := coreKey{s.texts[p.worker], p.name}
	for n := range b.All {
		s.core.addBlock(key, n)
	}
	p.core = s.core.blocks[key]
	if s.core.n > maxCore {
		s.stop("a core that is too large")
	}
}

// suspectAsks is suspect for those who wait for an answer of which none came.
func (s *Sieve) suspectAsks(why string, worker int32) {
	if s.core == nil {
		s.giveUp(why)
		return
	}
	found := false
	for _, m := range []map[string]*sieveName{s.names.handoffs, s.names.reqs} {
		for _, n := range m {
			g := n.group.root()
			for i := range g.asks {
				if g.asks[i].worker == worker {
					found = s.taint(g) || found
				}
			}
		}
	}
	if !found {
		s.stop(why)
	}
}

// wantAccess is giveUp for an end of an access that is not known.
func (s *Sieve) wantAccess(why, id string) {
	if s.core == nil {
		s.giveUp(why)
		return
	}
	s.core.addAccess(id)
}

// comeBack meets a name that was forgotten.
func (s *Sieve) comeBack(g *sieveGroup) {
	if !g.core {
		s.suspect("a name that comes back late", g)
	}
}

// joinCore meets a link between groups of which one is in the core.
func (s *Sieve) joinCore(a, b *sieveGroup) {
	if !a.core {
		s.taint(a)
	}
	if !b.core {
		s.taint(b)
	}
}

// coreBlocks are the blocks of a pool that are in the core.
func (s *Sieve) coreBlocks(worker int32, pool string) map[int64]bool {
	if s.core == nil {
		return nil
	}
	return s.core.blocks[coreKey{s.texts[worker], pool}]
}

// isCore reports whether an event belongs to the core, and takes its group in where
// it does by something else.
func (s *Sieve) isCore(e *spec.Event, at *sievePlace) bool {
	named := at.group != nil && at.group.core
	core := named
	switch e.K {
	case spec.KindBegin:
		core = core || s.core.accesses[e.Access]
	case spec.KindEnd:
		core = core || s.core.begun[e.Access] || s.core.accesses[e.Access]
	case spec.KindEmit:
		core = core || s.core.sigs[e.Sig]
		for _, id := range e.Accesses {
			core = core || s.core.begun[id] || s.core.accesses[id]
		}
	case spec.KindObserve:
		sig := s.signals.open[e.Sig]
		core = core || s.core.sigs[e.Sig] || sig != nil && sig.core
	case spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree, spec.KindGrant, spec.KindRevoke:
		core = core || s.onCore(e, at)
	case spec.KindSource, spec.KindPool, spec.KindSeal, spec.KindClockCmp, spec.KindIdle, spec.KindCapacity:
		return false
	}
	if core && !named && at.group != nil {
		s.taint(at.group)
	}
	return core
}

// onCore reports whether a mutation names a block, or acts on a lease, of the core.
func (s *Sieve) onCore(e *spec.Event, at *sievePlace) bool {
	p := s.poolOf(e, at)
	if p == nil || e.Blocks.Len() > maxSieveOps {
		return false
	}
	for n := range e.Blocks.All {
		if p.core[n] {
			return true
		}
		if page := s.page(p, n, false); page != nil {
			if l := page.lease[n%sievePageSize]; l != nil && l.core {
				return true
			}
		}
	}
	return false
}

// coreEvent takes in an event of the core: what all of the trace is counted by, and
// what it leads to that must be in the core too.
func (s *Sieve) coreEvent(e *spec.Event, at *sievePlace) {
	if e.By != "" {
		s.wantSig(e.By)
	}
	switch e.K {
	case spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree, spec.KindGrant, spec.KindRevoke:
		s.mutate(e, at)
	case spec.KindBegin:
		s.stats.Accesses++
		s.core.begun[strings.Clone(e.Access)] = true
	case spec.KindEnd:
		if a := s.memory.accesses[e.Access]; a != nil {
			s.suspect("an access of the core", a.group)
		}
		if s.core.ended[e.Access] {
			s.stop("a second end of an access") // a reader refuses it
		}
		s.core.ended[strings.Clone(e.Access)] = true
	case spec.KindEmit:
		s.coreEmit(e, at)
	case spec.KindObserve:
		s.wantSig(e.Sig)
		if at.observed = s.signals.open[e.Sig]; at.observed == nil {
			s.signals.strays.add(s.names.hash(e.Sig, false))
		}
	case spec.KindFault:
		s.stats.Faults++
	}
}

// wantSig has a signal be in the core, wherever its emit is.
func (s *Sieve) wantSig(sig string) {
	if open := s.signals.open[sig]; open != nil && open.core || s.core.sigs[sig] {
		return
	}
	s.core.addSig(sig)
}

func (s *Sieve) coreEmit(e *spec.Event, at *sievePlace) {
	m := &s.signals
	if _, few := s.countEmit(e); !few {
		s.stop("many signals")
		return
	}
	for _, id := range e.Accesses {
		if !s.core.begun[id] && !s.core.accesses[id] {
			s.core.addAccess(id)
		}
	}
	if m.open[e.Sig] != nil {
		s.stop("a sig twice")
		return
	}
	if m.strays.has(s.names.hash(e.Sig, false)) {
		s.stop("a signal of the core observed before its emit")
		return
	}
	at.emitted = &sieveSignal{sig: strings.Clone(e.Sig), core: true}
	m.open[at.emitted.sig] = at.emitted
}

// mutateCore keeps track of which blocks the core holds: nobody else may have them
// then. Blocks that are wholly in the core are not tracked.
func (s *Sieve) mutateCore(p *sievePool, e *spec.Event, at *sievePlace) {
	b := e.Blocks
	for n := range b.All {
		if p.core[n] {
			b = s.outside(p, e.Blocks)
			break
		}
	}
	if e.K == spec.KindAlloc {
		s.allocCore(p, b, e, at)
		return
	}
	hit, all := s.leases(p, b)
	if !all && e.K != spec.KindRevoke {
		s.brokenChain("BLK-4", p, b)
		return
	}
	for _, l := range hit {
		if !l.core {
			s.suspectLease("a lease of the core", p, l, b)
		}
	}
	switch e.K {
	case spec.KindHold:
		s.holdCore(p, hit, b, e)
	case spec.KindDrop:
		s.drop(p, hit, &spec.Event{Blocks: b, Holder: e.Holder})
	case spec.KindFree:
		for _, l := range hit {
			if !l.mayFree(e.Holder) {
				s.brokenChain("BLK-4", p, b)
			}
		}
		s.clear(p, hit, b)
	}
}

// outside lists the blocks that are not wholly in the core.
func (s *Sieve) outside(p *sievePool, b spec.Blocks) spec.Blocks {
	var out []int64
	for n := range b.All {
		if !p.core[n] {
			out = append(out, n)
		}
	}
	return spec.MakeBlocks(out...)
}

func (s *Sieve) holdCore(p *sievePool, hit []*sieveLease, b spec.Blocks, e *spec.Event) {
	for _, l := range hit {
		if e.Holder == "" || l.holderOf(e.Holder) >= 0 {
			s.brokenChain("BLK-4", p, b)
			return
		}
		l.holders = append(l.holders, sieveHolder{holder: strings.Clone(e.Holder)})
	}
}

func (s *Sieve) allocCore(p *sievePool, b spec.Blocks, e *spec.Event, at *sievePlace) {
	l := s.newLease(p)
	l.core = true
	if e.Holder != "" {
		l.holders = append(l.holders, sieveHolder{holder: strings.Clone(e.Holder)})
	}
	for n := range b.All {
		page := s.page(p, n, true)
		if page == nil {
			return
		}
		i := n % sievePageSize
		if page.lease[i] != nil {
			s.brokenChain("BLK-1", p, spec.MakeBlocks(n))
			continue
		}
		page.lease[i] = l
		if page.had[i]++; page.had[i] == 1 {
			s.stats.Blocks++
		}
		l.blocks++
		if s.order != nil {
			at.gens = append(at.gens, blockGen{n, int(page.had[i])})
		}
	}
}

// blockGen says which lease of a block one is.
type blockGen struct {
	number int64
	gen    int
}
