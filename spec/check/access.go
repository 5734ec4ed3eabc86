package check

import (
	"slices"
	"strings"

	"conform/spec"
)

// caseState is how far the judgement of an access has come.
type caseState int

const (
	caseUnjudged caseState = iota // nothing to judge: no block, or only blocks judged no further
	caseOpen                      // to be judged
	caseHarmless                  // begins surely after a fence: touches nothing
	caseUnknown                   // what it touches was not recorded
	caseStale                     // fails BLK-3
	caseEarly                     // fails BLK-2: the lease ended while it was open
	caseLegal
)

// accessCase is one access before the court.
type accessCase struct {
	a       *access
	state   caseState
	fences  []int32 // that end it, at most maxFences
	classes []class
	places  []place // the legal ways to place it, each alone against the base
	// spots finds a block's number among the classes; nil where there are few.
	spots map[int64]spot
	// outlasted is set once BLK-2 has been applied to it.
	outlasted bool
	// chosen is the place with the best evidence, of those that are legal.
	chosen int
}

// class is a set of blocks of an access for which the same leases come into
// question.
type class struct {
	numbers []int64
	cands   []candidate
	// leases are, for each block, the lease of each candidate.
	leases [][]int32
}

// spot is where a block stands: its class, and its place in that.
type spot struct{ class, at int }

// fewBlocks is up to where looking for a number is quicker than a map of them.
const fewBlocks = 16

// spotOf finds a block of the access by its number.
func (k *accessCase) spotOf(n int64) (spot, bool) {
	if k.spots != nil {
		s, ok := k.spots[n]
		return s, ok
	}
	for i := range k.classes {
		if j := slices.Index(k.classes[i].numbers, n); j >= 0 {
			return spot{i, j}, true
		}
	}
	return spot{}, false
}

func (k *accessCase) fillSpots(blocks int) {
	if blocks <= fewBlocks {
		return
	}
	k.spots = make(map[int64]spot, blocks)
	for i := range k.classes {
		for j, n := range k.classes[i].numbers {
			k.spots[n] = spot{i, j}
		}
	}
}

// candidate is a lease that an access may belong to, by the events that bound it.
type candidate struct {
	alloc, grant, revoke int32 // grant and revoke: none without
	free                 int32 // none while the lease lasts
	until                int32 // free, or the next alloc where the free was lost
}

// lower is the event after which an access under the candidate begins.
func (c candidate) lower() int32 {
	if c.grant != none {
		return c.grant
	}
	return c.alloc
}

// place is one way to fit an access into the chains of its blocks. All its
// blocks are of one pool, whose order is total, so that however many they are,
// three events bound it: the last lower bound, the first revoke, the first end
// of a lease.
type place struct {
	lower, revoke, until int32
	choice               []int // the candidate of each class
	// fence, where it is set, ends the access: as it begins after it (stale), or
	// before its end.
	fence int32
	stale bool
	edges []edge
}

// maxFences and maxPlaces bound what one access may ask for. A trace of a real
// stack has one fence a handoff and one lease a handoff and block.
const (
	maxFences = 3
	maxPlaces = 256
)

// openCases finds for each access the leases that it may belong to.
func (c *court) openCases() error {
	c.cases = make([]accessCase, len(c.h.accesses))
	choices, most := 0, freeChoices+opsPerEvent*len(c.h.ev)
	for i := range c.h.accesses {
		a := &c.h.accesses[i]
		k := &c.cases[i]
		k.a = a
		if a.pool == none {
			k.state = caseUnknown
			continue
		}
		k.fences = c.fencesOf(a)
		seen := map[int64]bool{} // a list may name a block twice
		for n := range c.h.blocksOf(a.begin).All {
			if seen[n] {
				continue
			}
			seen[n] = true
			id, ok := c.chains.blockID[blockKey{a.pool, n}]
			if !ok {
				id = none
			} else if d := c.chains.blocks[id].dead; d != none && c.base.mayPrecede(d, a.begin) {
				continue
			}
			cands, leases := c.candidates(a, id)
			if choices += len(cands); choices > most {
				return &LimitError{"leases that accesses may belong to", most}
			}
			k.add(n, cands, leases)
		}
		k.fillSpots(len(seen))
		if len(k.classes) > 0 {
			k.state = caseOpen
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// fencesOf lists the fences that end the access. Of fences of which one is surely
// the first, that does all that the others do.
func (c *court) fencesOf(a *access) []int32 {
	var out []int32
	for _, f := range c.allFences(a) {
		if slices.ContainsFunc(out, func(o int32) bool { return c.base.surelyBefore(o, f) }) {
			continue
		}
		out = slices.DeleteFunc(out, func(o int32) bool { return c.base.surelyBefore(f, o) })
		if out = append(out, f); len(out) == maxFences {
			break
		}
	}
	return out
}

// allFences lists the fences of the access's handoff by the worker that it
// touches, another one.
func (c *court) allFences(a *access) []int32 {
	if a.handoff == none || a.by == a.target {
		return nil
	}
	return c.h.fences[fenceKey{a.target, a.handoff}]
}

// candidates lists the leases of a block that the access may belong to: those
// that a grant of its handoff exposed to it, if such a grant names the block and
// the accessor is another worker, else those that its request holds at some
// time. The second result names the lease of each.
func (c *court) candidates(a *access, id int32) ([]candidate, []int32) {
	if id == none {
		return nil, nil
	}
	if a.by != a.target && a.handoff != none {
		if ls := c.chains.granted[blockName{id, a.handoff}]; len(ls) > 0 {
			return c.granted(a, ls)
		}
	}
	var ls []int32
	for _, n := range c.h.names.concern(a.handoff, a.req) {
		ls = append(ls, c.chains.held[blockName{id, n}]...)
	}
	slices.Sort(ls)
	ls = slices.Compact(ls)
	cands := make([]candidate, len(ls))
	for i, l := range ls {
		cands[i] = c.candidate(l, none, none)
	}
	return cands, ls
}

func (c *court) candidate(l, grant, revoke int32) candidate {
	le := &c.chains.leases[l]
	k := candidate{alloc: le.alloc, grant: grant, revoke: revoke, free: le.free, until: le.free}
	if k.until == none {
		k.until = le.lostFree
	}
	return k
}

func (c *court) granted(a *access, ls []int32) (cands []candidate, leases []int32) {
	by, mode := c.h.workers[a.by], c.h.ev[a.begin].Mode
	for _, l := range ls {
		le := &c.chains.leases[l]
		for _, g := range le.grants {
			e := &c.h.ev[g]
			if h, _ := c.h.named(g); h != a.handoff || e.To != by && e.To != "*" || !strings.Contains(e.Mode, mode) {
				continue
			}
			cands = append(cands, c.candidate(l, g, c.revoked(le, g, by, mode)))
			leases = append(leases, l)
		}
	}
	return cands, leases
}

// add files a block under the class with the same candidates.
func (k *accessCase) add(n int64, cands []candidate, leases []int32) {
	for i := range k.classes {
		if cl := &k.classes[i]; slices.Equal(cl.cands, cands) {
			cl.numbers, cl.leases = append(cl.numbers, n), append(cl.leases, leases)
			return
		}
	}
	k.classes = append(k.classes, class{[]int64{n}, cands, [][]int32{leases}})
}

// combine lists the ways to choose one candidate for each class such that the
// pool's order leaves room for the access. It is false if there are more than
// it will list.
func (c *court) combine(k *accessCase) ([]place, bool) {
	all := []place{{lower: none, revoke: none, until: none, fence: none}}
	complete := true
	for _, cl := range k.classes {
		var next []place
		for _, p := range all {
			for i, cand := range cl.cands {
				q := place{
					lower: c.later(p.lower, cand.lower()), revoke: c.earlier(p.revoke, cand.revoke),
					until: c.earlier(p.until, cand.until), fence: none,
					choice: append(slices.Clip(p.choice), i),
				}
				if c.inOrder(q.lower, q.revoke) && c.inOrder(q.lower, q.until) {
					next = append(next, q)
				}
			}
		}
		if len(next) > maxPlaces {
			next, complete = next[:maxPlaces], false
		}
		all = next
	}
	return all, complete
}

func (c *court) later(a, b int32) int32 {
	if a == none || b != none && c.h.poolPos[b] > c.h.poolPos[a] {
		return b
	}
	return a
}

func (c *court) earlier(a, b int32) int32 {
	if a == none || b != none && c.h.poolPos[b] < c.h.poolPos[a] {
		return b
	}
	return a
}

func (c *court) inOrder(a, b int32) bool {
	return a == none || b == none || c.h.poolPos[a] < c.h.poolPos[b]
}

// begins lists the edges that a place asks for whatever the access's end.
func (p *place) begins(a *access) []edge {
	if p.stale {
		return []edge{{p.fence, a.begin}}
	}
	return []edge{{p.lower, a.begin}, {a.begin, p.revoke}, {a.begin, p.until}}
}

// withEnd lists the ways in which the access's end can lie, given where it
// begins. A fence after the begin is the end if no end is seen or the end is
// later; a fence before the begin makes the access touch nothing.
func (c *court) withEnd(k *accessCase, p place) []place {
	a := k.a
	with := func(fence int32, stale bool, more ...edge) place {
		q := p
		q.fence, q.stale = fence, stale
		q.edges = append(q.begins(a), more...)
		if a.end != none {
			q.edges = append(q.edges, edge{a.begin, a.end})
		}
		return q
	}
	var out []place
	switch {
	case a.end != none:
		until := []edge{{a.end, p.until}}
		for _, f := range k.fences {
			until = append(until, edge{a.end, f})
		}
		out = append(out, with(none, false, until...))
	case len(k.fences) == 0 && !c.lost:
		// Never seen: after the seal of its source, if that has one.
		out = append(out, with(none, false, edge{c.h.sources[a.src].seal, p.until}))
	case len(k.fences) == 0:
		out = append(out, with(none, false))
	}
	for _, f := range k.fences {
		out = append(out, with(f, false, edge{a.begin, f}, edge{f, p.until}, edge{f, a.end}))
	}
	return out
}

// staleWays lists the ways in which the access begins after a fence.
func (c *court) staleWays(k *accessCase) []place {
	var out []place
	for _, f := range k.fences {
		p := place{lower: none, revoke: none, until: none, fence: f, stale: true}
		p.edges = append(p.begins(k.a), edge{k.a.begin, k.a.end})
		out = append(out, p)
	}
	return out
}

// wildcard reports whether the access may belong to a lease that was lost: one
// that began where its pool's source lost events.
func (c *court) wildcard(a *access) bool {
	return c.lostMutationMayPrecede(a.pool, a.begin)
}

// lostMutationMayPrecede reports whether a mutation of the pool that was lost may
// come before the event. What was lost comes after the pool's last mutation
// before the loss, and may lie anywhere from there on.
func (c *court) lostMutationMayPrecede(p, e int32) bool {
	pool := &c.h.pools[p]
	if !c.h.sources[pool.src].lost() {
		return false
	}
	if pool.whole == 0 {
		return true
	}
	last := pool.muts[pool.whole-1]
	return last == e || c.base.mayPrecede(last, e)
}

// freed reports whether the lease of some block, as the place has it, was freed.
func (k *accessCase) freed(p *place) bool {
	for i, ch := range p.choice {
		if k.classes[i].cands[ch].free != none {
			return true
		}
	}
	return false
}

// targetText says what an access touches, for a finding.
func (c *court) targetText(k *accessCase, n int64) string {
	e := &c.h.ev[k.a.begin]
	b := spec.MakeBlocks(n).String()
	return "block " + strings.Trim(b, "[]") + " of " + e.Target + "/" + e.Pool
}
