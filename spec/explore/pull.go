package explore

import "conform/spec"

// In pull, prefill is the owner. It computes into a block, keeps it under a lease
// that the handoff holds, and grants it (KV_PARAMS); decode reads it and says
// READ_DONE, or READ_ABORT if it won't read any more. Prefill's own answer is out
// by then; its lease ends by decode's word or by the clock and a fence.

func (m *model) pullOwnerHears(n *state, r, word int, k message) {
	q := &n.req[r]
	why := "done"
	if k != msgDone {
		why = "cancel"
		if k == msgRefused {
			why = "reject"
		}
	}
	keep := m.off == releaseAtEnd && k == msgDone || m.off == releaseAtRefusal && k != msgDone
	if q.owner == ownerComputing { // without complete-first: its own write is still running
		return
	}
	if !keep {
		m.free(n, r, why, word)
	}
	m.ownerEnds(n, r, answerOK)
}

func (m *model) pullOwnerSteps(s *state, r int) {
	q := &s.req[r]
	if q.owner != ownerComputing {
		return
	}
	m.take(s, "the owner has computed", advance, func(n *state) {
		q := &n.req[r]
		n.content[q.block-1] = uint8(r + 1)
		m.endOwn(n, r)
		m.source(n, r, owner)
		m.stepBlock(n, r, opHold)
		m.record(owner, r, spec.Event{K: spec.KindHold, Holder: handoffName(r)})
		m.stepBlock(n, r, opDrop)
		m.record(owner, r, spec.Event{K: spec.KindDrop, Holder: reqName(r)})
		if !q.has(earlyGrant) {
			m.expose(n, r)
		}
		q.owner = ownerGranted
		m.finish(n, r, owner, answerOK)
	})
	if m.off == completeFirst && !q.has(earlyGrant) {
		m.take(s, "the owner grants what it has not yet computed", advance, func(n *state) {
			n.req[r].set(earlyGrant)
			m.expose(n, r)
		})
	}
}

// expose grants the block and tells decode.
func (m *model) expose(n *state, r int) {
	m.grant(n, r)
	m.offer(n, r, owner)
	m.emit(n, r, msgGrant)
}

// readEnds is that decode knows that its read is over.
func (m *model) readEnds(n *state, r int) {
	q := &n.req[r]
	ok := m.accessOpen(n, r) && !n.down[owner]
	good := ok
	if m.off == failedRefused {
		good = true
	}
	m.endAccess(n, r, ok)
	switch {
	case q.has(stopped):
		m.emit(n, r, msgFail)
		m.accessorEnds(n, r, answerCancelled)
	case good && q.ans[accessor] == noAnswer:
		m.target(n, r, accessor, ok)
		m.accept(n, r, accessor, noWord)
		m.emit(n, r, msgDone)
		q.accessor = accessorRunning
	case good: // it had answered before: rejected, or done
		m.emit(n, r, msgDone)
		m.accessorEnds(n, r, answerOK)
	default:
		m.emit(n, r, msgFail)
		m.accessorEnds(n, r, answerError)
	}
}

// endAccess records the end of the accessor's access.
func (m *model) endAccess(n *state, r int, ok bool) {
	m.stepBlock(n, r, opEnd)
	n.req[r].clear(beganFenced)
	m.record(accessor, r, spec.Event{K: spec.KindEnd, OK: yes(ok)})
}
