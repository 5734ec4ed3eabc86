package check

import (
	"fmt"
	"slices"
	"strings"

	"conform/spec"
)

// questionOne judges whether a legal order exists. Replaying the chains has
// judged BLK-1 and BLK-4; this judges each access alone against what the trace
// imposes, then all that fit alone together, and has Porcupine judge each
// block's history.
func (c *court) questionOne() {
	for i := range c.cases {
		if i%64 == 0 && c.ctx.Err() != nil {
			return
		}
		c.judgeAccess(&c.cases[i])
	}
	c.jointly()
	switch {
	case c.ctx.Err() != nil:
	case c.opt.Checker == CheckerBoth:
		c.askPorcupine()
	case c.opt.Checker == CheckerPorcupine:
		c.leaveToPorcupine()
	}
	if !c.opt.unconfirmed {
		c.confirm()
	}
}

// judgeAccess judges one access alone.
func (c *court) judgeAccess(k *accessCase) {
	a := k.a
	switch {
	case k.state == caseUnknown:
		c.judged(spec.BLK3, 1)
		e := &c.h.ev[a.begin]
		c.find(c.finding(k, spec.BLK3, spec.Inconclusive, nil, []int32{a.begin},
			"%s touches pool %s of worker %s, which recorded nothing about it: whether it was allowed is not known",
			c.describe(a), e.Pool, e.Target))
		return
	case k.state != caseOpen:
		return
	}
	for _, f := range k.fences {
		if c.base.surelyBefore(f, a.begin) {
			k.state = caseHarmless
			return
		}
	}
	c.judged(spec.BLK3, 1)
	combined, complete := c.combine(k)
	var begun []place
	for _, p := range combined {
		if c.base.feasible(p.begins(a)...) {
			begun = append(begun, p)
		}
	}
	stale := slices.DeleteFunc(c.staleWays(k), func(p place) bool { return !c.base.feasible(p.begins(a)...) })
	if len(begun) == 0 && len(stale) == 0 {
		c.staleAccess(k, combined, complete)
		return
	}
	ends := append(begun, stale...)[0]
	stale = slices.DeleteFunc(stale, func(p place) bool { return !c.base.feasible(p.edges...) })
	for _, p := range begun {
		for _, q := range c.withEnd(k, p) {
			if c.base.feasible(q.edges...) {
				k.places = append(k.places, q)
			}
		}
	}
	k.places = append(k.places, stale...)
	if len(k.places) == 0 {
		c.judged(spec.BLK2, 1)
		c.earlyFree(k, &ends, complete)
		return
	}
	k.state = caseLegal
	if slices.ContainsFunc(k.places, func(p place) bool { return k.freed(&p) }) {
		k.outlasted = true
		c.judged(spec.BLK2, 1)
	}
	c.missingEnd(k)
}

// missingEnd reports an end that was never seen where only a loss keeps the
// judge from saying that the access outlasted its lease.
func (c *court) missingEnd(k *accessCase) {
	seal := c.h.sources[k.a.src].seal
	if k.a.end != none || !c.lost || seal == none || len(k.fences) > 0 {
		return
	}
	for _, p := range k.places {
		if c.base.feasible(append(slices.Clip(p.edges), edge{seal, p.until})...) {
			return
		}
	}
	p := &k.places[0]
	if !k.freed(p) {
		c.judged(spec.BLK2, 1)
	}
	c.find(c.finding(k, spec.BLK2, spec.Inconclusive, k.firstNumber(), []int32{k.a.begin, p.until},
		"%s was not seen to end before its source was sealed, and its lease was over by %s, before that; events are missing that may say otherwise",
		c.describe(k.a), c.say(p.until)))
}

func (k *accessCase) firstNumber() *int64 {
	if len(k.classes) == 0 {
		return nil
	}
	return &k.classes[0].numbers[0]
}

// finding builds a finding about an access.
func (c *court) finding(k *accessCase, rule spec.RuleID, v spec.Verdict, n *int64, events []int32, format string, args ...any) Finding {
	e := &c.h.ev[k.a.begin]
	f := Finding{Rule: rule, Verdict: v, Handoff: e.Handoff, Req: e.Req, Events: c.ids(events...), Text: fmt.Sprintf(format, args...)}
	f.about = &subject{cases: []*accessCase{k}, number: n}
	if n != nil {
		f.Block = &spec.BlockID{Worker: e.Target, Pool: e.Pool, Number: *n}
	}
	return f
}

// staleAccess reports an access that no legal order lets begin where it did.
func (c *court) staleAccess(k *accessCase, combined []place, complete bool) {
	k.state = caseStale
	a := k.a
	n, why, events, edges := c.whyStale(k, combined)
	cited, proof := c.cite(c.base, edges)
	why += cited
	events = withEvents(events, proof)
	verdict := spec.Fail
	if c.wildcard(a) {
		k.state, verdict = caseUnknown, spec.Inconclusive
		why += "; but events of the pool's source are missing, which may hold a lease that it belongs to"
	} else if !complete {
		k.state, verdict = caseUnknown, spec.Inconclusive
		why += "; but more leases come into question than were tried"
	}
	c.find(c.finding(k, spec.BLK3, verdict, &n, events, "%s touches %s: %s", c.describe(a), c.targetText(k, n), why))
}

// whyStale finds the block for which the access fits no lease, and says why, with
// the events that show it and the edges that are not feasible.
func (c *court) whyStale(k *accessCase, combined []place) (int64, string, []int32, []edge) {
	a := k.a
	for _, cl := range k.classes {
		n := cl.numbers[0]
		if len(cl.cands) == 0 {
			why, events := c.whyNoLease(a, n)
			return n, why, events, nil
		}
		fits := slices.ContainsFunc(cl.cands, func(cand candidate) bool {
			p := place{lower: cand.lower(), revoke: cand.revoke, until: cand.until}
			return c.base.feasible(p.begins(a)...)
		})
		if !fits {
			why, events, edges := c.whyOutside(a, cl)
			return n, why, events, edges
		}
	}
	n := k.classes[0].numbers[0]
	if len(combined) == 0 {
		return n, "each of its blocks was leased to it at some time, but never all of them at once", []int32{a.begin}, nil
	}
	return n, "each of its blocks fits a lease, but no order fits all of them at once", []int32{a.begin, combined[0].lower}, combined[0].begins(a)
}

// whyNoLease explains an access to a block of which no lease comes into question.
func (c *court) whyNoLease(a *access, n int64) (string, []int32) {
	if c.h.slice != nil {
		c.h.slice.needs(coreKey{c.h.workers[c.h.pools[a.pool].worker], c.h.pools[a.pool].name}, n)
	}
	id, ok := c.chains.blockID[blockKey{a.pool, n}]
	if !ok {
		return fmt.Sprintf("the block was never leased; the access began at %s", c.say(a.begin)), []int32{a.begin}
	}
	b := &c.chains.blocks[id]
	events := []int32{a.begin}
	mode := c.h.ev[a.begin].Mode
	if a.by != a.target {
		for _, l := range c.chains.granted[blockName{id, a.handoff}] {
			for _, g := range c.chains.leases[l].grants {
				e := &c.h.ev[g]
				if h, _ := c.h.named(g); h == a.handoff {
					return fmt.Sprintf("its handoff's grant %s gives lease %d of it to %s for mode %s, and the accessor is %s with mode %s",
						c.say(g), c.chains.leases[l].gen, e.To, e.Mode, c.h.workers[a.by], mode), []int32{g, a.begin}
				}
			}
		}
	}
	text := "no grant of its handoff exposes the block and its request never holds it"
	if l := c.current(b); l != nil {
		text += fmt.Sprintf("; the block's lease %d, from %s, is held by %s", l.gen, c.say(l.alloc), c.holdersText(l))
		events = append(events, l.alloc)
	}
	return text, events
}

func (c *court) holdersText(l *lease) string {
	var names []string
	for _, h := range l.holds {
		names = append(names, h.holder)
	}
	if len(names) > 4 {
		names = append(names[:4], "others")
	}
	return strings.Join(names, ", ")
}

// whyOutside explains an access that begins outside each lease that it may
// belong to.
func (c *court) whyOutside(a *access, cl class) (string, []int32, []edge) {
	cand := cl.cands[len(cl.cands)-1]
	gen := c.chains.leases[cl.leases[0][len(cl.cands)-1]].gen
	began := fmt.Sprintf("the access began at %s", c.say(a.begin))
	within := (&place{lower: cand.lower(), revoke: cand.revoke, until: cand.until}).begins(a)
	switch {
	case !c.base.feasible(edge{cand.lower(), a.begin}):
		return fmt.Sprintf("%s, before lease %d of it was given to it at %s", began, gen, c.say(cand.lower())), []int32{a.begin, cand.lower()}, within[:1]
	case cand.until != none && !c.base.feasible(edge{cand.lower(), a.begin}, edge{a.begin, cand.until}):
		return fmt.Sprintf("it belongs to lease %d, which ended at %s; %s, and no legal order puts that before the end", gen, c.say(cand.until), began),
			[]int32{cand.until, a.begin}, []edge{within[0], within[2]}
	case cand.revoke != none:
		return fmt.Sprintf("its grant %s was taken back at %s; %s, surely after that", c.say(cand.grant), c.say(cand.revoke), began),
			[]int32{cand.grant, cand.revoke, a.begin}, within
	}
	return fmt.Sprintf("%s, which no legal order puts within lease %d", began, gen), []int32{a.begin}, within
}

// withEvents adds events that are not listed yet.
func withEvents(events, more []int32) []int32 {
	for _, e := range more {
		if !slices.Contains(events, e) {
			events = append(events, e)
		}
	}
	return events
}

// earlyFree reports an access whose lease ended while it was open.
func (c *court) earlyFree(k *accessCase, p *place, complete bool) {
	k.state = caseEarly
	a := k.a
	n, gen := c.leaseOf(k, p)
	verdict := spec.Fail
	if !complete {
		k.state, verdict = caseUnknown, spec.Inconclusive
	}
	began := fmt.Sprintf("%s to %s began under lease %d at %s", c.describe(a), c.targetText(k, n), gen, c.say(a.begin))
	var text string
	events := []int32{a.begin, p.until, a.end}
	switch {
	case p.stale:
		text = fmt.Sprintf("%s to %s began at %s and ended at %s, which no legal order puts after the begin", c.describe(a), c.targetText(k, n), c.say(a.begin), c.say(a.end))
	case p.until == none:
		text = fmt.Sprintf("%s and ended at %s, which no legal order puts after the begin", began, c.say(a.end))
	case a.end == none && len(k.fences) > 0:
		text = fmt.Sprintf("%s; the lease ended at %s; the access was over only at the fence %s, and no legal order puts that before the end of the lease",
			began, c.say(p.until), c.say(k.fences[0]))
		events[2] = k.fences[0]
	case a.end == none:
		seal := c.h.sources[a.src].seal
		text = fmt.Sprintf("%s; the lease ended at %s; the access was not seen to end before its source was sealed at %s; therefore the lease ended while the access was open",
			began, c.say(p.until), c.say(seal))
		events[2] = seal
	default:
		text = fmt.Sprintf("%s; the lease ended at %s; the access ended at %s, and no legal order puts that first; therefore the lease ended while the access was open",
			began, c.say(p.until), c.say(a.end))
	}
	ways := []place{*p}
	if !p.stale {
		ways = c.withEnd(k, *p)
	}
	cited, proof := c.cite(c.base, ways[0].edges)
	c.find(c.finding(k, spec.BLK2, verdict, &n, withEvents(events, proof), "%s", text+cited))
}

// leaseOf names the block whose lease ends first in a place, and the lease.
func (c *court) leaseOf(k *accessCase, p *place) (int64, int) {
	for i, ch := range p.choice {
		if cl := &k.classes[i]; cl.cands[ch].until == p.until {
			return cl.numbers[0], c.chains.leases[cl.leases[0][ch]].gen
		}
	}
	return k.classes[0].numbers[0], 0
}
