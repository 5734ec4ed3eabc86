package check

import (
	"fmt"
	"sort"

	"conform/spec"
)

// named is what an event speaks of: a handoff and a request, either of which may
// be none. doubt says that events are missing which may say otherwise.
type named struct {
	handoff, req int32
	doubt        bool
}

// staleSignals judges SIG-3: no decision waited for a signal of another handoff,
// and no signal is taken for another handoff's.
func (c *court) staleSignals() {
	for _, e := range c.h.byKind[spec.KindObserve] {
		s := c.h.emitOf[e]
		if s == none {
			continue
		}
		as, _ := c.h.named(e)
		of, _ := c.h.named(s)
		if as == none || of == none {
			continue
		}
		c.judged(spec.SIG3, 1)
		if as != of {
			c.find(Finding{
				Rule: spec.SIG3, Verdict: spec.Fail, Handoff: c.h.ev[e].Handoff, Req: c.h.ev[e].Req, Events: c.ids(s, e),
				Text: fmt.Sprintf("%s was emitted for handoff %s at %s and taken for one of handoff %s at %s",
					c.h.ev[s].Signal, c.h.ev[s].Handoff, c.say(s), c.h.ev[e].Handoff, c.say(e)),
			})
		}
	}
	for i := range c.h.ev {
		if by := c.h.ev[i].By; by != "" {
			if s, known := c.signal(by); known {
				c.judgeDecision(int32(i), s)
			}
		}
		if i%4096 == 0 && c.ctx.Err() != nil {
			return
		}
	}
}

// signal finds the emit of a signal.
func (c *court) signal(sig string) (int32, bool) {
	if c.sigs == nil {
		c.sigs = make(map[string]int32, len(c.h.emits))
		for _, s := range c.h.emits {
			if _, dup := c.sigs[c.h.ev[s].Sig]; !dup {
				c.sigs[c.h.ev[s].Sig] = s
			}
		}
	}
	s, ok := c.sigs[sig]
	return s, ok
}

// judgeDecision judges a decision that says which signal it waited for. One about
// several blocks is judged for each of their leases.
func (c *court) judgeDecision(e, s int32) {
	var of, by named
	of.handoff, of.req = c.h.named(e)
	by.handoff, by.req = c.h.named(s)
	compared := false
	c.decided(e, of, by, func(of named, number int64) bool {
		other, doubt, known := c.another(by, of)
		if known && !compared {
			compared = true
			c.judged(spec.SIG3, 1)
		}
		if !other {
			return true
		}
		f := Finding{
			Rule: spec.SIG3, Verdict: spec.Fail, Handoff: c.h.ev[e].Handoff, Req: c.h.ev[e].Req, Events: c.ids(s, e),
			Text: fmt.Sprintf("%s decided %s at %s on %s, which is about %s", c.h.workerName(e), c.about(of), c.say(e), c.say(s), c.about(by)),
		}
		if p := c.h.poolOf[e]; p != none {
			f.Block = c.blockName(p, number)
		}
		if doubt {
			f.Verdict = spec.Inconclusive
			f.Text += "; events are missing that may say otherwise"
		}
		c.find(f)
		return false
	})
}

// decided yields what a decision is about: what it names, and for each block what
// its lease names where that does not settle it.
func (c *court) decided(e int32, of, by named, yield func(named, int64) bool) {
	p := c.h.poolOf[e]
	lacks := of.handoff == none // what is compared with the signal
	if by.handoff == none {
		lacks = of.req == none
	}
	if p == none || !lacks {
		yield(of, c.firstBlock(e))
		return
	}
	seen := map[named]bool{}
	for n := range c.h.blocksOf(e).All {
		got := c.ofLease(e, blockKey{p, n}, of)
		if !seen[got] && !yield(got, n) {
			return
		}
		seen[got] = true
	}
}

func (c *court) firstBlock(e int32) int64 {
	for n := range c.h.blocksOf(e).All {
		return n
	}
	return 0
}

// ofLease fills in what a decision about a block does not name: from the holder's
// stay that it ends, else from the lease's begin. A lease may be shared: what it
// names is not about a decision that names another request.
func (c *court) ofLease(e int32, key blockKey, of named) named {
	id, ok := c.chains.blockID[key]
	if !ok {
		return of
	}
	l := c.leaseAt(id, e)
	if l == nil {
		return of
	}
	fill := func(handoff, req int32) {
		switch {
		case of.req != none && req != none && of.req != req, of.handoff != none && handoff != none && of.handoff != handoff:
			return
		}
		if of.handoff == none {
			of.handoff = handoff
		}
		if of.req == none {
			of.req = req
		}
		of.doubt = of.doubt || c.h.epochOf[l.alloc] != c.h.epochOf[e]
	}
	holder := c.h.ev[e].Holder
	var stay *holding
	left := 0
	for i := range l.holds {
		h := &l.holds[i]
		if holder == "" && h.to == e {
			stay, left = h, left+1
		} else if holder != "" && h.holder == holder && (h.to == e || h.from == e) {
			stay, left = h, 1
			break
		}
	}
	if left == 1 {
		fill(stay.handoff, stay.req)
	}
	fill(c.h.named(l.alloc))
	return of
}

// leaseAt finds the lease of a block that a mutation of its pool acts on, nil if
// there is none or the block is judged no further.
func (c *court) leaseAt(id, e int32) *lease {
	b := &c.chains.blocks[id]
	pos := c.h.poolPos
	if b.dead != none && pos[b.dead] <= pos[e] {
		return nil
	}
	i := sort.Search(len(b.leases), func(i int) bool { return pos[c.chains.leases[b.leases[i]].alloc] > pos[e] })
	if i == 0 {
		return nil
	}
	l := &c.chains.leases[b.leases[i-1]]
	if l.free != none && pos[l.free] < pos[e] {
		return nil
	}
	return l
}

// another reports whether a signal is of another handoff than a decision, or of
// another request if either has no handoff, and whether that can be told. A
// handoff without a request has those linked to it; what only a missing link
// shows is in doubt where events were lost.
func (c *court) another(by, of named) (other, doubt, known bool) {
	if by.handoff != none && of.handoff != none {
		return by.handoff != of.handoff, of.doubt, true
	}
	if by.req != none && of.req != none {
		return by.req != of.req, of.doubt, true
	}
	handoff, req := by.handoff, of.req
	if by.req != none {
		handoff, req = of.handoff, by.req
	}
	if handoff == none || req == none || len(c.h.names.links[handoff]) == 0 {
		return false, false, false
	}
	return !c.h.names.linked[[2]int32{handoff, req}], of.doubt || c.lost, true
}

// about says what something speaks of.
func (c *court) about(n named) string {
	switch {
	case n.handoff == none && n.req == none:
		return "nothing that it names"
	case n.handoff == none:
		return "request " + c.h.names.text[n.req]
	case n.req == none:
		return "handoff " + c.h.names.text[n.handoff]
	}
	return fmt.Sprintf("handoff %s of request %s", c.h.names.text[n.handoff], c.h.names.text[n.req])
}
