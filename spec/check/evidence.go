package check

import (
	"cmp"
	"fmt"
	"slices"

	"conform/spec"
)

// front is how far evidence from some events leads: for each thread, the
// earliest place that it has come to.
type front map[int32]int32

func (f front) add(h *history, e int32) {
	if p, ok := f[h.thread[e]]; !ok || h.pos[e] < p {
		f[h.thread[e]] = h.pos[e]
	}
}

func (f front) has(h *history, e int32) bool {
	p, ok := f[h.thread[e]]
	return ok && p <= h.pos[e]
}

// spread follows program order and the admissible ones among the given emits,
// which must be in topological order. Pool order is no path: that one thread's
// mutation came after another's is what happened, not what was waited for.
func (c *court) spread(from []int32, emits []int32, admissible func(*spec.Event) bool) front {
	f := front{}
	for _, e := range from {
		f.add(c.h, e)
	}
	for _, e := range emits {
		if f.has(c.h, e) && admissible(&c.h.ev[e]) {
			for _, o := range c.h.observes[e] {
				f.add(c.h, o)
			}
		}
	}
	return f
}

// concerning lists, in topological order, the emits that concern the same handoff
// or request as an event that names these. A signal concerns what it names and
// what that is linked to, and so does the event: the two sets must meet.
func (c *court) concerning(handoff, req int32) []int32 {
	var out []int32
	for _, n := range c.h.names.concern(c.h.names.concern(handoff, req)...) {
		out = append(out, c.h.emitting[n]...)
	}
	slices.SortFunc(out, func(a, b int32) int { return cmp.Compare(c.base.rank[a], c.base.rank[b]) })
	return slices.Compact(out)
}

func anySignal(*spec.Event) bool { return true }

// endsAll reports whether a signal is evidence that every access which it may
// concern has ended.
func endsAll(e *spec.Event) bool {
	return e.Claims == spec.ClaimsDrained || e.Claims == spec.ClaimsCompleted && e.Accesses == nil
}

// endsAccess reports whether a signal is evidence that an access has ended.
func endsAccess(e *spec.Event, access string) bool {
	return endsAll(e) || e.Claims == spec.ClaimsCompleted && slices.Contains(e.Accesses, access)
}

// quiets reports whether a signal is evidence that its sender, of whom no access
// was seen, will begin none.
func quiets(e *spec.Event) bool { return endsAll(e) || e.Claims == spec.ClaimsStopped }

// missing is the verdict on evidence that is not there.
func (c *court) missing() spec.Verdict {
	if c.lost {
		return spec.Inconclusive
	}
	return spec.Unproven
}

// shortfall is one piece of evidence that an access lacks.
type shortfall struct {
	class   int
	event   int32 // the free, or the begin, that evidence does not lead to
	atBegin bool
	text    string
	events  []int32
}

// questionTwo judges whether the order was forced.
func (c *court) questionTwo() {
	touched := map[int32][]touch{}
	var emits []int32
	last := [2]int32{-2, -2}
	for i := range c.cases {
		if i%64 == 0 && c.ctx.Err() != nil {
			return
		}
		k := &c.cases[i]
		if k.state != caseLegal && k.state != caseEarly {
			continue
		}
		if now := [2]int32{k.a.handoff, k.a.req}; now != last {
			emits, last = c.concerning(k.a.handoff, k.a.req), now
		}
		c.judgeEvidence(k, emits, touched)
	}
	c.judgeGrantees(touched)
}

// touch is an access that was seen to a lease.
type touch struct{ by, handoff int32 }

// judgeEvidence judges the place of an access for which there is the most
// evidence.
func (c *court) judgeEvidence(k *accessCase, emits []int32, touched map[int32][]touch) {
	if k.state == caseEarly {
		// It fails BLK-2 already; that its grantee touched the lease, and that no
		// evidence ended it, still holds.
		for _, p := range k.touchable(c) {
			c.touch(k, &p, touched, spec.Unproven)
		}
		return
	}
	best, bestShort := -1, []shortfall(nil)
	for i := range k.places {
		if k.places[i].stale {
			continue
		}
		short := c.shortfalls(k, &k.places[i], emits)
		if best < 0 || len(short) < len(bestShort) {
			best, bestShort = i, short
		}
		if len(short) == 0 {
			break
		}
	}
	if best < 0 {
		return
	}
	k.chosen = best
	p := &k.places[best]
	c.touch(k, p, touched, spec.Pass)
	if k.freed(p) || len(bestShort) > 0 {
		c.judged(spec.SIG2, 1)
	}
	for _, s := range bestShort {
		n := k.classes[s.class].numbers[0]
		c.find(c.finding(k, spec.SIG2, c.missing(), &n, s.events, "%s to %s: %s", c.describe(k.a), c.targetText(k, n), s.text))
		if !s.atBegin {
			for j := range k.classes[s.class].leases {
				l := k.classes[s.class].leases[j][p.choice[s.class]]
				c.evidence[l] = max(c.evidence[l], c.missing())
			}
		}
	}
}

// touchable lists the places of an access without regard to its end.
func (k *accessCase) touchable(c *court) []place {
	all, _ := c.combine(k)
	return slices.DeleteFunc(all, func(p place) bool { return !c.base.feasible(p.begins(k.a)...) })
}

// touch notes the leases that an access was seen to touch.
func (c *court) touch(k *accessCase, p *place, touched map[int32][]touch, evidence spec.Verdict) {
	t := touch{k.a.by, k.a.handoff}
	for i, ch := range p.choice {
		for _, ls := range k.classes[i].leases {
			l := ls[ch]
			if !slices.Contains(touched[l], t) {
				touched[l] = append(touched[l], t)
			}
			if evidence != spec.Pass {
				c.evidence[l] = max(c.evidence[l], evidence)
			}
		}
	}
}

// shortfalls lists what evidence an access lacks in a place: to its begin from
// the alloc, over the grant if there is one, and from its end, or a fence, to
// each free.
func (c *court) shortfalls(k *accessCase, p *place, emits []int32) []shortfall {
	var out []shortfall
	a := k.a
	var seeds []int32
	if a.end != none {
		seeds = append(seeds, a.end)
	}
	seeds = append(seeds, c.allFences(a)...)
	after := c.spread(seeds, emits, func(e *spec.Event) bool { return endsAccess(e, a.id) })
	for i, ch := range p.choice {
		cand := k.classes[i].cands[ch]
		if s := c.beginShortfall(a, cand, emits); s != nil {
			s.class = i
			out = append(out, *s)
		}
		if cand.free == none || after.has(c.h, cand.free) {
			continue
		}
		out = append(out, c.endShortfall(k, i, cand.free))
	}
	return out
}

// endShortfall says what is missing between the end of an access and a free.
func (c *court) endShortfall(k *accessCase, class int, free int32) shortfall {
	a := k.a
	s := shortfall{class: class, event: free, events: []int32{a.begin, free}}
	const path = "no path of program order and of signals for its handoff or request that claim completed or drained leads"
	switch {
	case len(k.fences) > 0:
		s.events = []int32{k.fences[0], free}
		s.text = fmt.Sprintf("the fence %s ends it, and its lease was freed at %s, but %s from the fence, or from an end, to the free: the order only happened to come about",
			c.say(k.fences[0]), c.say(free), path)
	case a.end == none:
		s.text = fmt.Sprintf("it was never seen to end, and its lease was freed at %s", c.say(free))
	default:
		s.events[0] = a.end
		s.text = fmt.Sprintf("it ended at %s and its lease was freed at %s, but %s from the one to the other: the order only happened to come about",
			c.say(a.end), c.say(free), path)
	}
	return s
}

// beginShortfall is nil if evidence leads from the lease's alloc to the begin.
func (c *court) beginShortfall(a *access, cand candidate, emits []int32) *shortfall {
	from, to := cand.alloc, cand.grant
	if cand.grant != none {
		if !c.spread([]int32{cand.alloc}, emits, anySignal).has(c.h, cand.grant) {
			return c.noPath(from, to)
		}
		from = cand.grant
	}
	if to = a.begin; !c.spread([]int32{from}, emits, anySignal).has(c.h, to) {
		return c.noPath(from, to)
	}
	return nil
}

func (c *court) noPath(from, to int32) *shortfall {
	return &shortfall{
		atBegin: true, event: to, events: []int32{from, to},
		text: fmt.Sprintf("no path of program order and of signals for its handoff or request leads from %s to %s: nothing told the accessor that the lease had begun",
			c.say(from), c.say(to)),
	}
}
