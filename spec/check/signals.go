package check

import (
	"fmt"
	"slices"

	"conform/spec"
)

// accessesByName files accesses under the worker and each name that a signal can
// find them by.
func (c *court) accessesByName() map[[2]int32][]int32 {
	m := map[[2]int32][]int32{}
	for i := range c.h.accesses {
		a := &c.h.accesses[i]
		if a.handoff != none {
			m[[2]int32{a.by, a.handoff}] = append(m[[2]int32{a.by, a.handoff}], int32(i))
		}
		for _, r := range c.h.names.requests(a.handoff, a.req) {
			m[[2]int32{a.by, r}] = append(m[[2]int32{a.by, r}], int32(i))
		}
	}
	return m
}

// spokenOf lists the accesses that a signal's claim speaks of: those by the
// emitting worker under the handoff that it names, or under its request if it
// names no handoff.
func (c *court) spokenOf(e int32, by map[[2]int32][]int32) []int32 {
	handoff, req := c.h.named(e)
	if handoff == none {
		handoff = req
	}
	return by[[2]int32{c.h.workerOf(e), handoff}]
}

// honestSignals judges SIG-1: when a signal is emitted, its declared predicate
// holds.
func (c *court) honestSignals() {
	by := c.accessesByName()
	for n, e := range c.h.emits {
		if n%64 == 0 && c.ctx.Err() != nil {
			return
		}
		ev := &c.h.ev[e]
		switch ev.Claims {
		case spec.ClaimsStopped, spec.ClaimsCompleted, spec.ClaimsDrained:
		default:
			continue
		}
		c.judged(spec.SIG1, 1)
		if ev.Claims == spec.ClaimsCompleted && ev.Accesses != nil {
			c.judgeListed(e)
			continue
		}
		for _, i := range c.spokenOf(e, by) {
			c.judgeClaim(e, &c.cases[i])
		}
	}
	c.endedAfterFence()
}

// judgeListed judges a completed that lists the accesses that it speaks of.
func (c *court) judgeListed(e int32) {
	for _, id := range c.h.ev[e].Accesses {
		i, ok := c.h.accessID[id]
		if !ok {
			f := c.signalFinding(e, spec.Inconclusive)
			f.Text = fmt.Sprintf("%s claims that access %s is completed, of which no begin was recorded", c.say(e), id)
			c.find(f)
			continue
		}
		c.judgeEnded(e, &c.cases[i])
	}
}

func (c *court) signalFinding(e int32, v spec.Verdict, more ...int32) Finding {
	ev := &c.h.ev[e]
	return Finding{Rule: spec.SIG1, Verdict: v, Handoff: ev.Handoff, Req: ev.Req, Events: c.ids(append([]int32{e}, more...)...)}
}

// over reports whether some legal order has the access over at the event: begun
// before it, and ended or cut off by a fence.
func (c *court) over(k *accessCase, e int32) bool {
	begun := edge{k.a.begin, e}
	if k.a.end != none && c.legal.feasible(begun, edge{k.a.end, e}) {
		return true
	}
	return slices.ContainsFunc(k.fences, func(f int32) bool { return c.legal.feasible(begun, edge{f, e}) })
}

// judgeEnded judges that an access has ended at a signal that says so.
func (c *court) judgeEnded(e int32, k *accessCase) {
	a := k.a
	if c.over(k, e) {
		return
	}
	if a.end == none && len(k.fences) == 0 && !c.legal.surelyBefore(e, a.begin) {
		c.unseenEnd(e, k)
		return
	}
	c.lie(e, k)
}

// judgeClaim judges a claim about one access under it. One condition covers
// drained: the access is neither open at the signal nor begun later.
func (c *court) judgeClaim(e int32, k *accessCase) {
	a := k.a
	claims := c.h.ev[e].Claims
	later := c.legal.surelyBefore(e, a.begin)
	switch {
	case claims == spec.ClaimsStopped || claims == spec.ClaimsDrained && later:
		if later {
			f := c.signalFinding(e, spec.Fail, a.begin)
			f.Text = fmt.Sprintf("%s claims %s, and %s began later, at %s", c.say(e), claims, c.describe(a), c.say(a.begin))
			c.find(f)
		}
	case c.over(k, e):
	case claims == spec.ClaimsCompleted && c.legal.mayPrecede(e, a.begin):
	case a.end == none && len(k.fences) == 0:
		c.unseenEnd(e, k)
	default:
		c.lie(e, k)
	}
}

// unseenEnd judges a claim about an access that was not seen to end.
func (c *court) unseenEnd(e int32, k *accessCase) {
	a := k.a
	seal := c.h.sources[a.src].seal
	begun := c.legal.surelyBefore(a.begin, e)
	v := spec.Unproven
	switch {
	case c.lost && begun:
		v = spec.Inconclusive
	case !c.lost && seal != none && (c.h.srcOf[e] == a.src || !c.legal.mayPrecede(seal, e)):
		v = spec.Fail
	case !begun:
		return
	}
	f := c.signalFinding(e, v, a.begin)
	f.Text = fmt.Sprintf("%s claims %s, and %s, begun at %s, was not seen to end", c.say(e), c.h.ev[e].Claims, c.describe(a), c.say(a.begin))
	if v == spec.Fail {
		f.Text += fmt.Sprintf(" before its source was sealed at %s", c.say(seal))
		f.Events = append(f.Events, c.ids(seal)...)
	}
	c.find(f)
}

func (c *court) lie(e int32, k *accessCase) {
	a := k.a
	f := c.signalFinding(e, spec.Fail, a.begin, a.end)
	f.Text = fmt.Sprintf("%s claims %s while %s, begun at %s, was open", c.say(e), c.h.ev[e].Claims, c.describe(a), c.say(a.begin))
	switch {
	case a.end != none:
		f.Text += fmt.Sprintf(": it ended at %s, and no legal order puts that before the claim", c.say(a.end))
	case len(k.fences) > 0:
		f.Text += fmt.Sprintf(": it was over only at the fence %s", c.say(k.fences[0]))
		f.Events = append(f.Events, c.ids(k.fences[0])...)
	}
	c.find(f)
}

// endedAfterFence judges the accesses that began surely after a fence: they were
// turned away, and an end that says ok says otherwise.
func (c *court) endedAfterFence() {
	for i := range c.cases {
		k := &c.cases[i]
		if k.state != caseHarmless || k.a.end == none {
			continue
		}
		if ok := c.h.ev[k.a.end].OK; ok != nil && *ok {
			c.judged(spec.SIG1, 1)
			c.find(c.finding(k, spec.SIG1, spec.Fail, k.firstNumber(), []int32{k.fences[0], k.a.begin, k.a.end},
				"%s began at %s, after the fence %s of its handoff, and its end %s says ok: what the fence turned away is reported as done",
				c.describe(k.a), c.say(k.a.begin), c.say(k.fences[0]), c.say(k.a.end)))
		}
	}
}
