package check

import (
	"fmt"
	"strings"

	"conform/spec"
)

// lease is one allocation of a block, as the pool's chain tells it.
type lease struct {
	block int32
	gen   int
	alloc int32
	free  int32 // none while it lasts
	// lostFree is the next alloc of the block, where the free between them was
	// lost.
	lostFree int32
	holds    []holding
	// grants and revokes are the events that name the block within the lease.
	grants, revokes []int32
}

// holding is one holder's stay in a lease.
type holding struct {
	holder       string
	handoff, req int32
	from         int32
	to           int32 // the drop or free that ended it, none while it lasts
}

// block is one block that some mutation names.
type block struct {
	pool   int32
	number int64
	leases []int32
	muts   []int32
	// dead is the alloc that broke BLK-1. From there on the block is judged no
	// further.
	dead int32
	// broken are the mutations that the chain does not allow, and after which the
	// block is judged on all the same.
	broken []int32
	// sure is how far the state is known despite losses: the epoch of the last
	// mutation that settled it, and of the last that settled each holder.
	sure    int32
	holders map[string]int32

	state spec.Block
}

type blockKey struct {
	pool   int32
	number int64
}

type blockName struct{ block, name int32 }

// chains is what replaying every pool's chain gives.
type chains struct {
	blocks  []block
	blockID map[blockKey]int32
	leases  []lease
	granted map[blockName][]int32 // leases of the block granted under the handoff
	held    map[blockName][]int32 // leases of the block held under the name
}

func (c *chains) id(pool int32, number int64) int32 {
	k := blockKey{pool, number}
	b, ok := c.blockID[k]
	if !ok {
		b = int32(len(c.blocks))
		c.blockID[k] = b
		c.blocks = append(c.blocks, block{pool: pool, number: number, dead: none})
	}
	return b
}

// replay walks each pool's chain once with the Step of the model. The order of a
// pool's mutations is known, so that this alone judges BLK-1 and BLK-4.
func (c *court) replay() error {
	c.chains = chains{blockID: map[blockKey]int32{}, granted: map[blockName][]int32{}, held: map[blockName][]int32{}}
	for p := range c.h.pools {
		for _, m := range c.h.pools[p].muts {
			e := &c.h.ev[m]
			judged := false
			for n := range c.h.blocksOf(m).All {
				judged = c.mutate(c.chains.id(int32(p), n), m) || judged
			}
			switch {
			case !judged:
			case e.K == spec.KindAlloc:
				c.judged(spec.BLK1, 1)
			case e.K == spec.KindDrop || e.K == spec.KindFree:
				c.judged(spec.BLK4, 1)
			}
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func blockOp(e *spec.Event) spec.BlockOp {
	op := spec.BlockOp{Kind: e.K, Handoff: e.Handoff, To: e.To, Mode: e.Mode}
	switch e.K {
	case spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree:
		op.Holder = spec.Holder{Name: e.Holder, Req: e.Req, Handoff: e.Handoff}
	}
	return op
}

// mutate applies one mutation to one block. It is false for a block that is
// judged no further.
func (c *court) mutate(id, m int32) bool {
	b := &c.chains.blocks[id]
	if b.dead != none {
		return false
	}
	e := &c.h.ev[m]
	if gen := c.h.slice.gen(m, b.number); gen > 0 {
		b.state.Generation = gen - 1
	}
	next, breach := b.state.Step(blockOp(e))
	sure := c.certain(b, m)
	if breach != nil {
		c.brokenChain(b, m, breach, sure)
	}
	b.muts = append(b.muts, m)
	c.settle(b, m, next)
	l := c.current(b)
	switch e.K {
	case spec.KindAlloc:
		if breach != nil && sure {
			b.dead = m
		} else if breach != nil {
			l.lostFree = m
		}
		c.newLease(id, m)
	case spec.KindHold:
		if breach == nil {
			c.addHolding(id, m)
		}
	case spec.KindDrop:
		if breach == nil {
			l.leave(e.Holder, m)
		}
	case spec.KindFree:
		if b.state.Leased {
			l.free = m
			l.leave("", m)
		}
	case spec.KindGrant:
		if breach == nil {
			l.grants = append(l.grants, m)
			handoff, _ := c.h.named(m)
			add(c.chains.granted, blockName{id, handoff}, b.leases[len(b.leases)-1])
		}
	case spec.KindRevoke:
		if b.state.Leased {
			l.revokes = append(l.revokes, m)
		}
	}
	b.state = next
	return true
}

// current is the block's last lease, nil if there was none.
func (c *court) current(b *block) *lease {
	if len(b.leases) == 0 {
		return nil
	}
	return &c.chains.leases[b.leases[len(b.leases)-1]]
}

func (c *court) newLease(id, m int32) {
	b := &c.chains.blocks[id]
	b.leases = append(b.leases, int32(len(c.chains.leases)))
	c.chains.leases = append(c.chains.leases, lease{block: id, gen: b.state.Generation + 1, alloc: m, free: none, lostFree: none})
	c.addHolding(id, m)
}

func (c *court) addHolding(id, m int32) {
	b := &c.chains.blocks[id]
	l := c.current(b)
	handoff, req := c.h.named(m)
	l.holds = append(l.holds, holding{holder: c.h.ev[m].Holder, handoff: handoff, req: req, from: m, to: none})
	for _, n := range []int32{handoff, req} {
		if n != none {
			add(c.chains.held, blockName{id, n}, b.leases[len(b.leases)-1])
		}
	}
}

// add appends a lease to a list that is in the order of the leases.
func add(to map[blockName][]int32, key blockName, l int32) {
	if list := to[key]; len(list) == 0 || list[len(list)-1] != l {
		to[key] = append(list, l)
	}
}

// leave ends the stay of a holder, of all if the name is empty.
func (l *lease) leave(name string, m int32) {
	for i := range l.holds {
		if h := &l.holds[i]; h.to == none && (name == "" || h.holder == name) {
			h.to = m
		}
	}
}

// revoked is the event that took a grant back from an accessor and mode, none if
// none did.
func (c *court) revoked(l *lease, grant int32, by, mode string) int32 {
	g := &c.h.ev[grant]
	for _, r := range l.revokes {
		e := &c.h.ev[r]
		if c.h.poolPos[r] > c.h.poolPos[grant] && e.Handoff == g.Handoff &&
			(e.To == "*" || e.To == by) && strings.Contains(e.Mode, mode) {
			return r
		}
	}
	return none
}

// settle notes what a mutation makes known about the block, whatever was lost
// before it.
func (c *court) settle(b *block, m int32, next spec.Block) {
	if !c.lost {
		return
	}
	e := &c.h.ev[m]
	epoch := c.h.epochOf[m]
	if e.K == spec.KindAlloc || e.K == spec.KindFree {
		b.sure, b.holders = epoch, nil
	}
	if e.Holder != "" && next.Leased {
		if b.holders == nil {
			b.holders = map[string]int32{}
		}
		b.holders[e.Holder] = epoch
	}
}

// certain reports whether nothing that could matter to the mutation was lost
// since what it builds on: no loss between the two.
func (c *court) certain(b *block, m int32) bool {
	if !c.lost {
		return true
	}
	e := &c.h.ev[m]
	epoch := c.h.epochOf[m]
	known := func(name string) bool {
		if at, ok := b.holders[name]; ok {
			return at == epoch
		}
		return b.sure == epoch
	}
	switch {
	case !b.state.Leased || e.K == spec.KindAlloc || e.K == spec.KindGrant:
		return b.sure == epoch
	case e.K == spec.KindFree:
		// One holder that is surely left besides the one that the free drops is one
		// too many, whatever was lost about the others.
		left, all := 0, true
		for _, h := range b.state.Holders {
			if !known(h.Name) {
				all = false
			} else if h.Name != e.Holder {
				left++
			}
		}
		if tooMany := left > 1 || left == 1 && e.Holder != ""; tooMany || !all {
			return tooMany
		}
	}
	return known(e.Holder)
}

// brokenChain reports a breach of the chain: BLK-1 or BLK-4. One mutation of many
// blocks gives one finding.
func (c *court) brokenChain(b *block, m int32, breach *spec.Breach, sure bool) {
	f := Finding{Rule: breach.Rule, Verdict: spec.Fail, Block: c.blockName(b.pool, b.number)}
	f.Handoff, f.Req = c.h.ev[m].Handoff, c.h.ev[m].Req
	f.about = &subject{block: c.chains.blockID[blockKey{b.pool, b.number}], mut: m}
	events := []int32{m}
	text := fmt.Sprintf("%s acts on block %d of %s: %s", c.say(m), b.number, c.poolName(b.pool), breach.Text)
	if n := len(b.muts); n > 0 {
		events = []int32{b.muts[n-1], m}
		text += fmt.Sprintf("; the last that happened to it before is %s", c.say(b.muts[n-1]))
	}
	if breach.Rule == spec.BLK4 || !sure {
		b.broken = append(b.broken, m)
	}
	if !sure {
		f.Verdict = spec.Inconclusive
		text += "; events of this source are missing in between, which may explain it"
	}
	f.Text, f.Events = text, c.ids(events...)
	if c.findOnce(f, m) && (c.h.ev[m].K == spec.KindHold || c.h.ev[m].K == spec.KindGrant) {
		c.judged(spec.BLK4, 1) // these count only where they break the rule
	}
}
