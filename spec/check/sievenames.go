package check

import (
	"hash/maphash"
	"slices"
	"strings"

	"conform/spec"
)

// sieveNames holds the handoffs and requests that are open or were of late.
type sieveNames struct {
	handoffs, reqs map[string]*sieveName
	seed           maphash.Seed
	past           hashSet       // of names that were forgotten
	queue          []sieveQueued // in the order of since
}

type sieveName struct {
	text  string
	group *sieveGroup
}

// sieveGroup is a request with the handoffs that are linked to it, or handoffs
// and requests that are not linked yet. All that it holds concerns all of it: the
// sieve takes no group with two requests, in which that would not be so.
type sieveGroup struct {
	parent   *sieveGroup // after a union
	names    []*sieveName
	req      *sieveName
	last     int32 // position of the last event that named it
	released int32 // position of the last event that gave back blocks of it
	refs     int   // holders and grants of open leases, and accesses that are kept
	threads  []sieveKnows
	freed    []sieveRange // blocks that it held or was granted once
	parts    []sievePart
	workers  []sieveWork
	// reqEmits are the signals that name the request and no handoff.
	reqEmits   []sieveEmit
	finishers  []int32
	cancellers []int32 // workers that took in that it was cancelled
	asks       []sieveAsk
	enders     []int32 // workers that saw the request end
	submit     *sieveNeed

	begun, acquired, granted, ungranted bool
	rejected, ended, held               bool
	clientEnded, clientGood, failed     bool
	bareAdmit, idled                    bool
	core                                bool // it is left to Judge
}

// sieveQueued is a group that may be forgotten a while after a position.
type sieveQueued struct {
	group *sieveGroup
	since int32
}

type sieveNeed struct {
	need *int64
	unit string
}

// sieveRange is a range of blocks of a pool.
type sieveRange struct {
	pool        *sievePool
	first, last int64
}

// sievePart is what is known of the digests of one part of a handoff.
type sievePart struct {
	handoff        *sieveName
	part           int64
	sum            string
	source, target bool
}

// maxSieveList bounds each list of a group: what is beyond is no usual trace.
const maxSieveList = 1 << 12

func newSieveNames() sieveNames {
	return sieveNames{handoffs: map[string]*sieveName{}, reqs: map[string]*sieveName{}, seed: maphash.MakeSeed()}
}

// resolve finds whom an event names, and links the two.
func (s *Sieve) resolve(e *spec.Event) (handoff, req *sieveName, g *sieveGroup) {
	if e.Handoff != "" {
		handoff = s.name(e.Handoff, false)
		g = handoff.group.root()
	}
	if e.Req != "" {
		req = s.name(e.Req, true)
		r := req.group.root()
		if g != nil && g != r {
			g = s.unite(g, r)
		} else {
			g = r
		}
	}
	if g != nil {
		g.last = s.n
	}
	return handoff, req, g
}

func (g *sieveGroup) root() *sieveGroup {
	for g.parent != nil {
		g = g.parent
	}
	return g
}

func (s *Sieve) name(text string, req bool) *sieveName {
	m := s.names.handoffs
	if req {
		m = s.names.reqs
	}
	if n, ok := m[text]; ok {
		return n
	}
	n := &sieveName{text: strings.Clone(text)}
	m[n.text] = n
	g := &sieveGroup{names: []*sieveName{n}, last: s.n, core: s.core.has(text, req)}
	n.group = g
	if req {
		g.req = n
	}
	if s.names.past.has(s.names.hash(text, req)) {
		s.comeBack(g)
	} else if req {
		s.stats.Requests++
	} else {
		s.stats.Handoffs++
	}
	s.names.queue = append(s.names.queue, sieveQueued{g, s.n})
	return n
}

func (m *sieveNames) hash(text string, req bool) uint64 {
	h := maphash.String(m.seed, text)
	if req {
		h = h<<1 | h>>63
	}
	return h
}

// unite joins two groups by a new link. What was judged of one alone, and might
// have been judged otherwise with the other, makes the sieve give up.
func (s *Sieve) unite(a, b *sieveGroup) *sieveGroup {
	switch {
	case a.core || b.core:
		s.joinCore(a, b)
	case a.req != nil && b.req != nil:
		s.suspect("two requests with one handoff", a, b)
	case a.begun && b.acquired, b.begun && a.acquired:
		s.suspect("a link after accesses and leases", a, b)
	case a.spokeOf(b), b.spokeOf(a):
		s.suspect("a link after signals and accesses", a, b)
	case len(a.cancellers) > 0 && b.begun, len(b.cancellers) > 0 && a.begun:
		s.suspect("a link after a cancel", a, b)
	case a.rejected && b.begun, b.rejected && a.begun, a.idled, b.idled:
		s.suspect("a link after a reject or an idle", a, b)
	case a.ungranted && b.granted, b.ungranted && a.granted:
		s.suspect("a link after a grant", a, b)
	}
	if len(a.names) < len(b.names) {
		a, b = b, a
	}
	a.names = append(a.names, b.names...)
	if a.req == nil {
		a.req = b.req
	}
	if a.submit == nil {
		a.submit = b.submit
	}
	a.refs += b.refs
	a.freed, a.parts = append(a.freed, b.freed...), append(a.parts, b.parts...)
	a.workers, a.reqEmits = append(a.workers, b.workers...), append(a.reqEmits, b.reqEmits...)
	a.cancellers, a.asks = append(a.cancellers, b.cancellers...), append(a.asks, b.asks...)
	a.finishers, a.enders = append(a.finishers, b.finishers...), append(a.enders, b.enders...)
	for i := range b.threads {
		a.learnAll(&b.threads[i])
	}
	a.begun, a.acquired, a.granted = a.begun || b.begun, a.acquired || b.acquired, a.granted || b.granted
	a.ungranted, a.rejected, a.ended = a.ungranted || b.ungranted, a.rejected || b.rejected, a.ended || b.ended
	a.held, a.clientEnded, a.clientGood = a.held || b.held, a.clientEnded || b.clientEnded, a.clientGood || b.clientGood
	a.failed, a.bareAdmit, a.core = a.failed || b.failed, a.bareAdmit || b.bareAdmit, a.core || b.core
	*b = sieveGroup{parent: a}
	return a
}

// spokeOf reports whether a worker's signal for the request of one group speaks of
// its accesses in another, once the two are linked.
func (g *sieveGroup) spokeOf(o *sieveGroup) bool {
	return slices.ContainsFunc(g.reqEmits, func(e sieveEmit) bool {
		return slices.ContainsFunc(o.workers, func(w sieveWork) bool { return w.worker == e.worker && len(w.threads) > 0 })
	})
}

// sweep forgets the groups that nothing keeps and no event named for long.
func (s *Sieve) sweep() {
	q := s.names.queue
	i := 0
	for ; i < len(q) && s.n-q[i].since >= s.keep.names; i++ {
		g := q[i].group
		switch {
		case g.parent != nil: // its names are another's
		case g.refs > 0 || s.n-g.last < s.keep.names:
			q = append(q, sieveQueued{g, s.n})
		default:
			s.settle(g)
			s.forget(g)
		}
	}
	s.names.queue = append(s.names.queue[:0], q[i:]...)
	s.signals.sweep(s.n, s.keep.signals)
}

func (s *Sieve) forget(g *sieveGroup) {
	for _, n := range g.names {
		req := n == g.req
		s.names.past.add(s.names.hash(n.text, req))
		if req {
			delete(s.names.reqs, n.text)
		} else {
			delete(s.names.handoffs, n.text)
		}
	}
}

// settle counts what could only be counted once all of a group was seen.
func (s *Sieve) settle(g *sieveGroup) {
	for i := range g.parts {
		if g.parts[i].source && g.parts[i].target {
			s.counts.dat1++
		}
	}
	s.unsettled(g)
}

// unsettled gives up on a request that was rejected, cancelled or expired and held
// something: how it gave it back is for Judge to tell (settlement.go).
func (s *Sieve) unsettled(g *sieveGroup) {
	if g.ended && g.held && g.req != nil && !g.core {
		s.suspect("an ended request that held blocks", g)
	}
}

// hashSet is a set of hashes of 64 bits: 8 bytes each where it is full.
type hashSet struct {
	slots []uint64
	n     int
	zero  bool
}

func (h *hashSet) has(x uint64) bool {
	if x == 0 {
		return h.zero
	}
	if len(h.slots) == 0 {
		return false
	}
	mask := uint64(len(h.slots) - 1)
	for i := x & mask; h.slots[i] != 0; i = (i + 1) & mask {
		if h.slots[i] == x {
			return true
		}
	}
	return false
}

func (h *hashSet) add(x uint64) {
	if x == 0 {
		h.zero = true
		return
	}
	if h.n*4 >= len(h.slots)*3 {
		old := h.slots
		h.slots = make([]uint64, max(1024, 2*len(old)))
		for _, y := range old {
			if y != 0 {
				h.put(y)
			}
		}
	}
	if h.put(x) {
		h.n++
	}
}

func (h *hashSet) put(x uint64) bool {
	mask := uint64(len(h.slots) - 1)
	i := x & mask
	for ; h.slots[i] != 0; i = (i + 1) & mask {
		if h.slots[i] == x {
			return false
		}
	}
	h.slots[i] = x
	return true
}
