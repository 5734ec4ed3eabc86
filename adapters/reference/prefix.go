package reference

import (
	"slices"

	"conform/spec"
)

// cacheHolder is who holds the blocks of the prefix cache. It is no request.
const cacheHolder = "prefix-cache"

// prefixCache keeps full blocks of prompts for later prompts that begin alike. A
// cached block has the cache for a holder, and each request that reads it; it is
// evicted only when no reader is left. Only the scheduler touches it.
type prefixCache struct {
	byState map[kvState]*cachedBlock // by the model's state after it
	byBlock map[int64]*cachedBlock
	order   []*cachedBlock // least recently used first
}

type cachedBlock struct {
	number  int64
	state   kvState
	readers int
}

func newPrefixCache() *prefixCache {
	return &prefixCache{byState: map[kvState]*cachedBlock{}, byBlock: map[int64]*cachedBlock{}}
}

// match gives the cached blocks that a prompt begins with, and the state after them.
// At least one token is left to compute.
func (c *prefixCache) match(prompt []int32) (found []*cachedBlock, after kvState) {
	var s kvState
	for end := BlockTokens; end < len(prompt); end += BlockTokens {
		for _, t := range prompt[end-BlockTokens : end] {
			s.append(t)
		}
		b := c.byState[s]
		if b == nil {
			break
		}
		found, after = append(found, b), s
	}
	return found, after
}

// touch makes a block the most recently used.
func (c *prefixCache) touch(b *cachedBlock) { c.order = append(remove(c.order, b), b) }

// add takes a block in, unless one like it is there.
func (c *prefixCache) add(number int64, state kvState) *cachedBlock {
	if c.byState[state] != nil || c.byBlock[number] != nil {
		return nil
	}
	b := &cachedBlock{number: number, state: state}
	c.byState[state], c.byBlock[number] = b, b
	c.order = append(c.order, b)
	return b
}

// evict gives up the least recently used block that nobody reads, nil if there is none.
func (c *prefixCache) evict() *cachedBlock {
	i := slices.IndexFunc(c.order, func(b *cachedBlock) bool { return b.readers == 0 })
	if i < 0 {
		return nil
	}
	b := c.order[i]
	c.order = slices.Delete(c.order, i, i+1)
	delete(c.byState, b.state)
	delete(c.byBlock, b.number)
	return b
}

// reuse lets a request begin with what the cache has of its prompt.
func (p *prefill) reuse(r *prefillReq) {
	if p.cache == nil {
		return
	}
	found, after := p.cache.match(r.prompt)
	if len(found) == 0 {
		return
	}
	for _, b := range found {
		p.cache.touch(b)
		r.blocks = append(r.blocks, b.number)
		if p.w.cfg.Defect != defUncounted {
			b.readers++
			r.reads = append(r.reads, b)
		}
	}
	if len(r.reads) > 0 {
		p.w.record(spec.Event{K: spec.KindHold, Pool: p.kv.name, Blocks: spec.MakeBlocks(r.blocks...), Holder: r.leg.Req, Req: r.leg.Req, Handoff: r.leg.Handoff})
	}
	n := len(found) * blockBytes
	p.w.within(p.kv, "r", r.blocks, r.leg.Req, func() { r.kv = p.kv.readBlocks(r.blocks, n) })
	r.state = after
	p.w.digests(&r.leg, "source", p.kv.name, 0, r.blocks, r.kv, p.w.cfg.Rank)
	if p.w.cfg.Mode == Push {
		for i := 0; i < len(found); i += chunkBlocks {
			j := min(i+chunkBlocks, len(found))
			p.pass(r, r.blocks[i:j], i, (j-i)*blockBytes)
		}
	}
}

// keep offers a block that a request has filled to the cache.
func (p *prefill) keep(r *prefillReq, number int64, state kvState) {
	if p.cache == nil {
		return
	}
	if b := p.cache.add(number, state); b != nil {
		b.readers++
		r.reads = append(r.reads, b)
		p.w.record(spec.Event{K: spec.KindHold, Pool: p.kv.name, Blocks: spec.MakeBlocks(number), Holder: cacheHolder})
	}
}

// giveBack ends a request's hold on its blocks: those that the cache keeps are
// dropped, the others go back to the free list.
func (p *prefill) giveBack(r *prefillReq, why, by string) {
	var kept, own []int64
	for _, n := range r.blocks {
		switch i := slices.IndexFunc(r.reads, func(b *cachedBlock) bool { return b.number == n }); {
		case i >= 0:
			r.reads[i].readers--
			kept = append(kept, n)
		case p.cache == nil || p.cache.byBlock[n] == nil: // else the defect reader-not-a-holder reads it
			own = append(own, n)
		}
	}
	r.reads = nil
	if len(kept) > 0 {
		p.w.record(spec.Event{
			K: spec.KindDrop, Pool: p.kv.name, Blocks: spec.MakeBlocks(kept...), Holder: r.leg.Req, Req: r.leg.Req, Handoff: r.leg.Handoff, By: by,
		})
	}
	p.w.free(p.kv, &r.leg, own, why, by)
}

// room makes room for n blocks: from the free list, from the cache, and last from the
// youngest request behind r that can do without.
func (p *prefill) room(r *prefillReq, n int) bool {
	for len(p.kv.free) < n {
		if p.cache != nil {
			if b := p.cache.evict(); b != nil {
				p.w.record(spec.Event{K: spec.KindFree, Pool: p.kv.name, Blocks: spec.MakeBlocks(b.number), Holder: cacheHolder, Why: "evict"})
				p.kv.put([]int64{b.number})
				continue
			}
		}
		if !p.preempt(r) {
			return false
		}
	}
	return true
}

// preempt takes the blocks of the youngest request behind r that has some and moves
// none. It starts again later, from its first token.
func (p *prefill) preempt(r *prefillReq) bool {
	for _, v := range slices.Backward(p.queue) {
		if v == r {
			return false
		}
		if v.stopped || !v.leasedTo.IsZero() || len(v.blocks) == 0 || v.flow.outstanding > 0 {
			continue
		}
		p.giveBack(v, "preempt", "")
		if p.w.cfg.Defect != defPreemptHands {
			v.blocks, v.kv, v.state, v.chunk = nil, nil, 0, 0
		}
		return true
	}
	return false
}
