package check

import (
	"cmp"
	"slices"
	"strings"

	"conform/spec"
)

// sieveMemory is the pools with their leases, and the accesses to them.
type sieveMemory struct {
	pools    map[sievePoolKey]*sievePool
	accesses map[string]*sieveAccess
	slots    int           // that all pools hold
	hit      []*sieveLease // by the current event
	sorted   []spec.BlockRange
	spare    []*sieveLease
	spareA   []*sieveAccess
}

type sievePoolKey struct {
	worker int32
	name   string
}

// sievePool is one pool. Its slots say for each block which lease it is under.
type sievePool struct {
	worker int32
	name   string
	pages  map[int64]*sievePage
	near   *sievePage // the page that was asked for last
	nearNo int64
	open   []*sieveLease
	core   map[int64]bool // blocks that are left to Judge
	latest sieveLatest    // what its mutations come after so far, themselves included
	after  [orders]lineage
}

// sievePage is a run of blocks: their leases, and how many each has had.
type sievePage struct {
	lease [sievePageSize]*sieveLease
	had   [sievePageSize]uint32
}

const (
	sievePageSize = 128
	// maxSieveSlots bounds the blocks that slots are kept for.
	maxSieveSlots = 4 << 20
	// maxSieveOps bounds the block numbers of one event.
	maxSieveOps = 1 << 20
)

// sieveLease is the lease of some blocks that one alloc began and that have lived
// the same life since. An event that names only some of them splits it.
type sieveLease struct {
	pool     *sievePool
	blocks   int
	at       int // in pool.open
	stamp    int32
	hits     int
	thread   int32 // of the alloc
	pos      int32
	holders  []sieveHolder
	grants   []sieveGrant
	accesses []*sieveAccess
	core     bool // it is left to Judge
}

type sieveHolder struct {
	holder  string
	handoff *sieveName
	req     *sieveName
}

type sieveGrant struct {
	handoff *sieveName
	to      string
	mode    string
	thread  int32
	pos     int32
	told    bool // a path leads from the alloc to it
	revoked bool
}

type sieveAccess struct {
	id      string
	by      int32
	group   *sieveGroup
	handoff *sieveName
	leases  int // that are open
	ended   bool
	freed   bool // one of its leases was freed
	thread  int32
	pos     int32
	endAt   int32
	seq     uint64 // of the begin
	beginBy int64  // the latest times of the two, on their clocks
	endBy   int64
	endTh   int32
	fronts  []sieveFront
	after   lineage // what comes before its begin, where an order is kept
}

// sieveFront is a place to which a signal that lists the access brought its end.
type sieveFront struct{ thread, pos int32 }

func newSieveMemory() sieveMemory {
	return sieveMemory{pools: map[sievePoolKey]*sievePool{}, accesses: map[string]*sieveAccess{}}
}

func (s *Sieve) declare(e *spec.Event, at sievePlace) {
	key := sievePoolKey{at.worker, strings.Clone(e.Pool)}
	if _, twice := s.memory.pools[key]; twice {
		s.giveUp("a pool declared twice")
		return
	}
	s.memory.pools[key] = &sievePool{worker: at.worker, name: key.name, pages: map[int64]*sievePage{}, nearNo: -1, latest: nothingYet(), core: s.coreBlocks(at.worker, key.name)}
}

// poolOf finds the pool that a source mutates.
func (s *Sieve) poolOf(e *spec.Event, at *sievePlace) *sievePool {
	src := &s.sources[at.source]
	for _, p := range src.pools {
		if p.name == e.Pool {
			return p
		}
	}
	p := s.memory.pools[sievePoolKey{at.worker, e.Pool}]
	if p == nil {
		s.giveUp("a pool declared late")
		return nil
	}
	src.pools = append(src.pools, p)
	return p
}

// page finds the page of a block. It is nil where there is none, or no room for
// one that is asked for.
func (s *Sieve) page(p *sievePool, block int64, fresh bool) *sievePage {
	no := block / sievePageSize
	if no == p.nearNo {
		return p.near
	}
	page := p.pages[no]
	if page == nil && fresh {
		if s.memory.slots += sievePageSize; s.memory.slots > maxSieveSlots {
			s.giveUp("many blocks")
			return nil
		}
		page = &sievePage{}
		p.pages[no] = page
	}
	if page != nil {
		p.near, p.nearNo = page, no
	}
	return page
}

// usual reports whether the sieve takes the blocks of an event: not too many, and
// none twice.
func (s *Sieve) usual(b spec.Blocks) bool {
	if b.Len() > maxSieveOps {
		return s.giveUp("an event about many blocks")
	}
	for i := 1; i < len(b); i++ {
		if b[i].First > b[i-1].Last {
			continue
		}
		sorted := append(s.memory.sorted[:0], b...)
		s.memory.sorted = sorted
		slices.SortFunc(sorted, func(x, y spec.BlockRange) int { return cmp.Compare(x.First, y.First) })
		for j := 1; j < len(sorted); j++ {
			if sorted[j].First <= sorted[j-1].Last {
				return s.giveUp("a block named twice")
			}
		}
		break
	}
	return true
}

// leases finds the leases that hold all of an event's blocks and no others; what
// is leased together and named in part is split. It is false if a block is free.
func (s *Sieve) leases(p *sievePool, b spec.Blocks) ([]*sieveLease, bool) {
	hit := s.memory.hit[:0]
	all := true
	for n := range b.All {
		page := s.page(p, n, false)
		if page == nil || page.lease[n%sievePageSize] == nil {
			all = false
			continue
		}
		l := page.lease[n%sievePageSize]
		if l.stamp != s.n {
			l.stamp, l.hits = s.n, 0
			hit = append(hit, l)
		}
		l.hits++
	}
	for i, l := range hit {
		if l.hits < l.blocks {
			hit[i] = s.split(l, p, b)
		}
	}
	s.memory.hit = hit
	return hit, all
}

// split takes the blocks that an event names out of a lease.
func (s *Sieve) split(l *sieveLease, p *sievePool, b spec.Blocks) *sieveLease {
	part := s.newLease(p)
	part.blocks, part.thread, part.pos = l.hits, l.thread, l.pos
	l.blocks -= l.hits
	part.holders, part.grants = append(part.holders, l.holders...), append(part.grants, l.grants...)
	part.accesses = append(part.accesses, l.accesses...)
	part.core = l.core
	for _, a := range part.accesses {
		a.leases++
	}
	part.keep(1)
	for n := range b.All {
		if page := s.page(p, n, false); page != nil && page.lease[n%sievePageSize] == l {
			page.lease[n%sievePageSize] = part
		}
	}
	return part
}

func (s *Sieve) newLease(p *sievePool) *sieveLease {
	var l *sieveLease
	if n := len(s.memory.spare); n > 0 {
		l = s.memory.spare[n-1]
		s.memory.spare = s.memory.spare[:n-1]
	} else {
		l = &sieveLease{}
	}
	l.pool, l.at, l.stamp = p, len(p.open), -1
	p.open = append(p.open, l)
	return l
}

// keep changes how often the groups of the lease's holders and grants are referred to.
func (l *sieveLease) keep(n int) {
	for i := range l.holders {
		l.holders[i].keep(n)
	}
	for i := range l.grants {
		l.grants[i].handoff.group.root().refs += n
	}
}

func (h *sieveHolder) group() *sieveGroup {
	switch {
	case h.handoff != nil:
		return h.handoff.group.root()
	case h.req != nil:
		return h.req.group.root()
	}
	return nil
}

func (h *sieveHolder) keep(n int) {
	if g := h.group(); g != nil {
		g.refs += n
	}
}

// mutate judges a mutation of a pool: BLK-1, BLK-4, and for a free all that must
// be over by then.
func (s *Sieve) mutate(e *spec.Event, at *sievePlace) {
	p := s.poolOf(e, at)
	at.pool = p
	if p == nil || !s.usual(e.Blocks) || len(e.Blocks) == 0 {
		return
	}
	if at.core {
		s.mutateCore(p, e, at)
		return
	}
	if at.group != nil && (e.K == spec.KindAlloc || e.K == spec.KindHold || e.K == spec.KindGrant) {
		s.acquire(p, e.Blocks, at.group)
	}
	if e.K == spec.KindAlloc {
		s.alloc(p, e, at)
		return
	}
	hit, all := s.leases(p, e.Blocks)
	if !all && e.K != spec.KindRevoke {
		s.brokenChain("BLK-4", p, e.Blocks)
		return
	}
	switch e.K {
	case spec.KindHold:
		s.hold(hit, e, at)
	case spec.KindDrop:
		s.counts.blk4++
		s.drop(p, hit, e)
	case spec.KindFree:
		s.counts.blk4++
		s.free(p, hit, e, at)
	case spec.KindGrant:
		s.grant(hit, e, at)
	case spec.KindRevoke:
		s.revoke(p, hit, e, at)
	}
}

func (s *Sieve) revoke(p *sievePool, hit []*sieveLease, e *spec.Event, at *sievePlace) {
	for _, l := range hit {
		for i := range l.grants {
			if g := &l.grants[i]; g.handoff == at.handoff {
				g.revoked = true // from some or all: the sieve does not tell
				if s.order != nil && len(l.accesses) > 0 {
					s.suspectLease("a revoke of what was accessed", p, l, e.Blocks)
				}
			}
		}
	}
}

// acquire notes that a group holds or is granted blocks. One that it had before
// under another lease may be meant by an access as well as that.
func (s *Sieve) acquire(p *sievePool, b spec.Blocks, g *sieveGroup) {
	g.acquired = true
	for _, f := range g.freed {
		if f.pool != p {
			continue
		}
		for _, r := range b {
			if r.First <= f.last && f.first <= r.Last {
				s.giveUp("a block leased again for the same request")
				return
			}
		}
	}
}

// release notes that blocks of a group were given back, once for each event.
func (s *Sieve) release(p *sievePool, b spec.Blocks, g *sieveGroup) {
	if g == nil || g.released == s.n {
		return
	}
	g.released = s.n
	if len(g.freed)+len(b) > maxSieveList {
		s.giveUp("many blocks of one request")
		return
	}
	g.freed = slices.Grow(g.freed, len(b))
	for _, r := range b {
		if n := len(g.freed) - 1; n >= 0 && g.freed[n].pool == p && g.freed[n].first <= r.First && r.First <= g.freed[n].last+1 {
			g.freed[n].last = max(g.freed[n].last, r.Last)
			continue
		}
		g.freed = append(g.freed, sieveRange{p, r.First, r.Last})
	}
}

func (s *Sieve) alloc(p *sievePool, e *spec.Event, at *sievePlace) {
	if e.Holder == "" {
		s.giveUp("a lease without a holder")
		return
	}
	l := s.newLease(p)
	l.thread, l.pos = at.thread, s.n
	for n := range e.Blocks.All {
		page := s.page(p, n, true)
		if page == nil {
			return
		}
		i := n % sievePageSize
		if page.lease[i] != nil {
			s.brokenChain("BLK-1", p, e.Blocks)
			return
		}
		page.lease[i] = l
		if page.had[i]++; page.had[i] == 1 {
			s.stats.Blocks++
		}
		l.blocks++
	}
	s.stats.Leases += l.blocks
	s.counts.blk1++
	s.addHolder(l, e, at)
}

func (s *Sieve) addHolder(l *sieveLease, e *spec.Event, at *sievePlace) {
	h := sieveHolder{handoff: at.handoff, req: at.req}
	switch {
	case at.req != nil && at.req.text == e.Holder:
		h.holder = at.req.text
	case at.handoff != nil && at.handoff.text == e.Holder:
		h.holder = at.handoff.text
	default:
		h.holder = strings.Clone(e.Holder)
	}
	if len(l.holders) == maxSieveList {
		s.giveUp("many holders")
		return
	}
	l.holders = append(l.holders, h)
	if at.group != nil {
		at.group.held = true
	}
	h.keep(1)
}

func (l *sieveLease) holderOf(name string) int {
	return slices.IndexFunc(l.holders, func(h sieveHolder) bool { return h.holder == name })
}

func (s *Sieve) hold(hit []*sieveLease, e *spec.Event, at *sievePlace) {
	for _, l := range hit {
		if e.Holder == "" || l.holderOf(e.Holder) >= 0 {
			s.brokenChain("BLK-4", l.pool, e.Blocks)
			return
		}
		s.addHolder(l, e, at)
	}
}

func (s *Sieve) drop(p *sievePool, hit []*sieveLease, e *spec.Event) {
	for _, l := range hit {
		i := l.holderOf(e.Holder)
		if i < 0 {
			s.brokenChain("BLK-4", p, e.Blocks)
			return
		}
		s.release(p, e.Blocks, l.holders[i].group())
		l.holders[i].keep(-1)
		l.holders = slices.Delete(l.holders, i, i+1)
	}
}

func (s *Sieve) grant(hit []*sieveLease, e *spec.Event, at *sievePlace) {
	g := at.group
	if at.handoff == nil {
		s.giveUp("an empty handoff")
		return
	}
	if g.ungranted {
		s.giveUp("a grant after an access without it")
		return
	}
	g.granted = true
	for _, l := range hit {
		for i := range l.grants {
			if l.grants[i].handoff == at.handoff {
				s.giveUp("a block granted twice")
				return
			}
		}
		if len(l.grants) == maxSieveList {
			s.giveUp("many grants")
			return
		}
		told := g.leads(pathAny, l.thread, l.pos, at.thread)
		to := strings.Clone(e.To)
		if w, ok := s.workers[e.To]; ok {
			to = s.texts[w]
		}
		l.grants = append(l.grants, sieveGrant{handoff: at.handoff, to: to, mode: modeText(e.Mode), thread: at.thread, pos: s.n, told: told})
		g.refs++
	}
}

// modeText is the mode as a string that outlives the event.
func modeText(m string) string {
	for _, k := range []string{"r", "w", "rw"} {
		if m == k {
			return k
		}
	}
	return strings.Clone(m)
}
