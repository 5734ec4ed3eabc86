package check

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"conform/spec"
)

// blockHistory is a part of a block's life that can be judged by itself: what
// lies before it is surely over, and what lies after it surely has not begun.
type blockHistory struct {
	block int32
	init  spec.Block
	steps []blockStep
	bad   bool // it holds a step that the solver found wrong
}

// maxPart is the length from which on a history is cut wherever no access is
// open, not only between leases: Porcupine's time and memory grow with the square
// of a history's length.
const maxPart = 256

// builder lists the operations of one block's life.
type builder struct {
	c     *court
	b     *block
	muts  []int32 // its chain, up to where it is judged no further
	clock int32
	steps []blockStep
}

// add places a step, by its event.
func (s *builder) add(b blockStep) {
	b.low, b.high = s.c.base.clocks.Interval(b.event, s.clock)
	b.first, b.last = s.chainBounds(b.event)
	s.steps = append(s.steps, b)
}

// chainBounds bounds how many mutations of the block come before the event, by
// precedence alone.
func (s *builder) chainBounds(e int32) (first, last int) {
	base := s.c.base
	if base.before.of == nil {
		return 0, len(s.muts)
	}
	upTo := func(pos int32) int {
		return sort.Search(len(s.muts), func(i int) bool { return s.c.h.poolPos[s.muts[i]] >= pos })
	}
	return upTo(base.precededBy(e, s.b.pool)), upTo(base.followedFrom(e, s.b.pool))
}

// access adds the begin and the end of an access.
func (s *builder) access(k *accessCase, id int32, n int) {
	e := &s.c.h.ev[k.a.begin]
	leases, granted := s.c.meant(k, id)
	begin := blockStep{event: k.a.begin, chain: -1, access: n, leases: leases, bad: k.state != caseLegal}
	begin.op = spec.BlockOp{
		Kind: spec.KindBegin, Access: k.a.id, By: s.c.h.workers[k.a.by], Remote: k.a.by != k.a.target,
		Handoff: e.Handoff, Mode: e.Mode, Granted: granted,
	}
	s.add(begin)
	end := blockStep{event: k.a.end, chain: -1, access: n, bad: begin.bad}
	end.op = spec.BlockOp{Kind: spec.KindEnd, Access: k.a.id}
	switch {
	case k.a.end != none:
		s.add(end)
	case len(k.fences) == 0:
		s.unseen(k, end)
	}
}

// unseen adds an end that was never seen, as early as it may be: after the begin,
// and after the seal of a source that has one. Earlier is never worse, since all
// that an end must precede is a free.
func (s *builder) unseen(k *accessCase, end blockStep) {
	end.event = k.a.begin
	end.low, end.high = s.c.base.clocks.Interval(k.a.begin, s.clock)
	end.first, end.last = 0, len(s.muts)
	if seal := s.c.h.sources[k.a.src].seal; seal != none && !s.c.lost {
		low, high := s.c.base.clocks.Interval(seal, s.clock)
		end.low, end.high = max(end.low, low), max(end.high, high)
	}
	s.steps = append(s.steps, end)
}

// build lists all operations of a block: its chain, up to where it is judged no
// further, the accesses to it and the fences that end them.
func (c *court) build(id int32, cases []int32) []blockStep {
	b := &c.chains.blocks[id]
	s := builder{c: c, b: b, muts: b.muts, clock: c.h.sources[c.h.pools[b.pool].src].clock}
	if b.dead != none {
		s.muts = b.muts[:len(b.muts)-1] // the last is the alloc that broke BLK-1
	}
	for i, m := range s.muts {
		s.add(blockStep{op: blockOp(&c.h.ev[m]), event: m, chain: i, bad: slices.Contains(b.broken, m)})
	}
	fenced := map[int32]bool{}
	for n, i := range cases {
		k := &c.cases[i]
		s.access(k, id, n)
		for _, f := range k.fences {
			if !fenced[f] {
				fenced[f] = true
				s.add(blockStep{op: spec.BlockOp{Kind: spec.KindFence, Handoff: c.h.ev[f].Handoff}, event: f, chain: -1, access: -1})
			}
		}
	}
	slices.SortStableFunc(s.steps, func(a, b blockStep) int { return cmp.Compare(a.low, b.low) })
	return s.steps
}

// meant lists the generations of the block that an access may mean, and whether
// it means them by a grant.
func (c *court) meant(k *accessCase, id int32) (gens []int, granted bool) {
	s, ok := k.spotOf(c.chains.blocks[id].number)
	if !ok {
		return nil, false
	}
	cl := &k.classes[s.class]
	for x, l := range cl.leases[s.at] {
		gens = append(gens, c.chains.leases[l].gen)
		granted = granted || cl.cands[x].grant != none
	}
	return slices.Compact(gens), granted
}

// histories cuts a block's life into parts, and drops those without an access:
// their chain is judged by replaying it.
//
// A cut is where all that lies before is surely over before the rest: no
// interval spans it and no access is open across it. The state there is known,
// since the chain's order is. It lies between two leases, unless a part grows
// long.
func (c *court) histories(id int32, cases []int32) []blockHistory {
	steps := c.build(id, cases)
	spans := c.openSpans(cases, steps)
	var out []blockHistory
	var state, now spec.Block // at the start of the part, and at the last possible cut
	start, done := 0, 0
	reach := int64(math.MinInt64)
	for i := range steps {
		if i > start && steps[i].low > reach && spans[i] == 0 {
			now = replayed(now, steps[done:i])
			done = i
			if !now.Leased || i-start >= maxPart {
				out = appendPart(out, id, state, steps[start:i])
				state, start = now, i
			}
		}
		reach = max(reach, steps[i].high)
	}
	return appendPart(out, id, state, steps[start:])
}

// openSpans counts, for each step, the accesses that have steps both before it
// and from it on. An access that only a fence ends lasts to its last fence.
func (c *court) openSpans(cases []int32, steps []blockStep) []int {
	first, last := make([]int, len(cases)), make([]int, len(cases))
	for n := range first {
		first[n] = len(steps)
	}
	fenceAt := map[string]int{}
	for i := range steps {
		if n := steps[i].access; n >= 0 && steps[i].chain < 0 {
			first[n], last[n] = min(first[n], i), i
		}
		if steps[i].op.Kind == spec.KindFence {
			fenceAt[steps[i].op.Handoff] = i
		}
	}
	spans := make([]int, len(steps)+1)
	for n, i := range cases {
		if k := &c.cases[i]; len(k.fences) > 0 && k.a.end == none {
			last[n] = max(last[n], fenceAt[c.h.ev[k.a.begin].Handoff])
			first[n] = min(first[n], fenceAt[c.h.ev[k.a.begin].Handoff])
		}
		if first[n] < last[n] {
			spans[first[n]+1]++
			spans[last[n]+1]--
		}
	}
	for i := 1; i < len(spans); i++ {
		spans[i] += spans[i-1]
	}
	return spans
}

// replayed applies the mutations and fences of a part to a state. Accesses leave
// none, since none is open at a cut.
func replayed(state spec.Block, part []blockStep) spec.Block {
	var muts []*blockStep
	for i := range part {
		switch {
		case part[i].chain >= 0:
			muts = append(muts, &part[i])
		case part[i].op.Kind == spec.KindFence:
			state, _ = state.Step(part[i].op)
		}
	}
	slices.SortFunc(muts, func(a, b *blockStep) int { return cmp.Compare(a.chain, b.chain) })
	for _, m := range muts {
		state, _ = state.Step(m.op)
	}
	return state
}

// appendPart adds a part, with its chain and its accesses numbered from 0.
func appendPart(out []blockHistory, id int32, state spec.Block, steps []blockStep) []blockHistory {
	h := blockHistory{block: id, init: state, steps: slices.Clone(steps)}
	done := math.MaxInt
	number := map[int]int{}
	for i := range h.steps {
		s := &h.steps[i]
		h.bad = h.bad || s.bad
		if s.chain >= 0 {
			done = min(done, s.chain)
		} else if s.access >= 0 {
			if _, ok := number[s.access]; !ok {
				number[s.access] = len(number)
			}
			s.access = number[s.access]
		}
	}
	if len(number) == 0 {
		return out
	}
	if done == math.MaxInt {
		done = 0
		for i := range h.steps {
			h.steps[i].first, h.steps[i].last = 0, 0
		}
	}
	for i := range h.steps {
		s := &h.steps[i]
		s.chain, s.first, s.last = s.chain-done, s.first-done, s.last-done
		if s.op.Kind == spec.KindBegin || s.op.Kind == spec.KindEnd || s.op.Kind == spec.KindFence {
			s.chain = -1
		}
	}
	return append(out, h)
}

// key identifies histories that differ in nothing but the block: pages of one
// request live the same life. Generations count from the start of the part.
func (h *blockHistory) key() string {
	init := h.init
	init.Generation = 0
	k := []byte(init.Key())
	put := func(n int) { k = binary.AppendVarint(k, int64(n)) }
	for i := range h.steps {
		s := &h.steps[i]
		put(int(s.event))
		put(s.chain)
		put(s.first)
		put(s.last)
		k = append(k, s.op.Kind...)
		for _, g := range s.leases {
			put(g - h.init.Generation)
		}
	}
	return string(k)
}
