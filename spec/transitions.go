package spec

import (
	"slices"
	"strings"
)

// Transition is one row of the table of the two machines: who may take it, under
// what guard, and what evidence makes it final.
type Transition struct {
	Machine string // Block or Request
	From    string
	Event   Kind
	To      string
	Who     string // who may take it
	Guard   string // what must hold when it is taken
	// Final is the evidence after which nobody has to reckon with what was before.
	Final string
	Rules []RuleID // that judge the guard and the evidence
}

// Leaves reports whether the transition, one of a request, leaves a phase.
func (t Transition) Leaves(p Phase) bool {
	switch t.From {
	case "any":
		return true
	case "any live":
		return p.Live()
	}
	return slices.Contains(strings.Split(t.From, ", "), string(p))
}

// Transitions is the table of both machines, in the order of a life. It is what
// [Block.Step] and [Request.Step] do, for people.
func Transitions() []Transition {
	return append(blockTransitions(), requestTransitions()...)
}

func blockTransitions() []Transition {
	const block = "Block"
	return []Transition{
		{
			block, "Free", KindAlloc, "Leased", "the pool's worker", "the block is free",
			"the pool's own order: at once",
			[]RuleID{BLK1},
		},
		{
			block, "Leased", KindHold, "Leased", "the pool's worker", "the holder does not hold the lease yet",
			"the pool's own order: at once",
			[]RuleID{BLK4},
		},
		{
			block, "Leased", KindGrant, "Leased", "the pool's worker", "the block is leased; the grant exposes this lease, not the block",
			"a signal that tells the accessor; until it arrives the accessor may not begin",
			[]RuleID{BLK4, SIG2},
		},
		{
			block, "Leased", KindBegin, "Leased", "the accessor that the grant names, or the pool's worker for a holder",
			"it begins under the lease that it was granted, in the granted mode, before the revoke",
			"a path from the alloc, over the grant, to the begin",
			[]RuleID{BLK3, SIG2, REQ1, REQ3},
		},
		{
			block, "Leased", KindEnd, "Leased", "the accessor", "it knows that it touches the block no more",
			"a signal of the accessor that claims completed or drained, and does not lie",
			[]RuleID{SIG1},
		},
		{
			block, "Leased", KindRevoke, "Leased", "the pool's worker", "none: it forbids new accesses and ends none that is open",
			"only together with a fence, or with the word of the accessor",
			[]RuleID{BLK3},
		},
		{
			block, "Leased", KindFence, "Leased", "the pool's worker's memory protection", "none: it needs no word from the peer",
			"itself: no access under the handoff touches the block from here on",
			[]RuleID{BLK2, SIG2},
		},
		{
			block, "Leased", KindDrop, "Leased", "the pool's worker", "the holder holds the lease",
			"the pool's own order: at once",
			[]RuleID{BLK4},
		},
		{
			block, "Leased", KindFree, "Free", "the pool's worker", "no other holder is left and no access is open",
			"for each access a path from its end, or a fence, to the free; for each grantee that was not seen, its word that it stopped, completed or drained, or a fence",
			[]RuleID{BLK2, BLK4, SIG2},
		},
	}
}

func requestTransitions() []Transition {
	const request = "Request"
	return []Transition{
		{request, "", KindSubmit, "submitted", "the client", "none", "at once", nil},
		{
			request, "submitted", KindAdmit, "admitted", "the stage itself", "what it needs is within what the stage can process, not only within the configured limit",
			"the stage's own decision",
			[]RuleID{REQ5},
		},
		{
			request, "submitted, admitted", KindReject, "rejected", "the stage itself; it holds for every stage", "none",
			"at once: from then on no stage accepts it, transfers for it or emits output for it",
			[]RuleID{REQ1},
		},
		{request, "admitted", KindOffer, "offered", "the stage that passes it on", "none", "the other stage's accept or reject", nil},
		{
			request, "offered", KindAccept, "accepted", "the stage that takes over", "no stage rejected it; reserving blocks is not accepting",
			"the stage's own decision, on state that it takes for valid",
			[]RuleID{REQ1, DAT1},
		},
		{
			request, "accepted", KindOutput, "accepted", "the stage that computes", "no stage rejected it",
			"the client has it",
			[]RuleID{REQ1, DAT2},
		},
		{
			request, "any live", KindCancel, "cancelled", "the thread of the stage that decides, when it takes the wish in", "none",
			"each hold on each worker given back by a signal; an answer, where one was asked for",
			[]RuleID{REQ2, REQ3, SIG4},
		},
		{
			request, "any live", KindExpire, "expired", "a clock of the stage", "none: time is no evidence about the peer",
			"a fence, or the word of each peer; not the clock",
			[]RuleID{REQ2},
		},
		{
			request, "any", KindFinish, "finished", "the stage itself; the client for what it was told", "it has not finished there; the client's answer states what happened",
			"at once",
			[]RuleID{REQ4},
		},
	}
}

// Fact is one line of the review that the protocol must answer: who owns what,
// what can end it, and what must be known before it passes on.
type Fact struct {
	Subject  string
	Owner    string
	EndedBy  string // what can retire it
	Evidence string // that is required before it is reassigned
}

// Ownership lists the facts about each buffer and decision.
func Ownership() []Fact {
	return []Fact{
		{
			"a leased block", "the worker whose pool it is; the holders keep the lease alive",
			"a drop by its last holder and a free: done, cancel, reject, timeout, eviction, a lost peer, preemption, shutdown",
			"the end of every access, by a path of signals that claim completed or drained, or a fence; for a grantee not seen, its word or a fence",
		},
		{
			"a granted lease", "still the granting worker; the accessor may only read or write",
			"a revoke forbids new accesses; a fence turns away all of them",
			"the accessor's completed or drained, or the fence; never the passing of time",
		},
		{
			"a block in a prefix cache", "the cache, a holder without a request", "an eviction",
			"that no request holds it, and as for any lease",
		},
		{
			"a metadata or request slot", "as a block: the worker whose pool it is", "as a block", "as a block; a late writer hits the next owner",
		},
		{
			"admission", "each stage for itself, by what it can process", "a reject by any stage, which is terminal at every stage",
			"none: a reject is final at once, an admit binds no other stage",
		},
		{
			"acceptance of a handoff", "the stage that takes over", "a reject, cancel or expire", "that the state is the request's own (digests), not that it arrived",
		},
		{
			"a handoff's key", "the stage that made it", "the end of the handoff",
			"that no signal about its earlier use can still be taken for the present one",
		},
		{
			"the client's answer", "the stage that speaks to the client", "one terminal outcome",
			"the outcome of every stage: no success for what was rejected, failed or cut short",
		},
	}
}
