package check

import (
	"cmp"
	"slices"

	"conform/spec"
)

// Meeting is one access to memory that is passed between stages, and the end of the
// lease that it touched: a pair of events whose order matters. Where Ordered is empty
// nothing orders them, and the next run may show them the other way round.
type Meeting struct {
	Access  string // its id; "" for a grantee of whom no access was seen
	Handoff string
	Req     string
	By      spec.Role // who accessed, or was granted
	Owner   spec.Role // whose memory it is
	Pool    string
	Mode    string // r or w, as the access or the grant says
	// Own is set for an access by the owner itself on behalf of a transfer, such as
	// the read of its source.
	Own bool
	// Why is that of the free; "" where the lease was not freed.
	Why string
	// Ordered is how the free knew that the access was over: the kind of the last signal
	// of another worker on the path, else of the last signal, [ByProgram] or [ByFence].
	Ordered string
	// Early is set where the lease surely ended while the access was open.
	Early bool
	// Begin is that of the access, or the grant; Free is that of the lease, if Why is
	// not empty.
	Begin, Free spec.EventID
}

// What orders a [Meeting] besides signals.
const (
	ByProgram = "program order"
	ByFence   = "fence"
)

// Meetings lists, in the order of the trace, how each access under a handoff met the
// end of the leases that it touched (one for each free), and how each grantee of whom
// no access was seen met the end of what it was granted. Accesses that touched no
// known lease are left out.
func (j *Judged) Meetings() []Meeting {
	c := j.c
	var out []Meeting
	met := map[meetKey]bool{}
	for i := range c.cases {
		k := &c.cases[i]
		if k.a.handoff == none || k.state != caseLegal && k.state != caseEarly && k.state != caseStale {
			continue
		}
		emits := c.concerning(k.a.handoff, k.a.req)
		for _, cand := range k.touched() {
			m := c.meeting(k, cand, emits)
			if cand.free != none {
				met[meetKey{cand.free, k.a.handoff}] = true
			}
			out = append(out, m)
		}
	}
	out = append(out, c.unmet(met)...)
	slices.SortStableFunc(out, func(a, b Meeting) int {
		return cmp.Or(cmp.Compare(a.Begin.Src, b.Begin.Src), cmp.Compare(a.Begin.Seq, b.Begin.Seq), cmp.Compare(a.Free.Seq, b.Free.Seq))
	})
	return out
}

type meetKey struct{ free, handoff int32 }

// touched lists the leases that an access touched, one for each free: where the
// trace leaves a choice, those of the place that the judge took.
func (k *accessCase) touched() []candidate {
	var out []candidate
	for i := range k.classes {
		cl := &k.classes[i]
		choice := 0
		if k.state == caseLegal && k.chosen >= 0 && k.chosen < len(k.places) {
			choice = k.places[k.chosen].choice[i]
		}
		if choice >= len(cl.cands) {
			continue
		}
		cand := cl.cands[choice]
		if !slices.ContainsFunc(out, func(o candidate) bool { return o.free == cand.free }) {
			out = append(out, cand)
		}
	}
	return out
}

func (c *court) meeting(k *accessCase, cand candidate, emits []int32) Meeting {
	a := k.a
	e := &c.h.ev[a.begin]
	m := Meeting{
		Access: a.id, Handoff: e.Handoff, Req: e.Req, By: c.roleOf(a.by), Owner: c.roleOf(a.target), Pool: e.Pool, Mode: e.Mode,
		Own: a.by == a.target, Begin: e.ID(), Early: k.state != caseLegal,
	}
	if cand.free == none {
		return m
	}
	m.Why, m.Free = c.whyOf(cand.free)
	var seeds []int32
	if a.end != none {
		seeds = append(seeds, a.end)
	}
	fences := c.allFences(a)
	m.Ordered = c.orderedBy(cand.free, append(seeds, fences...), fences, emits, func(e *spec.Event) bool { return endsAccess(e, a.id) })
	return m
}

func (c *court) whyOf(free int32) (string, spec.EventID) {
	e := &c.h.ev[free]
	return cmp.Or(e.Why, "unsaid"), e.ID()
}

func (c *court) roleOf(worker int32) spec.Role {
	if worker == none || len(c.h.roles[worker]) == 0 {
		return ""
	}
	return c.h.roles[worker][0]
}

// orderedBy says how the thread of an event came to know of what happened before it
// at the seeds: by the last signal of another worker on the path that reached it first,
// else by what came last on it. "" is that nothing did.
func (c *court) orderedBy(event int32, seeds, fences, emits []int32, admissible func(*spec.Event) bool) string {
	f, by := front{}, map[int32]word{}
	add := func(e int32, w word) {
		if p, ok := f[c.h.thread[e]]; !ok || c.h.pos[e] < p {
			by[c.h.thread[e]] = w
		}
		f.add(c.h, e)
	}
	for _, s := range seeds {
		if slices.Contains(fences, s) {
			add(s, word{ByFence, true})
		} else {
			add(s, word{ByProgram, false})
		}
	}
	for _, e := range emits {
		if !f.has(c.h, e) || !admissible(&c.h.ev[e]) {
			continue
		}
		for _, o := range c.h.observes[e] {
			w := word{c.h.ev[e].Signal, true}
			if c.h.workerOf(e) == c.h.workerOf(o) {
				if w.proves = false; by[c.h.thread[e]].proves {
					w = by[c.h.thread[e]]
				}
			}
			add(o, w)
		}
	}
	if !f.has(c.h, event) {
		return ""
	}
	return by[c.h.thread[event]].text
}

// word is what a thread knows by; it proves something about others where another worker
// said it, or a fence keeps them away.
type word struct {
	text   string
	proves bool
}

// unmet are the grantees of freed leases of whom no access was seen.
func (c *court) unmet(met map[meetKey]bool) []Meeting {
	var out []Meeting
	for i := range c.chains.leases {
		l := &c.chains.leases[i]
		owner := c.h.pools[c.chains.blocks[l.block].pool].worker
		if l.free == none {
			continue
		}
		for _, g := range l.grants {
			e := &c.h.ev[g]
			handoff, req := c.h.named(g)
			key := meetKey{l.free, handoff}
			if met[key] || e.To == c.h.workers[owner] {
				continue
			}
			met[key] = true
			m := Meeting{Handoff: e.Handoff, Req: e.Req, By: c.roleNamed(e.To), Owner: c.roleOf(owner), Pool: e.Pool, Mode: e.Mode, Begin: e.ID()}
			m.Why, m.Free = c.whyOf(l.free)
			emits, fences := c.concerning(handoff, req), c.h.fences[fenceKey{owner, handoff}]
			m.Ordered = c.orderedBy(l.free, append(c.quieting(emits, e.To, owner), fences...), fences, emits, quiets)
			out = append(out, m)
		}
	}
	return out
}

func (c *court) roleNamed(worker string) spec.Role {
	id, ok := c.h.workerID[worker]
	if !ok {
		return ""
	}
	return c.roleOf(id)
}

// quieting lists the signals of a grantee that say that it is quiet.
func (c *court) quieting(emits []int32, to string, owner int32) []int32 {
	var from []int32
	for _, e := range emits {
		w := c.h.workerOf(e)
		if quiets(&c.h.ev[e]) && (to == "*" && w != owner || c.h.workers[w] == to) {
			from = append(from, e)
		}
	}
	return from
}

// Faults lists the trace's fault events, in its order.
func (j *Judged) Faults() []spec.Event {
	var out []spec.Event
	for _, e := range j.c.h.byKind[spec.KindFault] {
		out = append(out, j.c.h.ev[e])
	}
	return out
}
