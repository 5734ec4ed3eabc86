package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"conform/spec"
)

// subject is what a finding of BLK-1 to BLK-4 says cannot be: accesses that fit
// no leases, or a mutation that its block's chain does not allow.
type subject struct {
	cases []*accessCase
	// all are the accesses that were placed together, where it is about how several
	// fit: the cases are some of them.
	all    []*accessCase
	number *int64 // the block, of an access; nil for all its blocks

	block, mut int32 // of a mutation
}

// subHistory is the part of the lives of a few blocks that a finding rests on, as
// operations on one timeline: each an instant within an interval that some order
// of all of them must allow.
//
// The timeline is that of the offsets that the clock solver found, and intervals
// are as tight as program order, pool order and signals make them. Together with
// what the graph puts before what (needs) that is all that the trace says about
// the order of these operations: an order of them extends to one of the whole
// trace. What fits no offsets does not fit these, so that Porcupine refuses the
// history of whatever the solver refuses.
type subHistory struct {
	ids    []int32 // of the blocks, none for one that was never leased
	blocks []spec.BlockID
	steps  []subStep
	// kept are accesses that stay in it: those that fit no offsets together. On the
	// one timeline of the history, already one of them may fit nothing.
	kept []*accessCase
	// breach is the step that the chain does not allow, -1 where it is about
	// accesses.
	breach int
}

// subStep is one operation of a sub-history.
type subStep struct {
	op        spec.BlockOp
	event     int32
	low, high int64
	at        []int // the blocks that it acts on
	needs     []int // the steps that come before it
	access    *accessCase
	// gens are, for a begin and each block, the leases that it may mean, and granted
	// whether by grant.
	gens    [][]int
	granted []bool
	// forced is a mutation that happened though the chain does not allow it: it is
	// another finding's.
	forced bool
	// unseen is an end that was never seen: it lies after its event, the seal or the
	// begin.
	unseen bool
}

// subState is the state of the model: which steps are done, and the blocks.
type subState struct {
	done   string // a bit set
	blocks []spec.Block
}

func (s subState) equal(o subState) bool {
	return s.done == o.done && slices.EqualFunc(s.blocks, o.blocks, spec.Block.Equal)
}

// step takes step i of the history, if the state allows it: all that it needs is
// done, and [spec.Block.Step] allows it on each block.
func (h *subHistory) step(s subState, i int) (bool, subState) {
	st := &h.steps[i]
	for _, n := range st.needs {
		if !hasBit(s.done, n) {
			return false, s
		}
	}
	next := subState{withBit(s.done, i), slices.Clone(s.blocks)}
	for x, b := range st.at {
		op := st.op
		if op.Kind == spec.KindBegin {
			op.Granted, op.Generation = st.granted[x], -1
			if slices.Contains(st.gens[x], next.blocks[b].Generation) {
				op.Generation = next.blocks[b].Generation
			}
		}
		after, breach := next.blocks[b].Step(op)
		ends := op.Kind == spec.KindFree || op.Kind == spec.KindAlloc
		if breach != nil && (!st.forced || ends && len(next.blocks[b].Open) > 0) {
			return false, s
		}
		next.blocks[b] = after
	}
	return true, next
}

// refused reports what Porcupine says of the history: Illegal where it refuses it.
func (c *court) refused(h *subHistory) (porcupine.CheckResult, string) {
	if len(h.steps) > maxSteps {
		return porcupine.Unknown, ""
	}
	return c.linearize(h.operations(), h.start(), h.transition, sameState)
}

// maxSteps bounds the steps of a sub-history, each of which is set against each
// other.
const maxSteps = 2048

func (h *subHistory) start() subState { return subState{blocks: make([]spec.Block, len(h.blocks))} }

func (h *subHistory) transition(state, input any) (bool, any) {
	return h.step(state.(subState), input.(int))
}

func sameState(a, b any) bool { return a.(subState).equal(b.(subState)) }

func (h *subHistory) operations() []porcupine.Operation {
	ops := make([]porcupine.Operation, len(h.steps))
	for i := range h.steps {
		ops[i] = porcupine.Operation{Input: i, Call: h.steps[i].low, Return: h.steps[i].high}
	}
	return ops
}

// confirm has Porcupine judge the sub-history of each finding of BLK-1 to BLK-4
// that is listed. It must refuse it; if it ever does not, one of the two judges
// has a defect, and the verdict is error.
func (c *court) confirm() {
	for _, id := range []spec.RuleID{spec.BLK1, spec.BLK2, spec.BLK3, spec.BLK4} {
		for _, f := range c.rules[id].Findings {
			if f.Verdict != spec.Fail || f.about == nil || c.ctx.Err() != nil {
				continue
			}
			c.stats.Histories++
			switch _, res, panicked := c.minimalFor(f.about); {
			case panicked != "":
				c.broken = append(c.broken, "the model panicked: "+panicked)
			case res == porcupine.Illegal:
				c.stats.Refused++
			case res == porcupine.Unknown || c.h.driftPPM > 0:
				// Under drift the timeline is an approximation; the solver's proof stands.
				c.stats.Undecided++
				if len(c.remarks) < 10 {
					c.remarks = append(c.remarks, "Porcupine did not decide the history of a finding within its limits, and the solver's proof stands alone: "+f.Text)
				}
			default:
				c.broken = append(c.broken, "the judges disagree: Porcupine finds an order where the solver finds none; "+f.Text)
			}
		}
	}
}

// minimalFor is the smallest sub-history of a finding that Porcupine refuses. It
// tries the block that the finding names, then all blocks of its accesses, then
// all accesses that were placed together.
func (c *court) minimalFor(ab *subject) (*subHistory, porcupine.CheckResult, string) {
	var (
		h        *subHistory
		res      porcupine.CheckResult
		panicked string
	)
	tries := []subject{*ab, {cases: ab.cases}, {cases: ab.all}}
	if ab.cases == nil {
		tries = tries[:1]
	}
	for i, try := range tries {
		if i > 0 && len(try.cases) == 0 {
			continue
		}
		h = c.subHistory(&try)
		if len(c.h.clocks) > 1 {
			h.kept = ab.cases
		}
		if res, panicked = c.refused(h); res == porcupine.Illegal || panicked != "" {
			break
		}
	}
	if res == porcupine.Illegal && panicked == "" {
		h = c.minimal(h)
	}
	return h, res, panicked
}

// unordered judges accesses that fit leases in more ways than the solver tried:
// Porcupine searches all their blocks' histories at once, on the solver's
// timeline. An order on it is one; that there is none proves something only where
// there is one clock.
func (c *court) unordered(cases []*accessCase) {
	c.judged(spec.BLK2, 1)
	c.stats.Histories++
	h := &subHistory{}
	res := porcupine.Unknown
	if len(cases) <= maxTogether {
		h = c.subHistory(&subject{cases: cases})
		res, _ = c.refused(h)
	}
	f := Finding{Rule: spec.BLK2, Verdict: spec.Inconclusive, Events: []spec.EventID{}}
	names := make([]string, 0, len(h.blocks))
	for i, b := range h.blocks {
		if names = append(names, fmt.Sprintf("block %d of %s/%s", b.Number, b.Worker, b.Pool)); i == 0 {
			f.Block = &b
		}
		if len(names) == 8 && len(h.blocks) > 8 {
			names = append(names, fmt.Sprintf("%d more", len(h.blocks)-8))
			break
		}
	}
	on := strings.Join(names, ", ")
	switch {
	case res == porcupine.Ok:
		return
	case res == porcupine.Illegal && len(c.h.clocks) == 1:
		c.stats.Refused++
		f.Verdict, f.about = spec.Fail, &subject{cases: cases}
		f.Text = "the accesses to " + on + " fit their leases each alone, but not together: Porcupine finds no order of them"
		for _, k := range cases[:min(len(cases), maxListed)] {
			f.Events = append(f.Events, c.ids(k.a.begin)...)
		}
	default:
		c.stats.Undecided++
		f.Text = fmt.Sprintf("whether the accesses that fit several leases fit together was decided neither by the solver within its limits nor by Porcupine within %v and %d MiB",
			c.opt.BlockTimeout, c.opt.BlockMemory>>20)
		if on != "" {
			f.Text += ": " + on
		}
	}
	c.find(f)
}

const (
	maxTogether = 512 // accesses of one history, whose steps are each set against each other
	maxListed   = 6   // events of a finding
)

// minimal leaves out of a refused history what it is refused without: other
// accesses, holders, revokes. Nothing goes whose absence alone could make it
// refused: what is left of each chain is one that the model allows.
func (c *court) minimal(h *subHistory) *subHistory {
	until := time.Now().Add(c.opt.BlockTimeout)
	over := func() bool { return c.ctx.Err() != nil || time.Now().After(until) }
	ddmin(h.units(), over, func(units [][]stepKey) bool {
		less := h.without(slices.Concat(units...))
		if !less.sound() {
			return false
		}
		if res, panicked := c.refused(less); res != porcupine.Illegal || panicked != "" {
			return false
		}
		h = less
		return true
	})
	return h
}

// stepKey identifies a step in whatever is left of its history.
type stepKey struct {
	event int32
	kind  spec.Kind
}

func (s *subStep) key() stepKey { return stepKey{s.event, s.op.Kind} }

// units are the steps that can be left out, by what must go together.
func (h *subHistory) units() [][]stepKey {
	var out [][]stepKey
	of := map[any]int{}
	add := func(group any, k stepKey) {
		i, ok := of[group]
		if !ok {
			i = len(out)
			of[group] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], k)
	}
	type holdUnit struct {
		block  int
		holder string
	}
	accesses := h.accesses()
	for i := range h.steps {
		switch st := &h.steps[i]; {
		case i == h.breach:
		case st.access != nil && len(accesses) > 1:
			if !slices.Contains(h.kept, st.access) {
				add(st.access, st.key())
			}
		case st.op.Kind == spec.KindHold || st.op.Kind == spec.KindDrop:
			add(holdUnit{st.at[0], st.op.Holder.Name}, st.key())
		case st.op.Kind == spec.KindRevoke, st.op.Kind == spec.KindGrant && !slices.ContainsFunc(accesses, func(k *accessCase) bool { return k.handoff(h) == st.op.Handoff }):
			add(i, st.key())
		}
	}
	return out
}

// handoff is the handoff of an access in a history, "" for one under none.
func (k *accessCase) handoff(h *subHistory) string {
	for i := range h.steps {
		if st := &h.steps[i]; st.access == k && st.op.Kind == spec.KindBegin {
			return st.op.Handoff
		}
	}
	return ""
}

func (h *subHistory) accesses() []*accessCase {
	var out []*accessCase
	for i := range h.steps {
		if k := h.steps[i].access; k != nil && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// without is the history without some steps, and without the blocks on which
// nothing is left.
func (h *subHistory) without(gone []stepKey) *subHistory {
	less := &subHistory{breach: -1, kept: h.kept}
	place, block := make([]int, len(h.steps)), make([]int, len(h.blocks))
	for b := range h.blocks {
		block[b] = len(less.blocks)
		less.ids, less.blocks = append(less.ids, h.ids[b]), append(less.blocks, h.blocks[b])
	}
	for i := range h.steps {
		place[i] = -1
		if st := h.steps[i]; !slices.Contains(gone, st.key()) {
			place[i] = len(less.steps)
			if i == h.breach {
				less.breach = place[i]
			}
			less.steps = append(less.steps, st)
		}
	}
	for i := range less.steps {
		var needs []int
		for _, n := range less.steps[i].needs {
			if place[n] >= 0 {
				needs = append(needs, place[n])
			}
		}
		less.steps[i].needs = needs
	}
	return less
}

// sound reports whether the chains alone are allowed, but for the step that is
// known to break them.
func (h *subHistory) sound() bool {
	state := h.start().blocks
	for i := range h.steps {
		st := &h.steps[i]
		if !st.op.Kind.Mutates() {
			continue
		}
		for _, b := range st.at {
			after, breach := state[b].Step(st.op)
			if (breach != nil) != (i == h.breach) && !st.forced {
				return false
			}
			state[b] = after
		}
	}
	return true
}

// subHistory builds the history of a subject.
func (c *court) subHistory(ab *subject) *subHistory {
	s := subBuilder{c: c, ab: ab, h: &subHistory{breach: -1}, index: map[blockKey]int{}, leases: map[int][]int32{}}
	if ab.cases == nil {
		s.chain()
	}
	for _, k := range ab.cases {
		s.choose(k)
	}
	s.mutations()
	for _, k := range ab.cases {
		s.access(k)
	}
	s.order()
	return s.h
}

// subBuilder builds a sub-history.
type subBuilder struct {
	c      *court
	ab     *subject
	h      *subHistory
	index  map[blockKey]int
	leases map[int][]int32 // of each block, those that are in it, in their order
}

func (s *subBuilder) block(k blockKey) int {
	i, ok := s.index[k]
	if !ok {
		i = len(s.h.blocks)
		s.index[k] = i
		id, known := s.c.chains.blockID[k]
		if !known {
			id = none
		}
		s.h.ids, s.h.blocks = append(s.h.ids, id), append(s.h.blocks, *s.c.blockName(k.pool, k.number))
	}
	return i
}

// chain takes in the lease at which the subject's mutation breaks the chain, or
// the one before it.
func (s *subBuilder) chain() {
	b := &s.c.chains.blocks[s.ab.block]
	i := s.block(blockKey{b.pool, b.number})
	for _, l := range b.leases {
		if s.c.h.poolPos[s.c.chains.leases[l].alloc] < s.c.h.poolPos[s.ab.mut] {
			s.leases[i] = []int32{l}
		}
	}
}

// numbers are the blocks of an access that a history takes in: the subject's, or
// one of each class, since those of a class live the same lives.
func (s *subBuilder) numbers(k *accessCase) []int64 {
	if n := s.ab.number; n != nil {
		if _, ok := k.spotOf(*n); ok {
			return []int64{*n}
		}
	}
	var out []int64
	for i := range k.classes {
		out = append(out, k.classes[i].numbers[0])
	}
	return out
}

// choose takes in the blocks of an access and the leases that it may belong to.
// Where a free was lost, the next lease ends the one before.
func (s *subBuilder) choose(k *accessCase) {
	for _, n := range s.numbers(k) {
		i := s.block(blockKey{k.a.pool, n})
		at, _ := k.spotOf(n)
		cl := &k.classes[at.class]
		ls := slices.Clone(cl.leases[at.at])
		if len(ls) == 0 {
			ls = s.during(i, k)
		}
		for _, l := range ls {
			s.leases[i] = append(s.leases[i], l)
			if id := s.h.ids[i]; s.c.chains.leases[l].lostFree != none {
				all := s.c.chains.blocks[id].leases
				if next := slices.Index(all, l) + 1; next < len(all) {
					s.leases[i] = append(s.leases[i], all[next])
				}
			}
		}
		slices.SortFunc(s.leases[i], cmp.Compare[int32])
		s.leases[i] = slices.Compact(s.leases[i])
	}
}

// during is the lease of a block, which is none of the access's, that lasts when
// it begins or was the last before: it shows whose the block was.
func (s *subBuilder) during(i int, k *accessCase) []int32 {
	if s.h.ids[i] == none {
		return nil
	}
	var last []int32
	for _, l := range s.c.chains.blocks[s.h.ids[i]].leases {
		if a := s.c.chains.leases[l].alloc; s.c.base.rank[a] < s.c.base.rank[k.a.begin] {
			last = []int32{l}
		}
	}
	return last
}

// mutations adds those of the chosen leases, up to where a block is judged no
// further.
func (s *subBuilder) mutations() {
	var muts []int32
	on := map[int32][]int{}
	broken := map[int32]bool{}
	for i, id := range s.h.ids {
		if id == none {
			continue
		}
		b := &s.c.chains.blocks[id]
		for _, m := range b.broken {
			broken[m] = true
		}
		for _, l := range s.leases[i] {
			for _, m := range s.lifeOf(b, l) {
				if on[m] == nil {
					muts = append(muts, m)
				}
				on[m] = append(on[m], i)
			}
		}
	}
	if s.ab.cases == nil && len(muts) == 0 { // of a block that was never leased
		muts = []int32{s.ab.mut}
		for _, m := range s.c.chains.blocks[s.ab.block].muts {
			if m == s.ab.mut { // more than once where its list names the block so
				on[m] = append(on[m], 0)
			}
		}
	}
	slices.SortFunc(muts, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.c.h.poolOf[a], s.c.h.poolOf[b]), cmp.Compare(s.c.h.poolPos[a], s.c.h.poolPos[b]))
	})
	for _, m := range muts {
		if s.ab.cases == nil && m == s.ab.mut {
			s.h.breach = len(s.h.steps)
		}
		s.h.steps = append(s.h.steps, subStep{op: blockOp(&s.c.h.ev[m]), event: m, at: on[m], forced: broken[m] && s.h.breach != len(s.h.steps)})
	}
}

// lifeOf lists the mutations from a lease's alloc up to the next lease's, as far
// as they count.
func (s *subBuilder) lifeOf(b *block, l int32) []int32 {
	from := slices.Index(b.muts, s.c.chains.leases[l].alloc)
	to := from + 1
	next := slices.Index(b.leases, l) + 1
	for to < len(b.muts) && (next == len(b.leases) || b.muts[to] != s.c.chains.leases[b.leases[next]].alloc) {
		to++
	}
	if s.ab.cases == nil { // up to the mutation that breaks the chain, which may be the next alloc
		for to < len(b.muts) && b.muts[to] == s.ab.mut {
			to++
		}
		for b.muts[to-1] != s.ab.mut {
			to--
		}
	}
	return b.muts[from:to]
}

// access adds the begin, the end and the fences of an access.
func (s *subBuilder) access(k *accessCase) {
	c, e := s.c, &s.c.h.ev[k.a.begin]
	begin := subStep{event: k.a.begin, access: k}
	begin.op = spec.BlockOp{
		Kind: spec.KindBegin, Access: k.a.id, By: c.h.workers[k.a.by], Remote: k.a.by != k.a.target, Handoff: e.Handoff, Mode: e.Mode,
	}
	for _, n := range s.numbers(k) {
		i := s.index[blockKey{k.a.pool, n}]
		at, _ := k.spotOf(n)
		cl := &k.classes[at.class]
		var gens []int
		granted := false
		for x, l := range cl.leases[at.at] {
			gens = append(gens, slices.Index(s.leases[i], l)+1)
			granted = granted || cl.cands[x].grant != none
		}
		begin.at, begin.gens, begin.granted = append(begin.at, i), append(begin.gens, gens), append(begin.granted, granted)
	}
	s.h.steps = append(s.h.steps, begin)
	for _, f := range k.fences {
		if !slices.ContainsFunc(s.h.steps, func(st subStep) bool { return st.event == f }) {
			all := make([]int, len(s.h.blocks))
			for i := range all {
				all[i] = i
			}
			s.h.steps = append(s.h.steps, subStep{op: spec.BlockOp{Kind: spec.KindFence, Handoff: c.h.ev[f].Handoff}, event: f, at: all})
		}
	}
	end := subStep{event: k.a.end, at: begin.at, access: k, op: spec.BlockOp{Kind: spec.KindEnd, Access: k.a.id}}
	if k.a.end == none {
		end.unseen, end.event = true, k.a.begin
		if seal := c.h.sources[k.a.src].seal; seal != none && !c.lost {
			end.event = seal
		}
	}
	if !end.unseen || len(k.fences) == 0 {
		s.h.steps = append(s.h.steps, end)
	}
}

// order gives each step its interval and what comes before it.
func (s *subBuilder) order() {
	if len(s.h.steps) > maxSteps {
		return
	}
	base := s.c.base
	if s.c.timeline == nil {
		s.c.timeline = base.clocks.Timeline()
	}
	for i := range s.h.steps {
		st := &s.h.steps[i]
		st.low, st.high = s.c.timeline.Span(st.event)
		if st.unseen {
			st.high = math.MaxInt64
		}
		for j := range s.h.steps {
			o := &s.h.steps[j]
			switch {
			case i == j || o.unseen:
			case st.unseen && o.event == st.event, base.reaches(o.event, st.event),
				st.op.Kind == spec.KindEnd && o.op.Kind == spec.KindBegin && st.access == o.access:
				st.needs = append(st.needs, j)
			}
		}
	}
}
