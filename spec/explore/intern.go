package explore

import (
	"fmt"
	"sync"

	"conform/spec"
)

// side is a party of the protocol. Owner and accessor are workers.
type side uint8

const (
	owner side = iota
	accessor
	client
	harness
)

// handoffName is the key of a request's handoff: one raw key, used again.
func handoffName(r int) string { return [...]string{"room-7", "room-7#1"}[r] }

func reqName(r int) string { return fmt.Sprintf("r%d", r+1) }

// blockOp is an operation of spec.Block at this scope, as an index.
type blockOp uint8

const (
	opAlloc    blockOp = iota // by the request
	opHold                    // by the handoff
	opDrop                    // by the request
	opFree                    // by the request
	opFreeHeld                // by the handoff
	opGrant                   // to the accessor
	opFence                   // of the handoff
	opBegin                   // by the accessor
	opEnd                     // by the accessor
	opBeginOwn                // by the owner
	opEndOwn                  // by the owner
	blockOps
)

// blockCode is an operation for request r under a lease.
func blockCode(op blockOp, r int, lease uint8) int {
	return (int(lease)*maxRequests+r)*int(blockOps) + int(op)
}

const blockCodes = 4 * maxRequests * int(blockOps)

// build makes the spec's operation of a code.
func build(mode Mode, code int) spec.BlockOp {
	op, r, lease := blockOp(code%int(blockOps)), code/int(blockOps)%maxRequests, code/int(blockOps)/maxRequests
	self := spec.Holder{Name: reqName(r), Req: reqName(r), Handoff: handoffName(r)}
	held := spec.Holder{Name: handoffName(r), Req: reqName(r), Handoff: handoffName(r)}
	w := map[Mode]string{Push: "w", Pull: "r"}[mode]
	own := map[Mode]string{Push: "r", Pull: "w"}[mode]
	switch op {
	case opAlloc:
		return spec.BlockOp{Kind: spec.KindAlloc, Holder: self}
	case opHold:
		return spec.BlockOp{Kind: spec.KindHold, Holder: held}
	case opDrop:
		return spec.BlockOp{Kind: spec.KindDrop, Holder: self}
	case opFree:
		return spec.BlockOp{Kind: spec.KindFree, Holder: self}
	case opFreeHeld:
		return spec.BlockOp{Kind: spec.KindFree, Holder: held}
	case opGrant:
		return spec.BlockOp{Kind: spec.KindGrant, Handoff: handoffName(r), To: "accessor", Mode: w}
	case opFence:
		return spec.BlockOp{Kind: spec.KindFence, Handoff: handoffName(r)}
	case opBegin:
		return spec.BlockOp{
			Kind: spec.KindBegin, Access: "remote-" + reqName(r), By: "accessor", Remote: true,
			Handoff: handoffName(r), Mode: w, Generation: lease, Granted: true,
		}
	case opBeginOwn:
		return spec.BlockOp{
			Kind: spec.KindBegin, Access: "own-" + reqName(r), By: "owner",
			Handoff: handoffName(r), Mode: own, Generation: lease,
		}
	case opEnd:
		return spec.BlockOp{Kind: spec.KindEnd, Access: "remote-" + reqName(r)}
	default:
		return spec.BlockOp{Kind: spec.KindEnd, Access: "own-" + reqName(r)}
	}
}

// requestOps are the operations of spec.Request at this scope.
var requestOps = [...]spec.RequestOp{
	{Kind: spec.KindSubmit},
	{Kind: spec.KindAdmit, Need: 1, Limit: 1},
	{Kind: spec.KindAdmit, Need: 2, Limit: 1},
	{Kind: spec.KindOffer},
	{Kind: spec.KindAccept},
	{Kind: spec.KindBegin},
	{Kind: spec.KindOutput},
	{Kind: spec.KindCancel},
	{Kind: spec.KindReject},
	{Kind: spec.KindExpire},
	{Kind: spec.KindReject, Elsewhere: true},
	{Kind: spec.KindExpire, Elsewhere: true},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeOK},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeError},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeRejected},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeCancelled},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeError, Elsewhere: true},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeOK, Client: true, Status: 200},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeError, Client: true, Status: 500},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeRejected, Client: true, Status: 400},
	{Kind: spec.KindFinish, Outcome: spec.OutcomeCancelled, Client: true, Status: 499},
}

const (
	reqSubmit = iota
	reqAdmit
	reqAdmitOver
	reqOffer
	reqAccept
	reqBegin
	reqOutput
	reqCancel
	reqReject
	reqExpire
	reqRejectedElsewhere
	reqExpiredElsewhere
	reqFinish         // + answer - answerOK
	reqCutElsewhere   = reqFinish + 4
	reqTold           = reqCutElsewhere + 1 // + answer - answerOK
	requestCodesCount = reqTold + 4
)

// ruleSet is a set of rules, one bit each in the order of spec.Rules.
type ruleSet uint16

var ruleBits = func() map[spec.RuleID]ruleSet {
	m := map[spec.RuleID]ruleSet{}
	for i, r := range spec.Rules() {
		m[r.ID] = 1 << i
	}
	return m
}()

func (s ruleSet) rules() []spec.RuleID {
	var out []spec.RuleID
	for _, r := range spec.Rules() {
		if s&ruleBits[r.ID] != 0 {
			out = append(out, r.ID)
		}
	}
	return out
}

// blockFacts is what the monitors and the protocol ask about a block's state.
type blockFacts struct {
	leased  bool
	open    bool // some access is
	remote  [maxRequests]bool
	fenced  [maxRequests]bool
	lease   uint8
	renamed uint16 // the same state with the two requests' names exchanged; 0 for not yet known
}

// interned gives every state of the two machines that was reached a number, and
// remembers each step that was taken. It is where the specification's Step is
// called: once for each state and operation, and no step of the protocol goes
// round it. It is safe for use by several goroutines.
type interned struct {
	mode     Mode
	mu       sync.Mutex
	blocks   []spec.Block
	blockIDs map[string]uint16
	requests []spec.Request
	reqIDs   map[spec.Request]uint8
}

func newInterned(mode Mode) *interned {
	t := &interned{mode: mode, blockIDs: map[string]uint16{}, reqIDs: map[spec.Request]uint8{}}
	t.blockID(spec.Block{})
	t.requestID(spec.Request{})
	return t
}

func (t *interned) blockID(b spec.Block) uint16 {
	key := b.Key()
	id, ok := t.blockIDs[key]
	if !ok {
		if len(t.blocks) > 1<<16-1 {
			panic("explore: more states of one block than a number of 16 bits tells apart")
		}
		id = uint16(len(t.blocks))
		t.blocks, t.blockIDs[key] = append(t.blocks, b), id
	}
	return id
}

func (t *interned) requestID(r spec.Request) uint8 {
	id, ok := t.reqIDs[r]
	if !ok {
		id = uint8(len(t.requests))
		t.requests, t.reqIDs[r] = append(t.requests, r), id
	}
	return id
}

// outcome is a step that was taken: the next state, and the rule that it broke.
type outcome struct {
	known  bool
	next   uint16
	broken ruleSet
}

func (t *interned) stepBlock(id uint16, code int) outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, breach := t.blocks[id].Step(build(t.mode, code))
	return outcome{true, t.blockID(next), broken(breach)}
}

func (t *interned) stepRequest(id uint8, code int) outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, breach := t.requests[id].Step(requestOps[code])
	return outcome{true, uint16(t.requestID(next)), broken(breach)}
}

func broken(b *spec.Breach) ruleSet {
	if b == nil {
		return 0
	}
	return ruleBits[b.Rule]
}

func (t *interned) facts(id uint16) blockFacts {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.blocks[id]
	f := blockFacts{leased: b.Leased, open: len(b.Open) > 0, lease: uint8(b.Generation)}
	for r := range maxRequests {
		for _, a := range b.Open {
			f.remote[r] = f.remote[r] || a.Remote && a.Handoff == handoffName(r)
		}
		for _, h := range b.Fenced {
			f.fenced[r] = f.fenced[r] || h == handoffName(r)
		}
	}
	f.renamed = t.blockID(renamed(b))
	return f
}
