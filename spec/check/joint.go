package check

import (
	"fmt"
	"slices"
	"strings"

	"conform/spec"
)

// maxSolves bounds how often the whole trace is solved again to place accesses
// together. What is not decided then is inconclusive.
const maxSolves = 64

// jointly judges the accesses that fit alone together. Each fits by itself, but
// two may need two offsets between the same clocks, or two instants of the same
// event: then no order is legal, and they are judged as one.
//
// What is left is the legal order that later rules ask what is certain in it:
// the base with the chain edges of the accesses that can be placed in one way
// only, the others given. One that then still fits several leases adds what all
// of them impose.
func (c *court) jointly() {
	for solves := 0; ; {
		f := &fitting{c: c, budget: maxSolves - solves, imposed: c.h.slice.imposed(orderLegal)}
		for i := range c.cases {
			if k := &c.cases[i]; k.state == caseLegal {
				f.cases = append(f.cases, k)
			}
		}
		f.run()
		c.legal = f.certain
		if f.why == nil || c.ctx.Err() != nil {
			f.settle()
			c.fencedOff(f.cases)
			return
		}
		if c.h.slice != nil {
			c.h.slice.unfit = true // more may take part than is in it
			return
		}
		solves = maxSolves - f.budget
		if !c.together(f) {
			return
		}
	}
}

// fencedOff takes out what begins surely after a fence once the other accesses
// have their places: it touches nothing.
func (c *court) fencedOff(legal []*accessCase) {
	for _, k := range legal {
		for _, f := range k.fences {
			if c.legal.surelyBefore(f, k.a.begin) {
				k.state = caseHarmless
				c.unjudged(spec.BLK3)
				c.notOutlasted(k)
				k.fences = append([]int32{f}, k.fences...)
				break
			}
		}
	}
}

// notOutlasted takes back that BLK-2 was applied to an access.
func (c *court) notOutlasted(k *accessCase) {
	if k.outlasted {
		k.outlasted = false
		c.unjudged(spec.BLK2)
	}
}

// fitting is one attempt to place accesses together.
type fitting struct {
	c       *court
	cases   []*accessCase
	places  map[*accessCase][]place // that the others leave to it
	budget  int
	imposed []edge // by what is left out of a slice
	owner   map[edge][]*accessCase
	certain *order
	why     *conflict // nil if they fit
	gaveUp  bool
	tried   map[string]bool
}

func (f *fitting) run() {
	f.owner, f.tried, f.places = map[edge][]*accessCase{}, map[string]bool{}, map[*accessCase][]place{}
	for _, k := range f.cases {
		f.places[k] = k.places
	}
	for {
		var fixed []edge
		var several []*accessCase
		for _, k := range f.cases {
			edges := f.places[k][0].edges
			if len(f.places[k]) > 1 {
				several = append(several, k)
				edges = f.c.envelope(k.a, f.places[k], len(k.fences) > 0)
			}
			fixed = append(fixed, f.own(k, edges)...)
		}
		if f.certain, f.why = f.solve(fixed); f.why != nil {
			f.certain = f.c.base
			return
		}
		if narrowed := f.narrow(fixed, several); narrowed {
			continue
		}
		if f.why == nil && len(several) > 0 {
			f.why = f.choose(fixed, several, make([]int, len(several)))
		}
		return
	}
}

// maxOpen bounds the accesses with several places that later questions ask about
// one by one. Of more, only what all places of each impose counts.
const maxOpen = 16

// settle takes over the places that are left.
func (f *fitting) settle() {
	var open [][][]edge
	for _, k := range f.cases {
		k.places = f.places[k]
		if len(k.places) > 1 && f.why == nil {
			ways := make([][]edge, len(k.places))
			for i := range k.places {
				ways[i] = k.places[i].edges
			}
			open = append(open, ways)
		}
	}
	if len(open) > 0 && len(open) <= maxOpen {
		f.certain.open = open
	}
}

// narrow leaves to each access only the places that what is certain allows, and
// reports that there are fewer now. Where none is left, that is why they do not
// fit.
func (f *fitting) narrow(fixed []edge, several []*accessCase) bool {
	fewer := false
	for _, k := range several {
		left := slices.DeleteFunc(slices.Clone(f.places[k]), func(p place) bool { return !f.certain.feasible(p.edges...) })
		if len(left) == 0 {
			_, f.why = f.solve(append(slices.Clip(fixed), f.own(k, f.places[k][0].edges)...))
			return false
		}
		fewer = fewer || len(left) < len(f.places[k])
		f.places[k] = left
	}
	return fewer && f.budget > 0
}

// envelope lists what each place of an access imposes: that it lies between the
// first event that may bound it from below and the last that may from above. The
// pool's order is total, so there are such.
func (c *court) envelope(a *access, places []place, fenced bool) []edge {
	edges := []edge{{a.begin, a.end}}
	first, last := places[0].lower, places[0].until
	for i := range places {
		p := &places[i]
		if p.stale {
			return edges
		}
		first = c.earlier(first, p.lower)
		if last == none || p.until == none {
			last = none
		} else {
			last = c.later(last, p.until)
		}
	}
	over := a.begin
	if a.end != none && !fenced {
		over = a.end
	}
	return append(edges, edge{first, a.begin}, edge{over, last})
}

// own notes whose edges these are, and drops those with an end missing.
func (f *fitting) own(k *accessCase, edges []edge) []edge {
	var out []edge
	for _, e := range edges {
		if e.from != none && e.to != none {
			f.owner[e] = append(f.owner[e], k)
			out = append(out, e)
		}
	}
	return out
}

func (f *fitting) solve(edges []edge) (*order, *conflict) {
	f.budget--
	return newOrder(f.c.h, append(slices.Clip(f.imposed), edges...))
}

// choose looks for a choice of places that fits. Where one does not, some access
// of the contradiction must be placed in another way: it tries each.
func (f *fitting) choose(fixed []edge, several []*accessCase, picks []int) *conflict {
	key := fmt.Sprint(picks)
	if f.tried[key] || f.budget <= 0 || f.c.ctx.Err() != nil {
		f.gaveUp = f.gaveUp || !f.tried[key]
		return &conflict{}
	}
	f.tried[key] = true
	edges := slices.Clip(fixed)
	for i, k := range several {
		edges = append(edges, f.own(k, f.places[k][picks[i]].edges)...)
	}
	_, why := f.solve(edges)
	if why == nil {
		return nil
	}
	involved := f.involved(why)
	for i, k := range several {
		if !slices.Contains(involved, k) {
			continue
		}
		for p := range f.places[k] {
			if p == picks[i] {
				continue
			}
			next := slices.Clone(picks)
			next[i] = p
			if f.choose(fixed, several, next) == nil {
				return nil
			}
		}
	}
	return why
}

// involved lists the accesses whose edges take part in a conflict, in the order
// of the trace.
func (f *fitting) involved(why *conflict) []*accessCase {
	var out []*accessCase
	for _, k := range f.cases {
		if slices.ContainsFunc(why.added, func(e edge) bool { return slices.Contains(f.owner[e], k) }) {
			out = append(out, k)
		}
	}
	return out
}

// together reports accesses that do not fit together, and takes them out. It is
// false if that cannot be done.
func (c *court) together(f *fitting) bool {
	involved := f.involved(f.why)
	if len(involved) == 0 || f.gaveUp {
		if f.gaveUp {
			c.unordered(f.cases)
		} else {
			c.broken = append(c.broken, "the judge found a contradiction in which no access takes part; this is a defect of the judge")
		}
		return false
	}
	names := make([]string, len(involved))
	var events []int32
	for i, k := range involved {
		names[i] = c.describe(k.a)
		events = append(events, k.a.begin)
	}
	rule, state := spec.BLK2, caseEarly
	if !c.beginTogether(involved) {
		rule, state = spec.BLK3, caseStale
	}
	for _, k := range involved {
		k.state = state
		if state == caseStale {
			c.notOutlasted(k)
		}
	}
	c.judged(rule, 1)
	for _, e := range f.why.events {
		if len(events) < 6 && !slices.Contains(events, e) {
			events = append(events, e)
		}
	}
	k := involved[0]
	found := c.finding(k, rule, spec.Fail, k.firstNumber(), events,
		"%s fit their leases each alone, but not together: %s. No order and no offset of the clocks lets all of them lie within their leases",
		strings.Join(names, " and "), c.contradiction(f.why))
	found.about = &subject{cases: involved, all: f.cases}
	c.find(found)
	return true
}

// beginTogether reports whether accesses that do not fit together would, if
// their ends did not count, in whatever leases they may begin under.
func (c *court) beginTogether(involved []*accessCase) bool {
	f := &fitting{c: c, budget: maxSolves}
	for _, k := range involved {
		begun := *k.a
		begun.end = none
		open := &accessCase{a: &begun, places: c.staleWays(k)}
		combined, _ := c.combine(k)
		for _, p := range combined {
			p.edges = p.begins(k.a)
			open.places = append(open.places, p)
		}
		open.places = slices.DeleteFunc(open.places, func(p place) bool { return !c.base.feasible(p.edges...) })
		f.cases = append(f.cases, open)
	}
	f.run()
	return f.why == nil || f.gaveUp
}

// contradiction tells a conflict in words.
func (c *court) contradiction(why *conflict) string {
	if len(why.cycle.Clocks()) > 1 {
		return c.circle(c.base, why.cycle, why.added)
	}
	said := make([]string, 0, len(why.events))
	for _, e := range why.events {
		said = append(said, c.say(e))
		if len(said) == 8 {
			said = append(said, "…")
			break
		}
	}
	return "the bounds contradict at " + strings.Join(said, ", ")
}
