package check

import (
	"fmt"

	"conform/spec"
)

// Story explains one finding to a person.
type Story struct {
	Finding Finding `json:"finding"`
	// Must is the rule's sentence, Why what it is for.
	Must string `json:"must"`
	Why  string `json:"why"`
	// Owners say who had the block before, at and after what happened; empty for a
	// finding about no block.
	Owners []string `json:"owners,omitempty"`
	// Missing is the evidence, or the event, that was not there; Enough is what
	// would have made the rule hold.
	Missing string `json:"missing"`
	Enough  string `json:"enough"`
	Lanes   Lanes  `json:"lanes"`
}

// Explain tells the story of one of the findings of the result; else the error
// wraps [ErrNoFinding].
func (j *Judged) Explain(f Finding) (*Story, error) {
	c := j.c
	s, err := newSlicer(c.h, f)
	if err != nil {
		return nil, err
	}
	rule, ok := spec.RuleByID(f.Rule)
	if !ok {
		return nil, fmt.Errorf("%w: no rule %s", ErrNoFinding, f.Rule)
	}
	st := &Story{Finding: f, Must: rule.Must, Why: rule.Why, Owners: c.owners(&f, s.witness)}
	st.Missing, st.Enough = c.lacked(&f, s.witness)
	st.Lanes = c.lanesOf(s)
	return st, nil
}

// owners tells whose the finding's block was: the leases from the one before the
// events to the one after.
func (c *court) owners(f *Finding, witness []int32) []string {
	b := c.blockOf(f)
	if b == nil {
		return nil
	}
	first, last := -1, -1
	for i, l := range b.leases {
		le := &c.chains.leases[l]
		for _, e := range witness {
			if c.base.rank[le.alloc] > c.base.rank[e] || le.free != none && c.base.rank[le.free] < c.base.rank[e] {
				continue
			}
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 { // between leases: those around the first event
		for i, l := range b.leases {
			if len(witness) > 0 && c.base.rank[c.chains.leases[l].alloc] < c.base.rank[witness[0]] {
				first, last = i, i
			}
		}
	}
	if first < 0 {
		if len(b.leases) == 0 {
			return []string{"nobody ever had it: it was never allocated"}
		}
		return []string{"before: nobody, it had not been allocated yet", "after:  " + c.leaseText(b.leases[0])}
	}
	out := []string{"before: nobody, this is its first lease"}
	if first > 0 {
		out[0] = "before: " + c.leaseText(b.leases[first-1])
	}
	for i := first; i <= last; i++ {
		if i-first == 3 {
			out = append(out, fmt.Sprintf("        … and %d more leases", last-i+1))
			break
		}
		out = append(out, "then:   "+c.leaseText(b.leases[i]))
	}
	if last+1 < len(b.leases) {
		return append(out, "after:  "+c.leaseText(b.leases[last+1]))
	}
	return append(out, "after:  nobody, it was not allocated again")
}

// blockOf is the block of a finding, nil if it has none or nothing mutated it.
func (c *court) blockOf(f *Finding) *block {
	if f.Block == nil {
		return nil
	}
	w, ok := c.h.workerID[f.Block.Worker]
	if !ok {
		return nil
	}
	p, ok := c.h.poolID[poolKey{w, f.Block.Pool}]
	if !ok {
		return nil
	}
	id, ok := c.chains.blockID[blockKey{p, f.Block.Number}]
	if !ok {
		return nil
	}
	return &c.chains.blocks[id]
}

// leaseText tells one lease.
func (c *court) leaseText(l int32) string {
	le := &c.chains.leases[l]
	e := &c.h.ev[le.alloc]
	text := fmt.Sprintf("lease %d, %s", le.gen, e.Holder)
	if e.Req != "" && e.Req != e.Holder {
		text += ", request " + e.Req
	}
	if e.Handoff != "" && e.Handoff != e.Holder {
		text += ", handoff " + e.Handoff
	}
	text += ", from " + c.say(le.alloc)
	switch {
	case le.free != none:
		text += " to " + c.say(le.free)
		if why := c.h.ev[le.free].Why; why != "" {
			text += ", why: " + why
		}
	case le.lostFree != none:
		text += "; how it ended was lost"
	default:
		text += ", not freed"
	}
	return text
}

// lacked says what was not there, and what would have been enough.
func (c *court) lacked(f *Finding, witness []int32) (missing, enough string) {
	if f.Verdict == spec.Inconclusive {
		return "events that the rule needs: they were lost, or never recorded",
			"a whole recording: each source sealed, without a gap, and the target worker's own events"
	}
	under := "its handoff"
	if f.Handoff != "" {
		under = "handoff " + f.Handoff
	} else if f.Req != "" {
		under = "request " + f.Req
	}
	by, owner := "the accessor", "the block's owner"
	for _, e := range witness {
		if c.h.ev[e].K == spec.KindBegin || c.h.ev[e].K == spec.KindEnd {
			by = c.h.workerName(e)
		}
	}
	if f.Block != nil {
		owner = f.Block.Worker
	}
	switch f.Rule {
	case spec.SIG2:
		return c.lackedPath(f, witness, by, owner, under)
	case spec.BLK2:
		return "that the access was over when the lease ended",
			fmt.Sprintf("that %s frees the block only once it has heard from %s, by a signal for %s that claims completed or drained and is sent after the end of the access; or a fence of %s by %s before the free",
				owner, by, under, under, owner)
	case spec.BLK3:
		return fmt.Sprintf("a lease that was granted to %s under %s, or held by its request, and lasted when the access began", by, under),
			fmt.Sprintf("that the access begins between the grant, or alloc, and the end of that lease; or that a fence of %s by %s turns it away", under, owner)
	}
	l := lackedBy[f.Rule]
	if f.Verdict == spec.Unproven && l.unproven != [2]string{} {
		return l.unproven[0], l.unproven[1]
	}
	return l.missing, l.enough
}

// lackedPath is for SIG-2: which path there is none of.
func (c *court) lackedPath(f *Finding, witness []int32, by, owner, under string) (missing, enough string) {
	if len(witness) < 2 {
		return "a path of evidence", "signals whose claims permit it"
	}
	from, to := witness[0], witness[len(witness)-1]
	missing = fmt.Sprintf("a path of program order and of signals for %s from %s to %s", under, c.say(from), c.say(to))
	switch c.h.ev[to].K {
	case spec.KindBegin, spec.KindGrant:
		return missing, fmt.Sprintf("that %s begins only what it was told of: a signal for %s, of any kind, sent after %s and taken in before %s", c.h.workerName(to), under, c.say(from), c.say(to))
	}
	switch c.h.ev[from].K {
	case spec.KindGrant:
		return missing, fmt.Sprintf("that %s frees the block only once %s has said, by a signal for %s that claims stopped, completed or drained, that it will not touch it; or a fence of %s by %s before the free",
			owner, c.h.ev[from].To, under, under, owner)
	case spec.KindBegin:
		return "the end of the access, and " + missing, fmt.Sprintf("that the end is recorded, and that %s frees the block only on a signal of %s for %s that claims completed or drained", owner, by, under)
	case spec.KindFence:
		return missing, fmt.Sprintf("that the thread of %s that frees takes in a signal for %s that the fence led to", owner, under)
	}
	return missing, fmt.Sprintf("that %s frees the block only on a signal of %s for %s that claims completed or drained, sent after the end; or a fence of %s by %s before the free, on a path to it",
		owner, by, under, under, owner)
}

// lack is what a rule's findings lack, and what would do.
type lack struct {
	missing, enough string
	unproven        [2]string
}

var lackedBy = map[spec.RuleID]lack{
	spec.BLK1: {
		missing: "a free of the block between the two allocations",
		enough:  "that the pool hands a block out only when it is in the free list: one free, by the last holder, before the second alloc",
	},
	spec.BLK4: {
		missing: "a hold, or a lease, that this could end",
		enough:  "one drop or free for each hold, and no free while another holder is left",
	},
	spec.BLK5: {
		missing: "a drop or a free by each holder before the idle, or a live request or a cache that still has the block",
		enough:  "that whoever ends a request gives back what it held, on each worker, before the worker is idle",
	},
	spec.REQ1: {
		missing: "that this worker took in the rejection before it went on",
		enough:  "that the rejection stops the request at every stage: no accept, no access and no output after it",
	},
	spec.REQ2: {
		missing: "a drop or free of what the request held, by the idle or the seal",
		enough:  "that each worker gives back what a rejected, cancelled or expired request holds, on a signal",
		unproven: [2]string{
			"evidence that those who could touch the block were done when a timeout freed it",
			"a signal of each of them that claims completed or drained, or a fence of the handoff, that leads to the free",
		},
	},
	spec.REQ3: {
		missing: "that the cancellation stopped the worker that had taken it in",
		enough:  "that the worker begins no access for the request once it has taken in its cancellation",
		unproven: [2]string{
			"a path from the cancellation to the thread that began the access: nothing stopped it",
			"that the thread that begins accesses is told of the cancellation, and then begins none",
		},
	},
	spec.REQ4: {
		missing: "one outcome, told to the client as it was",
		enough:  "one finish by each worker, and an answer to the client that says error, rejected or cancelled where a stage said so",
	},
	spec.REQ5: {
		missing: "capacity for what was admitted",
		enough:  "that the stage rejects what needs more than it can process, before it reserves anything",
	},
	spec.SIG1: {
		missing: "that what the signal claims was so when it was sent",
		enough:  "that it is sent only after the end of each access that it speaks of, and after it no access begins where it claims stopped or drained; or that it claims less",
		unproven: [2]string{
			"the end of an access that the signal claims to be over",
			"that the end is recorded before the signal is sent",
		},
	},
	spec.SIG3: {
		missing: "a signal that was about this handoff",
		enough:  "a key that no later handoff has, such as a generation in the message, and that a signal with another is dropped",
	},
	spec.SIG4: {
		missing: "the answer that was asked for, or a report that it did not come",
		enough:  "a signal of that kind taken in by the worker that asked, or an expire or a finish with error of the request there",
	},
	spec.DAT1: {
		missing: "that what was read is what was written",
		enough:  "that the block is read under the lease that it was written under, and only once the write has completed",
	},
	spec.DAT2: {
		missing: "the tokens of the request's own prompt",
		enough:  "that each stage computes from the state of this request only; the findings of the BLK rules say where it did not",
	},
}
