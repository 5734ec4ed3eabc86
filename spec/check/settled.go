package check

import (
	"fmt"
	"slices"
	"sort"

	"conform/spec"
)

// settledEnd judges REQ-2: each hold of a request that was rejected, cancelled or
// expired is dropped by an idle or the seal, and not for a timeout without
// evidence.
func (c *court) settledEnd() {
	enders := c.byRequest(spec.KindReject, spec.KindCancel, spec.KindExpire)
	idles := c.idlesByWorker()
	counted := map[int32]bool{}
	for i := range c.chains.leases {
		l := &c.chains.leases[i]
		for j := range l.holds {
			h := &l.holds[j]
			for _, req := range c.h.names.requests(h.handoff, h.req) {
				if len(enders[req]) == 0 {
					continue
				}
				if !counted[req] {
					counted[req] = true
					c.judged(spec.REQ2, 1)
				}
				c.judgeHold(int32(i), h, req, enders[req], idles)
			}
		}
		if i%256 == 0 && c.ctx.Err() != nil {
			return
		}
	}
}

func (c *court) idlesByWorker() map[int32][]int32 {
	m := map[int32][]int32{}
	for _, e := range c.h.byKind[spec.KindIdle] {
		for _, name := range c.h.ev[e].Workers {
			if w, ok := c.h.workerID[name]; ok && !slices.Contains(m[w], e) {
				m[w] = append(m[w], e)
			}
		}
	}
	return m
}

// judgeHold judges one hold of a request that ended so.
func (c *court) judgeHold(l int32, h *holding, req int32, enders []int32, idles map[int32][]int32) {
	le := &c.chains.leases[l]
	b := &c.chains.blocks[le.block]
	if b.dead != none && le.free == none {
		return
	}
	pool := &c.h.pools[b.pool]
	say := func(v spec.Verdict, e int32, format string, args ...any) {
		text := fmt.Sprintf("request %s, which %s, held block %d of %s as %s from %s on", c.h.names.text[req],
			c.howEnded(enders[0]), b.number, c.poolName(b.pool), h.holder, c.say(h.from))
		c.findOnce(Finding{
			Rule: spec.REQ2, Verdict: v, Block: c.blockName(b.pool, b.number), Handoff: c.h.ev[h.from].Handoff, Req: c.h.names.text[req],
			Events: c.ids(enders[0], h.from, e), Text: text + "; " + fmt.Sprintf(format, args...),
		}, h.from)
	}
	for _, idle := range idles[pool.worker] {
		if !c.stillHeld(h, idle) || !slices.ContainsFunc(enders, func(e int32) bool { return c.legal.surelyBefore(e, idle) }) {
			continue
		}
		v := spec.Fail
		if c.lostMutationMayPrecede(b.pool, idle) {
			v = spec.Inconclusive
		}
		say(v, idle, "it had not given it back at %s", c.say(idle))
		return
	}
	seal := c.h.sources[pool.src].seal
	switch {
	case h.to == none && le.lostFree != none:
		say(spec.Inconclusive, le.lostFree, "how it ended was lost")
	case h.to == none && seal != none && !c.h.sources[pool.src].lost():
		say(spec.Fail, seal, "it had not given it back when the source was sealed at %s", c.say(seal))
	case h.to == none:
		say(spec.Inconclusive, none, "it was not seen to give it back, and neither an idle nor a seal says that it had to")
	case c.h.ev[h.to].K == spec.KindFree && c.h.ev[h.to].Why == "timeout" && c.evidence[l] > spec.Pass:
		say(c.evidence[l], h.to, "it was freed for a timeout at %s, and no evidence as SIG-2 asks for ended what others could do with it", c.say(h.to))
	}
}

func (c *court) howEnded(e int32) string {
	how := map[spec.Kind]string{spec.KindReject: "was rejected", spec.KindCancel: "was cancelled", spec.KindExpire: "expired"}
	return fmt.Sprintf("%s at %s", how[c.h.ev[e].K], c.say(e))
}

// stillHeld reports whether the hold lasts at the event in every legal order.
func (c *court) stillHeld(h *holding, e int32) bool {
	return c.legal.surelyBefore(h.from, e) && (h.to == none || c.legal.surelyBefore(e, h.to))
}

// leaks judges BLK-5 at each idle.
func (c *court) leaks() {
	enders := c.byRequest(spec.KindFinish, spec.KindReject, spec.KindExpire)
	idles := c.idlesByWorker()
	leases := make([][]int32, len(c.h.pools))
	for i := range c.chains.leases {
		p := c.chains.blocks[c.chains.leases[i].block].pool
		leases[p] = append(leases[p], int32(i))
	}
	for p := range c.h.pools {
		for _, idle := range idles[c.h.pools[p].worker] {
			if c.ctx.Err() != nil {
				return
			}
			c.judged(spec.BLK5, 1)
			c.judgeIdle(int32(p), idle, leases[p], enders)
		}
	}
}

// judgeIdle judges the leases of one pool at one idle. The pool's order is total,
// so that two places in it tell what is certain: the mutations before the first
// are surely before the idle, those from the second on surely after it.
func (c *court) judgeIdle(p, idle int32, leases []int32, enders map[int32][]int32) {
	muts := c.h.pools[p].muts
	before := int32(sort.Search(len(muts), func(i int) bool { return !c.legal.surelyBefore(muts[i], idle) }))
	after := int32(sort.Search(len(muts), func(i int) bool { return c.legal.surelyBefore(idle, muts[i]) }))
	surely := func(m int32) bool { return m != none && c.h.poolPos[m] < before }
	surelyNot := func(m int32) bool { return m == none || c.h.poolPos[m] >= after }
	verdict := spec.Fail
	if c.lostMutationMayPrecede(p, idle) {
		verdict = spec.Inconclusive
	}
	for _, i := range leases {
		l := &c.chains.leases[i]
		b := &c.chains.blocks[l.block]
		if b.dead != none || !surely(l.alloc) || !surelyNot(l.free) || l.lostFree != none {
			continue
		}
		c.judgeHolders(l, idle, c.h.pools[p].worker, verdict, enders, surely, surelyNot)
	}
}

// judgeHolders judges a lease that is surely there at an idle. It leaks if a
// holder is surely there whose request has ended, and if no live one can be there.
func (c *court) judgeHolders(l *lease, idle, worker int32, v spec.Verdict, enders map[int32][]int32, surely, surelyNot func(int32) bool) {
	how, events := "held by nobody and not freed", []int32{l.alloc}
	for j := range l.holds {
		h := &l.holds[j]
		if surely(h.to) || surelyNot(h.from) {
			continue
		}
		end := c.endedHolder(h, worker, idle, enders)
		if end == none {
			how = "" // it may be there, and live
			continue
		}
		text := fmt.Sprintf("held by %s, whose request had ended at %s", h.holder, c.say(end))
		if surely(h.from) && surelyNot(h.to) {
			c.leak(l, idle, v, []int32{l.alloc, end, idle}, text)
			return
		}
		if how != "" {
			how, events = text+", or by nobody and not freed", []int32{l.alloc, end}
		}
	}
	if how != "" {
		c.leak(l, idle, v, append(events, idle), how)
	}
}

func (c *court) leak(l *lease, idle int32, v spec.Verdict, events []int32, how string) {
	b := &c.chains.blocks[l.block]
	e := &c.h.ev[l.alloc]
	c.find(Finding{
		Rule: spec.BLK5, Verdict: v, Block: c.blockName(b.pool, b.number), Handoff: e.Handoff, Req: e.Req, Events: c.ids(events...),
		Text: fmt.Sprintf("at %s, block %d of %s was still under lease %d, from %s, %s", c.say(idle), b.number, c.poolName(b.pool), l.gen, c.say(l.alloc), how),
	})
}

// endedHolder is the event by which the worker, or the client, has surely seen
// the holder's request end before the idle; none for a live request and for a
// holder without one, a cache. A holder known by a handoff that several requests
// share is live while one of them is.
func (c *court) endedHolder(h *holding, worker, idle int32, enders map[int32][]int32) int32 {
	last := none
	for _, r := range c.h.names.requests(h.handoff, h.req) {
		i := slices.IndexFunc(enders[r], func(e int32) bool {
			w := c.h.workerOf(e)
			return (w == worker || c.h.isClient(w)) && c.legal.surelyBefore(e, idle)
		})
		if i < 0 {
			return none
		}
		last = enders[r][i]
	}
	return last
}
