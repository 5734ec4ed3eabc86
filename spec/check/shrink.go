package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"conform/spec"
)

// ErrCannotShrink is the error for a finding that no part of the trace gives
// again, so that nothing smaller can stand for it.
var ErrCannotShrink = errors.New("no part of the trace gives the finding again")

// ShrinkOptions tunes a shrinking. The zero value is right for a person who waits.
type ShrinkOptions struct {
	// Limit bounds the time; what is smallest by then is the result. Default: 30 s.
	Limit time.Duration
	// DriftPPM is that of the [Options] under which the finding was found.
	DriftPPM int

	_ struct{}
}

// Shrunk is a smaller trace with the same finding.
type Shrunk struct {
	Trace   *spec.Trace
	Finding Finding // as judging Trace gives it: its events are those of Trace
	Result  *Result // of judging Trace
	Judged  int     // how many traces were judged on the way
	// Minimal says that no source, request, lease, access, signal, block or event
	// can be left out any more. It is false where time ran out.
	Minimal bool
}

// Shrink finds the smallest trace that still gives a finding: the same rule,
// verdict and harm, about the same block, handoff and request, shown by the same
// events. What is left shows nothing at least as bad as the finding that the whole
// trace does not show too, so that it shows this and not something else.
//
// It cuts the trace down to the finding's slice, then leaves out
// requests, sources, leases, accesses and signals, and at last single events,
// for as long as the finding stays (delta debugging), and judges each try with
// [Judge]. The result is what Slice says of its result: a valid trace.
//
// res is what judging tr gave, and f one of its findings; else the error wraps
// [ErrNoFinding]. It wraps [ErrCannotShrink] where not even the whole trace gives
// the finding again, once what could not be written down is left out: losses of
// sources that never named themselves. Time is linear in the length of the trace,
// and in what is left near n log n judgements of n events, within the limit.
func Shrink(ctx context.Context, tr *spec.Trace, res *Result, f Finding, opt ShrinkOptions) (*Shrunk, error) {
	if opt.Limit <= 0 {
		opt.Limit = 30 * time.Second
	}
	s, err := slicerOf(tr, f)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, opt.Limit)
	defer cancel()
	sh := &shrinking{ctx: limited, s: s, whole: res, driftPPM: opt.DriftPPM}
	sh.know()
	if err := sh.start(); err != nil {
		return nil, err
	}
	minimal := sh.reduce()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("shrinking was stopped: %w", err)
	}
	out := &Shrunk{Trace: sh.best.trace, Judged: sh.judged, Minimal: minimal}
	if out.Result, err = Judge(ctx, out.Trace, Options{DriftPPM: opt.DriftPPM}); err != nil {
		return nil, fmt.Errorf("judge what was shrunk: %w", err)
	}
	if out.Finding, err = sh.again(out.Result, &sh.best); err != nil {
		return nil, err
	}
	return out, nil
}

// shrinking is the state of one.
type shrinking struct {
	ctx      context.Context
	s        *slicer
	whole    *Result
	driftPPM int
	sel      selection
	best     part
	judged   int
	root     []int32 // of each name, once components has asked
	// known are the findings of the whole trace, open the rules of which it has
	// more than are listed.
	known map[string]bool
	open  map[spec.RuleID]bool
}

// start finds the smallest slice that gives the finding again.
func (sh *shrinking) start() error {
	for _, selected := range []func() selection{sh.s.around, sh.s.widened, sh.s.everything} {
		if sel := selected(); sh.try(sel) {
			return nil
		}
	}
	if err := sh.ctx.Err(); err != nil {
		return fmt.Errorf("shrinking was stopped: %w", err)
	}
	return fmt.Errorf("%w: %s of rule %s", ErrCannotShrink, sh.s.finding.Verdict, sh.s.finding.Rule)
}

// try judges a selection, and takes it if it gives the finding again.
func (sh *shrinking) try(sel selection) bool {
	if sh.ctx.Err() != nil {
		return false
	}
	p := sh.s.cut(sel)
	res, err := Judge(sh.ctx, p.trace, Options{MaxFindings: 1 << 20, DriftPPM: sh.driftPPM, unconfirmed: true})
	sh.judged++
	if err != nil || sh.worse(res, p.origins()) {
		return false
	}
	if _, err := sh.again(res, &p); err != nil {
		return false
	}
	sh.sel, sh.best = sel, p
	return true
}

// knownAs identifies a finding by its rule, its verdict, and the events of the
// whole trace that show it.
func (sh *shrinking) knownAs(f *Finding, events []int32) string {
	if len(events) >= manyWitnesses {
		return fmt.Sprint(f.Rule, f.Verdict, sh.kinds(events))
	}
	return fmt.Sprint(f.Rule, f.Verdict, events)
}

// know notes the findings of the whole trace.
func (sh *shrinking) know() {
	sh.known, sh.open = map[string]bool{}, map[spec.RuleID]bool{}
	at := map[spec.EventID]int32{}
	for i := range sh.s.h.ev {
		at[sh.s.h.ev[i].ID()] = int32(i)
	}
	for _, r := range sh.whole.Rules {
		sh.open[r.ID] = r.Found > len(r.Findings)
		for i := range r.Findings {
			sh.known[sh.knownAs(&r.Findings[i], origins(&r.Findings[i], at))] = true
		}
	}
}

// worse reports whether a part shows something at least as bad as the finding
// that the whole trace does not show. Of a rule of which the whole trace has more
// findings than are listed, any may be one of them.
func (sh *shrinking) worse(res *Result, from map[spec.EventID]int32) bool {
	if res.Verdict == spec.Error {
		return true
	}
	for _, r := range res.Rules {
		for i := range r.Findings {
			f := &r.Findings[i]
			if f.Verdict >= sh.s.finding.Verdict && !sh.open[r.ID] && !sh.known[sh.knownAs(f, origins(f, from))] {
				return true
			}
		}
	}
	return false
}

// again finds the finding in the result of judging a part.
func (sh *shrinking) again(res *Result, p *part) (Finding, error) {
	want := &sh.s.finding
	from := p.origins()
	for _, r := range res.Rules {
		if r.ID != want.Rule {
			continue
		}
		for _, f := range r.Findings {
			if sameObject(&f, want) && sh.sameWitness(&f, from) {
				return f, nil
			}
		}
	}
	return Finding{}, fmt.Errorf("%w: it is not among the findings of rule %s", ErrCannotShrink, want.Rule)
}

// origins says which event of the whole trace each of a part is.
func (p *part) origins() map[spec.EventID]int32 {
	from := make(map[spec.EventID]int32, len(p.from))
	for i := range p.trace.Events {
		from[p.trace.Events[i].ID()] = p.from[i]
	}
	return from
}

func sameObject(a, b *Finding) bool {
	return a.Verdict == b.Verdict && a.Harm == b.Harm && a.Handoff == b.Handoff && a.Req == b.Req &&
		(a.Block == nil) == (b.Block == nil) && (a.Block == nil || *a.Block == *b.Block)
}

// manyWitnesses is from where on the events of a finding are a chain of bounds,
// of which a smaller trace may have another.
const manyWitnesses = 4

// sameWitness reports whether a finding is shown by the same events of the whole
// trace. Where they are many, by events of the same kinds.
func (sh *shrinking) sameWitness(f *Finding, from map[spec.EventID]int32) bool {
	if len(sh.s.witness) >= manyWitnesses {
		return slices.Equal(sh.kinds(sh.s.witness), sh.kinds(origins(f, from)))
	}
	return slices.Equal(sh.s.witness, origins(f, from))
}

func origins(f *Finding, from map[spec.EventID]int32) []int32 {
	out := make([]int32, len(f.Events))
	for i, id := range f.Events {
		out[i] = from[id]
	}
	return out
}

func (sh *shrinking) kinds(events []int32) []spec.Kind {
	seen := map[spec.Kind]bool{}
	var out []spec.Kind
	for _, e := range events {
		if e != none && !seen[sh.s.h.ev[e].K] {
			seen[sh.s.h.ev[e].K] = true
			out = append(out, sh.s.h.ev[e].K)
		}
	}
	slices.Sort(out)
	return out
}

// reduce leaves out what it can, in large units first. It is false if time ran
// out before nothing more could go.
func (sh *shrinking) reduce() bool {
	units := []func() [][]int32{sh.leases, sh.components, sh.sources, sh.holdings, sh.pairs, sh.singles}
	for {
		before := len(sh.sel.events)
		sh.settle()
		sh.fewerBlocks()
		for _, u := range units {
			sh.minimise(u())
		}
		sh.settle()
		if sh.ctx.Err() != nil {
			return false
		}
		if len(sh.sel.events) == before {
			return true
		}
	}
}

// settle drops from the selection what cut has left out.
func (sh *shrinking) settle() {
	var left []int32
	for _, e := range sh.best.from {
		if e != none {
			left = append(left, e)
		}
	}
	sh.sel.events = left
}

// minimise leaves out units.
func (sh *shrinking) minimise(units [][]int32) { ddmin(units, sh.over, sh.without) }

func (sh *shrinking) over() bool { return sh.ctx.Err() != nil }

// ddmin drops units, many at once while that works, until no single one can go or
// it is stopped: delta debugging. drop reports whether some can go, and lets them.
func ddmin[U any](units []U, stopped func() bool, drop func([]U) bool) {
	for size := (len(units) + 1) / 2; size >= 1; size /= 2 {
		for again := true; again; {
			again = false
			for i := 0; i < len(units) && !stopped(); {
				to := min(i+size, len(units))
				if drop(units[i:to]) {
					units = slices.Delete(units, i, to)
					again = size == 1
				} else {
					i = to
				}
			}
		}
	}
}

// without tries the selection without some units.
func (sh *shrinking) without(units [][]int32) bool {
	gone := map[int32]bool{}
	for _, u := range units {
		for _, e := range u {
			gone[e] = true
		}
	}
	left := slices.DeleteFunc(slices.Clone(sh.sel.events), func(e int32) bool { return gone[e] })
	return len(left) < len(sh.sel.events) && sh.try(selection{events: left, numbers: sh.sel.numbers})
}

// droppable reports whether an event may be left out by itself: what shows the
// finding may not, and cut decides on what exists.
func (sh *shrinking) droppable(e int32) bool {
	switch sh.s.h.ev[e].K {
	case spec.KindSeal, spec.KindPool, spec.KindSource:
		return false
	}
	return !sh.s.pinned[e]
}

// groups files the droppable events of the selection by a key; those without one
// are left aside.
func groups[K comparable](sh *shrinking, key func(e int32) (K, bool)) [][]int32 {
	var keys []K
	units := map[K][]int32{}
	for _, e := range sh.sel.events {
		if k, ok := key(e); ok && sh.droppable(e) {
			if units[k] == nil {
				keys = append(keys, k)
			}
			units[k] = append(units[k], e)
		}
	}
	out := make([][]int32, len(keys))
	for i, k := range keys {
		out[i] = units[k]
	}
	return out
}

// about is the access or the signal that an event is of: its first event.
func (sh *shrinking) about(e int32) int32 {
	h := sh.s.h
	if h.emitOf[e] != none {
		return h.emitOf[e]
	}
	if id, ok := h.accessID[h.ev[e].Access]; ok {
		return h.accesses[id].begin
	}
	return e
}

// components are all events of requests and handoffs that are linked.
func (sh *shrinking) components() [][]int32 {
	h := sh.s.h
	if sh.root == nil {
		sh.root = h.names.components()
	}
	return groups(sh, func(e int32) (int32, bool) {
		handoff, req := h.named(sh.about(e))
		if handoff == none {
			handoff = req
		}
		if handoff == none {
			return none, false
		}
		return sh.root[handoff], true
	})
}

// components gives each name a name that stands for all that links lead to.
func (n *names) components() []int32 {
	root := make([]int32, len(n.text))
	for i := range root {
		root[i] = none
	}
	var stack []int32
	for i := range int32(len(root)) {
		if root[i] != none {
			continue
		}
		root[i] = i
		for stack = append(stack[:0], i); len(stack) > 0; {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, m := range n.links[at] {
				if root[m] == none {
					root[m] = i
					stack = append(stack, m)
				}
			}
		}
	}
	return root
}

// sources are all lines of a source.
func (sh *shrinking) sources() [][]int32 {
	var out [][]int32
	for i := range sh.s.h.sources {
		var lines []int32
		pinned := false
		for _, e := range sh.sel.events {
			if sh.s.h.srcOf[e] == int32(i) {
				lines = append(lines, e)
				pinned = pinned || sh.s.pinned[e]
			}
		}
		if len(lines) > 0 && !pinned {
			out = append(out, lines)
		}
	}
	return out
}

type leaseUnit struct {
	pool   int32
	number int64
	lease  int
}

// leases are the mutations of one lease of a block. A mutation of many blocks
// counts for its first.
func (sh *shrinking) leases() [][]int32 {
	count := map[leaseUnit]int{}
	return groups(sh, func(e int32) (leaseUnit, bool) {
		b, ok := sh.firstBlock(e)
		if !ok {
			return b, false
		}
		if sh.s.h.ev[e].K == spec.KindAlloc {
			count[b]++
		}
		b.lease = count[leaseUnit{b.pool, b.number, 0}]
		return b, true
	})
}

// firstBlock is the first block that a mutation acts on, of those kept.
func (sh *shrinking) firstBlock(e int32) (leaseUnit, bool) {
	p := sh.s.h.poolOf[e]
	if p == none {
		return leaseUnit{}, false
	}
	for n := range sh.s.h.ev[e].Blocks.All {
		if kept := sh.sel.numbers[p]; kept == nil || kept[n] {
			return leaseUnit{pool: p, number: n}, true
		}
	}
	return leaseUnit{}, false
}

// holdings are the hold and the drop of one holder.
func (sh *shrinking) holdings() [][]int32 {
	type holdUnit struct {
		leaseUnit
		holder string
	}
	return groups(sh, func(e int32) (holdUnit, bool) {
		k := sh.s.h.ev[e].K
		b, ok := sh.firstBlock(e)
		return holdUnit{b, sh.s.h.ev[e].Holder}, ok && (k == spec.KindHold || k == spec.KindDrop)
	})
}

// pairs are the two ends of an access, and a signal with all who took it in.
func (sh *shrinking) pairs() [][]int32 {
	return groups(sh, func(e int32) (int32, bool) { return sh.about(e), true })
}

func (sh *shrinking) singles() [][]int32 {
	return groups(sh, func(e int32) (int32, bool) { return e, true })
}

// fewerBlocks leaves out blocks.
func (sh *shrinking) fewerBlocks() {
	for p := range sh.s.h.pools {
		left := sh.numbersOf(int32(p))
		ddmin(slices.Clone(left), sh.over, func(gone []int64) bool {
			less := slices.DeleteFunc(slices.Clone(left), func(n int64) bool { return slices.Contains(gone, n) })
			if len(less) == 0 || !sh.try(sh.onlyBlocks(int32(p), less)) {
				return false
			}
			left = less
			return true
		})
	}
}

// numbersOf lists the blocks of a pool that the selection acts on, as far as
// they are few enough to try.
func (sh *shrinking) numbersOf(p int32) []int64 {
	seen := map[int64]bool{}
	for _, e := range sh.sel.events {
		if sh.s.poolOf(e) != p {
			continue
		}
		for n := range sh.s.h.ev[e].Blocks.All {
			if kept := sh.sel.numbers[p]; kept == nil || kept[n] {
				seen[n] = true
			}
			if len(seen) > maxSliced {
				return nil
			}
		}
	}
	out := make([]int64, 0, len(seen))
	for n := range seen {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (sh *shrinking) onlyBlocks(p int32, numbers []int64) selection {
	sel := selection{events: sh.sel.events, numbers: map[int32]map[int64]bool{}}
	for q, kept := range sh.sel.numbers {
		sel.numbers[q] = kept
	}
	sel.numbers[p] = map[int64]bool{}
	for _, n := range numbers {
		sel.numbers[p][n] = true
	}
	return sel
}
