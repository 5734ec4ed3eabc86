package explore

import "conform/spec"

// In push, decode is the owner. It reserves a block, grants it (METADATA), and
// waits; prefill writes it and says STATUS/Success. A cancellation asks prefill
// with ABORT, and the block waits for ABORT_ACK, which means drained.

func (m *model) pushOwnerHears(n *state, r, word int, k message) {
	q := &n.req[r]
	switch {
	case q.owner == ownerGranted && k == msgDone:
		m.startRunning(n, r, word)
	case q.owner == ownerGranted && (k == msgFail || k == msgRefused):
		why, a := "cancel", answerError
		if k == msgRefused {
			why, a = "reject", answerRejected
		}
		if m.off != releaseAtRefusal {
			m.free(n, r, why, word)
		}
		m.ownerEnds(n, r, a)
	case q.owner == ownerAborting && (k == msgAck || k == msgHollow):
		m.free(n, r, "cancel", word)
		m.ownerEnds(n, r, answerCancelled)
	}
}

// startRunning accepts the state and begins to read it.
func (m *model) startRunning(n *state, r, word int) {
	m.accept(n, r, owner, word)
	m.beginOwn(n, r)
	m.target(n, r, owner, true)
	n.req[r].owner = ownerRunning
}

func (m *model) pushOwnerSteps(s *state, r int) {
	q := &s.req[r]
	if m.off == completeFirst && q.owner == ownerGranted {
		m.take(s, "the owner accepts what was not yet written", advance, func(n *state) { m.startRunning(n, r, noWord) })
	}
	if q.owner != ownerRunning {
		return
	}
	m.take(s, "the owner finishes", advance, func(n *state) {
		m.target(n, r, owner, true)
		m.endOwn(n, r)
		m.output(n, r, owner)
		if m.off != releaseAtEnd {
			m.free(n, r, "done", noWord)
		}
		m.ownerEnds(n, r, answerOK)
	})
}

// accessorHears is what the accessor does on a message of the owner.
func (m *model) accessorHears(n *state, r int, k message) {
	q := &n.req[r]
	switch {
	case k == msgAbort:
		m.hearAbort(n, r)
	case m.scope.Mode == Pull && q.accessor == accessorNew:
		q.set(gotGrant)
		m.accessorAdmits(n, r)
	case q.accessor < accessorAccessing:
		q.set(gotGrant)
	case m.off == grantOnce && q.accessor == accessorDone && q.ans[accessor] == answerOK && q.block != 0:
		q.set(gotGrant)
		q.accessor = accessorReady
	}
}

// hearAbort answers an ABORT: at once, or when the write has ended.
func (m *model) hearAbort(n *state, r int) {
	q := &n.req[r]
	if q.accessor != accessorDone && !q.has(stopped) {
		m.cancel(n, r, accessor)
	}
	switch {
	case q.accessor == accessorAccessing && m.off == ackDrained:
		q.set(stopped)
		m.emit(n, r, msgHollow)
	case q.accessor == accessorAccessing:
		q.set(stopped | ackOwed)
	case q.accessor == accessorDone || m.off == stopOnCancel:
		m.emit(n, r, msgAck)
	default:
		q.set(stopped)
		m.emit(n, r, msgAck)
		m.accessorEnds(n, r, answerCancelled)
	}
}

// writeEnds is that prefill knows that its write is over.
func (m *model) writeEnds(n *state, r int) {
	q := &n.req[r]
	ok := m.accessOpen(n, r) && !n.down[owner]
	if ok {
		n.content[q.block-1] = uint8(r + 1)
	}
	if m.off == failedRefused && !ok && q.has(beganFenced) {
		m.breaks(spec.SIG1)
		ok = true
	}
	m.endAccess(n, r, ok)
	switch {
	case q.has(ackOwed):
		q.clear(ackOwed)
		m.emit(n, r, msgAck)
		m.accessorEnds(n, r, answerCancelled)
	case q.has(stopped):
		m.emit(n, r, msgFail)
		m.accessorEnds(n, r, answerCancelled)
	case ok:
		m.source(n, r, accessor)
		m.emit(n, r, msgDone)
		m.accessorEnds(n, r, answerOK)
	default:
		m.emit(n, r, msgFail)
		m.accessorEnds(n, r, answerError)
	}
}
