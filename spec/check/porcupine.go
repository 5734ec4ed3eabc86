package check

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/anishathalye/porcupine"

	"conform/spec"
)

// Checker says who judges question 1.
type Checker string

// The checkers.
const (
	// CheckerChain is the judge of this package.
	CheckerChain Checker = "chain"
	// CheckerBoth is CheckerChain, and Porcupine over the history of every block
	// besides. The verdict is error where the two disagree. Time and memory grow
	// with the square of a block's history.
	CheckerBoth Checker = "both"
	// CheckerPorcupine leaves it to Porcupine, in place of CheckerChain, which
	// accesses fit their leases (BLK-2, BLK-3), block by block and within intervals:
	// what contradicts only across blocks or clocks it does not see. Who allocated
	// and freed what (BLK-1, BLK-4) has one order only, and is replayed.
	CheckerPorcupine Checker = "porcupine"
)

// Checkers lists the checkers, the default first.
func Checkers() []Checker { return []Checker{CheckerChain, CheckerPorcupine, CheckerBoth} }

// blockStep is one operation of a block's history, as Porcupine sees it: an
// instant within an interval, that some state of the block must allow.
type blockStep struct {
	op        spec.BlockOp
	event     int32
	low, high int64 // the interval, on the clock of the pool's source
	// chain is the place of a mutation in the block's chain, -1 for the rest.
	chain int
	// first and last bound how many mutations of the block come before an
	// operation that is none: what the graph says that intervals do not.
	first, last int
	// access numbers the access of a begin or an end within the history.
	access int
	// leases are the generations that a begin may mean.
	leases []int
	bad    bool // a mutation that broke BLK-4, or a step of an access that failed
}

// blockState is the state of the model that Porcupine searches: the block of the
// specification, how much of its chain has been done, and which accesses have
// begun, so that an end follows its begin.
type blockState struct {
	done  int
	block spec.Block
	begun string // a bit set
}

// step is the transition of the model: [spec.Block.Step] in a wrapper that holds
// the chain's known order. Where it is lenient, it lets the mutations happen that
// the chain does not allow, unless an access is open under the lease that they
// end.
func (s blockState) step(b *blockStep, lenient bool) (bool, blockState) {
	if b.chain >= 0 {
		if s.done != b.chain {
			return false, s
		}
		next, breach := s.block.Step(b.op)
		if breach != nil {
			ends := b.op.Kind == spec.KindFree || b.op.Kind == spec.KindAlloc
			if !lenient || !b.bad || ends && len(s.block.Open) > 0 {
				return false, s
			}
		}
		s.block = next
		s.done++
		return true, s
	}
	if s.done < b.first || s.done > b.last {
		return false, s
	}
	op := b.op
	switch op.Kind {
	case spec.KindBegin:
		op.Generation = -1
		if slices.Contains(b.leases, s.block.Generation) {
			op.Generation = s.block.Generation
		}
		s.begun = withBit(s.begun, b.access)
	case spec.KindEnd:
		if !hasBit(s.begun, b.access) {
			return false, s
		}
	}
	next, breach := s.block.Step(op)
	s.block = next
	return breach == nil, s
}

func hasBit(set string, i int) bool { return i/8 < len(set) && set[i/8]&(1<<(i%8)) != 0 }

func withBit(set string, i int) string {
	b := make([]byte, max(len(set), i/8+1))
	copy(b, set)
	b[i/8] |= 1 << (i % 8)
	return string(b)
}

// askPorcupine judges question 1 again, block by block: Porcupine searches for a
// linearization of each block's history against the model's Step. It knows
// nothing of the solver's argument but the intervals that clocks and precedence
// leave to each event.
//
// Where it finds none, the violations that the solver found in the block stand,
// and the block is asked again without them. A block that it refuses and in
// which the solver found nothing is a defect of one of the two: the verdict is
// then error, naming the block. A block that it does not decide in time is
// inconclusive.
//
// Not the other way round: it judges each block alone, on intervals, so that
// what contradicts only across blocks or clocks is the solver's to find.
func (c *court) askPorcupine() {
	byBlock := c.casesByBlock()
	jobs := make(chan blockHistory)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		sayIt = map[int32]string{}
	)
	for range c.opt.Parallel {
		wg.Go(func() {
			for h := range jobs {
				answer := c.judgeHistory(&h)
				mu.Lock()
				c.note(&h, answer, sayIt)
				mu.Unlock()
			}
		})
	}
	seen := map[string]bool{}
	for id := range c.chains.blocks {
		if len(byBlock[int32(id)]) == 0 {
			continue
		}
		for _, h := range c.histories(int32(id), byBlock[int32(id)]) {
			if key := h.key(); !seen[key] && c.ctx.Err() == nil {
				seen[key] = true
				jobs <- h
			}
		}
	}
	close(jobs)
	wg.Wait()
	c.report(sayIt)
}

// answer is what Porcupine says of a history, and of it without what the solver
// found wrong.
type answer struct {
	all, clean porcupine.CheckResult
	panicked   string
}

func (c *court) judgeHistory(h *blockHistory) answer {
	var a answer
	a.all, a.panicked = c.check(h, h.steps, false)
	a.clean = a.all
	if h.bad && a.all != porcupine.Ok && a.panicked == "" {
		kept := slices.DeleteFunc(slices.Clone(h.steps), func(s blockStep) bool { return s.bad && s.chain < 0 })
		a.clean, a.panicked = c.check(h, kept, true)
	}
	return a
}

// check runs Porcupine over steps of a history.
func (c *court) check(h *blockHistory, steps []blockStep, lenient bool) (porcupine.CheckResult, string) {
	ops := make([]porcupine.Operation, len(steps))
	for i := range steps {
		ops[i] = porcupine.Operation{ClientId: i, Input: &steps[i], Call: steps[i].low, Return: steps[i].high}
	}
	step := func(state, input any) (bool, any) { return state.(blockState).step(input.(*blockStep), lenient) }
	return c.linearize(ops, blockState{block: h.init}, step, func(a, b any) bool {
		x, y := a.(blockState), b.(blockState)
		return x.done == y.done && x.begun == y.begun && x.block.Equal(y.block)
	})
}

// leaveToPorcupine puts Porcupine's answers in place of the solver's about BLK-2
// and BLK-3. What only says that events are missing stays.
func (c *court) leaveToPorcupine() {
	for _, id := range []spec.RuleID{spec.BLK2, spec.BLK3} {
		r := c.rules[id]
		r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Verdict == spec.Fail })
		r.Found = len(r.Findings)
		r.Verdict = min(r.Verdict, spec.Pass)
		for _, f := range r.Findings {
			r.Verdict = max(r.Verdict, f.Verdict)
		}
	}
	byBlock := c.casesByBlock()
	seen := map[string]bool{}
	for id := range c.chains.blocks {
		for _, h := range c.histories(int32(id), byBlock[int32(id)]) {
			if key := h.key(); !seen[key] && c.ctx.Err() == nil {
				seen[key] = true
				c.stats.Histories++
				c.judgeAlone(&h)
			}
		}
	}
}

// judgeAlone reports what Porcupine alone says of a history: the fewest accesses
// that it refuses, as BLK-3 if it does so even without their ends.
func (c *court) judgeAlone(h *blockHistory) {
	res, panicked := c.check(h, h.steps, true)
	name := c.nameOf(h.block)
	switch {
	case panicked != "":
		c.broken = append(c.broken, "the model panicked: "+panicked)
	case res == porcupine.Unknown:
		c.stats.Undecided++
		c.undecided(h.block)
	case res == porcupine.Illegal:
		c.stats.Refused++
		steps, ids := c.fewest(h)
		rule := spec.BLK2
		if res, _ := c.check(h, endedAtOnce(steps), true); res == porcupine.Illegal {
			rule = spec.BLK3
		}
		b := &c.chains.blocks[h.block]
		f := Finding{Rule: rule, Verdict: spec.Fail, Block: c.blockName(b.pool, b.number)}
		var names []string
		for _, id := range ids {
			a := &c.h.accesses[c.h.accessID[id]]
			names = append(names, c.describe(a))
			f.Events = append(f.Events, c.ids(a.begin, a.end)...)
			f.Handoff, f.Req = c.h.ev[a.begin].Handoff, c.h.ev[a.begin].Req
		}
		f.Text = fmt.Sprintf("Porcupine finds no order of the history of %s with %s", name, strings.Join(names, " and "))
		c.find(f)
	}
}

// endedAtOnce is a history in which each access may end as soon as it begins.
func endedAtOnce(steps []blockStep) []blockStep {
	var out []blockStep
	for _, s := range steps {
		if s.op.Kind == spec.KindEnd {
			continue
		}
		out = append(out, s)
		if s.op.Kind == spec.KindBegin {
			s.op = spec.BlockOp{Kind: spec.KindEnd, Access: s.op.Access}
			s.high, s.first, s.last = math.MaxInt64, 0, math.MaxInt
			out = append(out, s)
		}
	}
	return out
}

// fewest is a refused history with as few accesses as it is refused with, and
// their ids.
func (c *court) fewest(h *blockHistory) ([]blockStep, []string) {
	steps := h.steps
	var ids []string
	for i := range steps {
		if steps[i].op.Kind == spec.KindBegin {
			ids = append(ids, steps[i].op.Access)
		}
	}
	left := slices.Clone(ids)
	ddmin(ids, func() bool { return c.ctx.Err() != nil }, func(gone []string) bool {
		less := slices.DeleteFunc(slices.Clone(steps), func(s blockStep) bool { return slices.Contains(gone, s.op.Access) })
		if res, _ := c.check(h, less, true); res != porcupine.Illegal {
			return false
		}
		steps = less
		left = slices.DeleteFunc(left, func(id string) bool { return slices.Contains(gone, id) })
		return true
	})
	return steps, left
}

func (c *court) nameOf(block int32) string {
	b := &c.chains.blocks[block]
	return fmt.Sprintf("block %d of %s", b.number, c.poolName(b.pool))
}

// undecided reports a block whose history Porcupine did not decide.
func (c *court) undecided(block int32) {
	b := &c.chains.blocks[block]
	c.find(Finding{
		Rule: spec.BLK2, Verdict: spec.Inconclusive, Block: c.blockName(b.pool, b.number), Events: []spec.EventID{},
		Text: fmt.Sprintf("Porcupine did not decide the history of %s within %v and %d MiB", c.nameOf(block), c.opt.BlockTimeout, c.opt.BlockMemory>>20),
	})
}

// note records an answer. The caller holds the lock.
func (c *court) note(h *blockHistory, a answer, sayIt map[int32]string) {
	c.stats.Histories++
	if c.ctx.Err() != nil {
		return
	}
	switch {
	case a.panicked != "":
		sayIt[h.block] = "the model panicked: " + a.panicked
	case a.clean == porcupine.Illegal:
		sayIt[h.block] = "no linearization exists, and the solver found no violation that explains it"
	case a.all == porcupine.Unknown || a.clean == porcupine.Unknown:
		c.stats.Undecided++
		if sayIt[h.block] == "" {
			sayIt[h.block] = undecided
		}
	}
	if a.all == porcupine.Illegal {
		c.stats.Refused++
	}
}

// undecided marks a block that Porcupine did not decide.
const undecided = "?"

// report turns what was noted about blocks into findings, in their order.
func (c *court) report(sayIt map[int32]string) {
	ids := make([]int32, 0, len(sayIt))
	for id := range sayIt {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if sayIt[id] == undecided {
			c.undecided(id)
			continue
		}
		c.broken = append(c.broken, "the judges disagree about "+c.nameOf(id)+": "+sayIt[id])
	}
}

// casesByBlock files the accesses that Porcupine judges under their blocks.
func (c *court) casesByBlock() map[int32][]int32 {
	m := map[int32][]int32{}
	for i := range c.cases {
		k := &c.cases[i]
		if k.state != caseLegal && k.state != caseEarly && k.state != caseStale {
			continue
		}
		for _, cl := range k.classes {
			for _, n := range cl.numbers {
				if id, ok := c.chains.blockID[blockKey{k.a.pool, n}]; ok {
					m[id] = append(m[id], int32(i))
				}
			}
		}
	}
	return m
}
