package check

import (
	"fmt"

	"conform/spec"
)

// granteeKey groups the blocks for which the same evidence is asked: that the
// grantee of one handoff was quiet before one free.
type granteeKey struct {
	free    int32
	handoff int32
	to      string
	pool    int32
}

// judgeGrantees judges the grantees of freed leases. One that was seen to touch
// the lease is judged by its accesses; of one that was not, a signal must lead to
// the free and say that it stopped, completed or drained: that nothing was seen
// is not that nothing was under way.
func (c *court) judgeGrantees(touched map[int32][]touch) {
	quiet := map[granteeKey]bool{}
	reported := map[granteeKey]bool{}
	for i := range c.chains.leases {
		l := &c.chains.leases[i]
		if l.free == none {
			continue
		}
		pool := c.chains.blocks[l.block].pool
		for _, g := range l.grants {
			e := &c.h.ev[g]
			if e.To == c.h.workers[c.h.pools[pool].worker] {
				continue
			}
			handoff, req := c.h.named(g)
			key := granteeKey{l.free, handoff, e.To, pool}
			if _, known := quiet[key]; !known {
				quiet[key] = c.quietBefore(l.free, g, handoff, req, c.h.pools[pool].worker)
				c.judged(spec.SIG2, 1)
			}
			if quiet[key] || c.wasTouched(touched[int32(i)], e.To, handoff, c.h.pools[pool].worker) {
				continue
			}
			c.evidence[int32(i)] = max(c.evidence[int32(i)], c.missing())
			if !reported[key] {
				reported[key] = true
				c.unquiet(l, g)
			}
		}
	}
}

func (c *court) wasTouched(touches []touch, to string, handoff, owner int32) bool {
	for _, t := range touches {
		if t.by == owner || t.handoff != none && t.handoff != handoff {
			continue
		}
		if to == "*" || c.h.workers[t.by] == to {
			return true
		}
	}
	return false
}

// quietBefore reports whether a signal of the grantee, or a fence of the
// handoff, leads to the free.
func (c *court) quietBefore(free, grant, handoff, req, owner int32) bool {
	emits := c.concerning(handoff, req)
	from := append(c.quieting(emits, c.h.ev[grant].To, owner), c.h.fences[fenceKey{owner, handoff}]...)
	return c.spread(from, emits, quiets).has(c.h, free)
}

func (c *court) unquiet(l *lease, g int32) {
	b := &c.chains.blocks[l.block]
	e := &c.h.ev[g]
	who := "worker " + e.To
	if e.To == "*" {
		who = "every other worker"
	}
	c.find(Finding{
		Rule: spec.SIG2, Verdict: c.missing(), Block: c.blockName(b.pool, b.number), Handoff: e.Handoff, Req: e.Req,
		Events: c.ids(g, l.free),
		Text: fmt.Sprintf("%s was granted lease %d of block %d of %s under handoff %s at %s, no access by it was seen, and the lease was freed at %s; no signal of it for this handoff or its request that claims stopped, completed or drained leads there, and no fence does: it may still begin one",
			who, l.gen, b.number, c.poolName(b.pool), e.Handoff, c.say(g), c.say(l.free)),
	})
}
