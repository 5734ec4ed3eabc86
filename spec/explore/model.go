package explore

import (
	"conform/spec"
)

// stepKind says who takes a step.
type stepKind uint8

const (
	advance   stepKind = iota
	impatient          // a clock, or a client: possible at any time, not often taken
	fault              // the network, or a crash; nothing ever waits for one
)

// model takes the steps of the protocol. It belongs to one goroutine; the tables
// of what the specification's machines do are shared.
type model struct {
	scope Scope
	off   guardID // the guard that is taken away
	table *interned

	blockSteps   [][]outcome // by state and code: what table has said
	requestSteps [][]outcome
	blockFacts   []blockFacts
	factsKnown   []bool

	next state // what the step being taken leads to
	// broken is the rules that it has broken.
	broken ruleSet
	// recording asks for the events of each step; they cost too much otherwise.
	recording bool
	events    []event

	yield func(label string, kind stepKind, n *state)
}

func newModel(scope Scope, table *interned) *model {
	return &model{scope: scope, off: scope.Without.id, table: table}
}

func (m *model) initial() state {
	return state{doubles: uint8(m.scope.Duplicates), crashes: uint8(m.scope.Crashes)}
}

// take takes one step from s, on a copy.
func (m *model) take(s *state, label string, kind stepKind, do func(n *state)) {
	m.next = *s
	m.broken, m.events = 0, m.events[:0]
	do(&m.next)
	m.settle(&m.next)
	m.yield(label, kind, &m.next)
}

// settle forgets what no step and no monitor can ask for any more, so that states
// that differ in nothing else are one.
func (m *model) settle(n *state) {
	for r := range m.scope.Requests {
		q := &n.req[r]
		m.settleCrash(n, q)
		if m.off != whole { // what a missing guard asks for is not known here
			continue
		}
		if q.accessor >= accessorAccessing {
			q.clear(gotGrant)
		}
		if q.owner == ownerDone {
			q.clear(wordIn)
		}
		if q.accessor != accessorDone {
			continue
		}
		q.clear(stopped | saidDrained)
		if q.owner != ownerDone || q.block != 0 && m.owns(n, r) && m.blockOf(n, r).leased {
			continue
		}
		q.block, q.lease = 0, 0
		q.clear(hasSource)
		if q.told == noAnswer {
			continue
		}
		q.clear(cancelAsked | wasEnded)
		q.read, q.ans = notRead, [2]answer{}
		if q.net == 0 && q.flags&(submitOwner|submitAccessor|cancelOwner|cancelAccessor|askedAck) == 0 {
			*q = request{need: 1, owner: ownerDone, accessor: accessorDone, told: answerOK}
		}
	}
}

// settleCrash forgets what was on its way to a crashed worker, and what it knew.
func (m *model) settleCrash(n *state, q *request) {
	for k := range messages {
		if n.down[receiver(k)] {
			q.add(k, -q.flying(k))
		}
	}
	if n.down[owner] {
		q.owner = ownerDone
		q.clear(submitOwner | cancelOwner | askedAck | wordIn)
	}
	if n.down[accessor] {
		if q.accessor != accessorAccessing {
			q.accessor = accessorDone
		}
		q.clear(submitAccessor | cancelAccessor | ackOwed | gotGrant | stopped)
	}
}

// breaks notes that the step breaks a rule that no machine judges alone.
func (m *model) breaks(rule spec.RuleID) { m.broken |= ruleBits[rule] }

// stepBlock applies an operation of request r to its block.
func (m *model) stepBlock(n *state, r int, op blockOp) {
	q := &n.req[r]
	if q.block == 0 {
		return
	}
	id := n.block[q.block-1]
	for int(id) >= len(m.blockSteps) {
		m.blockSteps = append(m.blockSteps, nil)
	}
	if m.blockSteps[id] == nil {
		m.blockSteps[id] = make([]outcome, blockCodes)
	}
	o := &m.blockSteps[id][blockCode(op, r, q.lease)]
	if !o.known {
		*o = m.table.stepBlock(id, blockCode(op, r, q.lease))
	}
	n.block[q.block-1] = o.next
	m.broken |= o.broken
}

// stepRequest applies an operation to the machine of request r at one side.
func (m *model) stepRequest(n *state, r int, at side, code int) {
	id := &n.req[r].machine[at]
	for int(*id) >= len(m.requestSteps) {
		m.requestSteps = append(m.requestSteps, nil)
	}
	if m.requestSteps[*id] == nil {
		m.requestSteps[*id] = make([]outcome, requestCodesCount)
	}
	o := &m.requestSteps[*id][code]
	if !o.known {
		*o = m.table.stepRequest(*id, code)
	}
	*id = uint8(o.next)
	m.broken |= o.broken
}

// facts are what is asked about the state of a block.
func (m *model) facts(id uint16) *blockFacts {
	for int(id) >= len(m.factsKnown) {
		m.factsKnown, m.blockFacts = append(m.factsKnown, false), append(m.blockFacts, blockFacts{})
	}
	if !m.factsKnown[id] {
		m.factsKnown[id], m.blockFacts[id] = true, m.table.facts(id)
	}
	return &m.blockFacts[id]
}

// blockOf is what is known about the block of a request.
func (m *model) blockOf(n *state, r int) *blockFacts {
	if b := n.req[r].block; b != 0 {
		return m.facts(n.block[b-1])
	}
	return &blockFacts{}
}

func (m *model) fenced(n *state, r int) bool { return m.blockOf(n, r).fenced[r] }

// accessOpen reports whether the accessor's access for r may still touch memory.
func (m *model) accessOpen(n *state, r int) bool { return m.blockOf(n, r).remote[r] }

// alloc begins a lease of block b for request r.
func (m *model) alloc(n *state, r, b int) {
	q := &n.req[r]
	q.block, q.lease = uint8(b+1), 0
	m.stepBlock(n, r, opAlloc)
	q.lease = m.facts(n.block[b]).lease
	n.content[b] = 0
	m.record(owner, r, spec.Event{K: spec.KindAlloc, Holder: reqName(r)})
}

func (m *model) grant(n *state, r int) {
	m.stepBlock(n, r, opGrant)
	m.record(owner, r, spec.Event{K: spec.KindGrant})
}

// free ends the lease of request r. by says that it is for the word that was
// just observed, of request by.
func (m *model) free(n *state, r int, why string, by int) {
	q := &n.req[r]
	f := m.blockOf(n, r)
	if by != noWord && by != r {
		m.breaks(spec.SIG3)
	}
	granted := m.scope.Mode == Push || q.owner == ownerGranted || q.has(earlyGrant)
	if granted && f.leased && !q.has(wordIn) {
		if !f.open {
			m.breaks(spec.SIG2)
		}
		if why == "timeout" {
			m.breaks(spec.REQ2)
		}
	}
	op, holder := opFree, reqName(r)
	if m.scope.Mode == Pull && q.owner != ownerComputing {
		op, holder = opFreeHeld, handoffName(r)
	}
	m.stepBlock(n, r, op)
	if !m.facts(n.block[q.block-1]).leased {
		n.content[q.block-1] = 0
	}
	m.record(owner, r, spec.Event{K: spec.KindFree, Holder: holder, Why: why, By: said(by != noWord)})
}

// noWord says that a decision rests on no message.
const noWord = -1

// said marks an event whose cause is the message that its thread observed last.
func said(yes bool) string {
	if yes {
		return lastObserved
	}
	return ""
}

// owns reports whether the present lease of the block of r is that of r.
func (m *model) owns(n *state, r int) bool {
	q := &n.req[r]
	return q.block != 0 && m.blockOf(n, r).lease == q.lease
}

// fence turns away, from here on, every access under the handoff of r.
func (m *model) fence(n *state, r int) {
	m.stepBlock(n, r, opFence)
	n.req[r].set(wordIn)
	m.record(owner, r, spec.Event{K: spec.KindFence, Why: "timeout"})
}

// emit sends a message, after a claim that is held against what its sender does.
func (m *model) emit(n *state, r int, k message) {
	q := &n.req[r]
	if !k.toAccessor() {
		if m.accessOpen(n, r) {
			m.breaks(spec.SIG1)
		}
		if k != msgDone {
			q.set(saidDrained)
		}
	}
	if to := receiver(k); !n.down[to] && q.flying(k) < 3 {
		q.add(k, 1)
	}
	m.recordMessage(spec.KindEmit, r, k)
}

func receiver(k message) side {
	if k.toAccessor() {
		return accessor
	}
	return owner
}

// observe takes a message in.
func (m *model) observe(n *state, r int, k message) {
	n.req[r].add(k, -1)
	m.recordMessage(spec.KindObserve, r, k)
}

// begin posts the accessor's access.
func (m *model) begin(n *state, r int) {
	q := &n.req[r]
	if q.has(saidDrained) {
		m.breaks(spec.SIG1)
	}
	if !q.has(gotGrant) && !m.fenced(n, r) {
		m.breaks(spec.SIG2)
	}
	if m.fenced(n, r) {
		q.set(beganFenced)
	}
	m.stepRequest(n, r, accessor, reqBegin)
	m.stepBlock(n, r, opBegin)
	q.accessor = accessorAccessing
	m.record(accessor, r, spec.Event{K: spec.KindBegin})
}

// beginOwn posts an access of the owner to its own block.
func (m *model) beginOwn(n *state, r int) {
	m.stepRequest(n, r, owner, reqBegin)
	m.stepBlock(n, r, opBeginOwn)
	m.record(owner, r, spec.Event{K: spec.KindBegin})
}

func (m *model) endOwn(n *state, r int) {
	m.stepBlock(n, r, opEndOwn)
	m.record(owner, r, spec.Event{K: spec.KindEnd, OK: yes(true)})
}

// source records what the writer of the state wrote, target what its reader got.
func (m *model) source(n *state, r int, at side) {
	n.req[r].set(hasSource)
	m.judgeContent(n, r)
	m.record(at, r, spec.Event{K: spec.KindDigest, Side: "source", Sum: contentName(uint8(r + 1))})
}

func (m *model) target(n *state, r int, at side, good bool) {
	q := &n.req[r]
	got := n.content[q.block-1]
	switch {
	case !good || got != uint8(r+1):
		q.read = readWrong
	case q.read == notRead:
		q.read = readRight
	}
	m.judgeContent(n, r)
	if !good {
		got = 0
	}
	m.record(at, r, spec.Event{K: spec.KindDigest, Side: "target", Sum: contentName(got)})
}

func (m *model) judgeContent(n *state, r int) {
	if q := &n.req[r]; q.has(hasSource) && q.read == readWrong {
		m.breaks(spec.DAT1)
	}
}

// admit is the decision of a stage to take a request.
func (m *model) admit(n *state, r int, at side, code int) {
	m.stepRequest(n, r, at, code)
	m.record(at, r, spec.Event{K: spec.KindAdmit})
}

func (m *model) offer(n *state, r int, at side) {
	m.stepRequest(n, r, at, reqOffer)
	m.record(at, r, spec.Event{K: spec.KindOffer})
}

// accept takes the state of r for valid, on the word of request by.
func (m *model) accept(n *state, r int, at side, by int) {
	if by != noWord && by != r {
		m.breaks(spec.SIG3)
	}
	m.stepRequest(n, r, at, reqAccept)
	m.record(at, r, spec.Event{K: spec.KindAccept, By: said(by != noWord)})
}

func (m *model) output(n *state, r int, at side) {
	m.stepRequest(n, r, at, reqOutput)
	m.record(at, r, spec.Event{K: spec.KindOutput, N: 1})
}

// cancel is that a stage takes a cancellation in.
func (m *model) cancel(n *state, r int, at side) {
	n.req[r].set(wasEnded)
	m.stepRequest(n, r, at, reqCancel)
	m.record(at, r, spec.Event{K: spec.KindCancel})
}

// reject is terminal at every stage.
func (m *model) reject(n *state, r int, at side) {
	n.req[r].set(wasEnded)
	m.stepRequest(n, r, at, reqReject)
	for other := range client + 1 {
		if other != at {
			m.stepRequest(n, r, other, reqRejectedElsewhere)
		}
	}
	m.judgeTold(n, r)
	m.record(at, r, spec.Event{K: spec.KindReject, Status: 400, Why: "capacity"})
}

// expire ends a request, or only its handoff, by a clock.
func (m *model) expire(n *state, r int, at side, handoffOnly bool) {
	n.req[r].set(wasEnded)
	if !handoffOnly {
		m.stepRequest(n, r, at, reqExpire)
		m.stepRequest(n, r, client, reqExpiredElsewhere)
		m.judgeTold(n, r)
	}
	m.record(at, r, spec.Event{K: spec.KindExpire, Why: "no word from the peer"})
}

// finish is the outcome of a stage, and its answer to the client.
func (m *model) finish(n *state, r int, at side, a answer) {
	q := &n.req[r]
	m.stepRequest(n, r, at, reqFinish+int(a-answerOK))
	if a != answerOK {
		m.stepRequest(n, r, client, reqCutElsewhere)
		m.judgeTold(n, r)
	}
	if q.ans[at] == noAnswer {
		q.ans[at] = a
	}
	if at == owner {
		q.set(finishedOwner)
	}
	m.record(at, r, spec.Event{K: spec.KindFinish, Result: outcomes[a]})
}

var outcomes = map[answer]spec.Outcome{
	answerOK: spec.OutcomeOK, answerError: spec.OutcomeError, answerRejected: spec.OutcomeRejected, answerCancelled: spec.OutcomeCancelled,
}

// judgeTold holds that a stage's bad end does not follow the client's success.
func (m *model) judgeTold(n *state, r int) {
	if n.req[r].told == answerOK {
		m.breaks(spec.REQ4)
	}
}

func yes(v bool) *bool { return &v }

func contentName(c uint8) string {
	if c == 0 {
		return "sum-of-nothing"
	}
	return "sum-of-" + reqName(int(c-1))
}
