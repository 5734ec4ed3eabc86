package explore

import "conform/spec"

// successors yields every step that can be taken from s: first what is under
// way, then the clocks, then the client's change of mind, then the faults. A run
// that always takes the first one therefore ends, and ends well.
func (m *model) successors(s *state, yield func(label string, kind stepKind, n *state)) {
	m.yield = yield
	for r := range m.scope.Requests {
		m.clientSteps(s, r)
		m.deliveries(s, r)
		m.ownerSteps(s, r)
		m.accessorSteps(s, r)
	}
	for r := range m.scope.Requests {
		m.timeouts(s, r)
	}
	for r := range m.scope.Requests {
		m.clientCancel(s, r)
	}
	m.faults(s)
}

func (m *model) clientSteps(s *state, r int) {
	q := &s.req[r]
	if q.need == 0 {
		m.take(s, "submit", advance, func(n *state) { m.submit(n, r, 1) })
		m.take(s, "submit a large one", impatient, func(n *state) { m.submit(n, r, 2) })
		return
	}
	if q.told != noAnswer {
		return
	}
	o, a := q.ans[owner], q.ans[accessor]
	var tell answer
	switch {
	case o == answerOK && a == answerOK:
		tell = answerOK
	case m.off == everyStage && (o == answerOK || a == answerOK):
		tell = answerOK
	case o == noAnswer, a == noAnswer && (o == answerOK || m.scope.Mode == Push):
		return
	default:
		tell = max(o, a)
	}
	m.take(s, "tell the client", advance, func(n *state) { m.tell(n, r, tell) })
}

func (m *model) submit(n *state, r int, need uint8) {
	q := &n.req[r]
	q.need = need
	m.record(client, r, spec.Event{K: spec.KindSubmit, Need: number(int64(need))})
	m.stepRequest(n, r, client, reqSubmit)
	for at := range accessor + 1 {
		m.stepRequest(n, r, at, reqSubmit)
		if n.down[at] {
			q.ans[at] = answerError
		}
	}
	if !n.down[owner] {
		q.set(submitOwner)
	}
	if !n.down[accessor] && m.scope.Mode == Push {
		q.set(submitAccessor)
	}
}

// tell is the client's answer.
func (m *model) tell(n *state, r int, a answer) {
	q := &n.req[r]
	q.told = a
	m.stepRequest(n, r, client, reqTold+int(a-answerOK))
	if a == answerOK && (bad(q.ans[owner]) || bad(q.ans[accessor])) {
		m.breaks(spec.REQ4)
	}
	m.record(client, r, spec.Event{K: spec.KindFinish, Result: outcomes[a], Status: requestOps[reqTold+int(a-answerOK)].Status})
	if a == answerOK && q.read != notRead {
		sum := contentName(uint8(r + 1))
		e := spec.Event{K: spec.KindAnswer, Sum: sum, Expect: sum, HasExp: true}
		if q.read == readWrong {
			m.breaks(spec.DAT2)
			e.Sum = "sum-of-other-tokens"
		}
		m.record(client, r, e)
	}
}

func bad(a answer) bool { return a > answerOK }

func number(n int64) *int64 { return &n }

// clientCancel is that the client hangs up.
func (m *model) clientCancel(s *state, r int) {
	q := &s.req[r]
	if q.need == 0 || q.told != noAnswer || q.has(cancelAsked) {
		return
	}
	m.take(s, "the client cancels", impatient, func(n *state) {
		q := &n.req[r]
		q.set(cancelAsked)
		if q.ans[owner] == noAnswer && !n.down[owner] {
			q.set(cancelOwner)
		}
		if q.ans[accessor] == noAnswer && !n.down[accessor] {
			q.set(cancelAccessor)
		}
		m.record(client, r, spec.Event{K: spec.KindNote, Text: "the client of " + reqName(r) + " hangs up"})
	})
}

// deliveries are the messages between the stages that can arrive now.
func (m *model) deliveries(s *state, r int) {
	q := &s.req[r]
	for k := range messages {
		if q.flying(k) == 0 {
			continue
		}
		if k.toAccessor() {
			m.take(s, "deliver "+signalName(m.scope.Mode, k), advance, func(n *state) {
				m.observe(n, r, k)
				m.accessorHears(n, r, k)
			})
			continue
		}
		m.take(s, "deliver "+signalName(m.scope.Mode, k), advance, func(n *state) {
			m.observe(n, r, k)
			m.ownerHears(n, r, k)
		})
	}
}

// hearing is the request to which the owner takes a word: the one that it is
// for, or, without exact-handoff, whichever uses the raw key now.
func (m *model) hearing(n *state, r int) int {
	if m.off == exactHandoff && m.scope.Requests > 1 && n.req[r].owner == ownerDone {
		if other := 1 - r; n.req[other].owner == ownerGranted || n.req[other].owner == ownerAborting {
			return other
		}
	}
	return r
}

// ownerHears is what the owner does on a word of the accessor.
func (m *model) ownerHears(n *state, word int, k message) {
	r := m.hearing(n, word)
	q := &n.req[r]
	if r == word && k != msgHollow && !m.accessOpen(n, r) {
		q.set(wordIn)
	}
	if r == word && (k == msgAck || k == msgHollow) {
		q.clear(askedAck) // however late: it has been answered
	}
	switch {
	case q.owner == ownerDone || q.owner == ownerNew:
		m.ownerHearsLate(n, r, k)
	case m.scope.Mode == Push:
		m.pushOwnerHears(n, r, word, k)
	case q.owner == ownerGranted || q.has(earlyGrant):
		m.pullOwnerHears(n, r, word, k)
	}
}

// ownerHearsLate is a word that finds its request over, or not begun: it changes
// nothing, if the guards are there.
func (m *model) ownerHearsLate(n *state, r int, k message) {
	q := &n.req[r]
	if m.off == releaseOnce && q.owner == ownerDone && q.block != 0 {
		m.free(n, r, "done", r)
	}
	if m.scope.Mode == Push && q.owner == ownerNew && k != msgDone { // refused before it was reserved for
		a := answerError
		if k == msgRefused {
			a = answerRejected
		}
		m.ownerEnds(n, r, a)
		return
	}
	if m.off == finishOnce && q.owner == ownerDone && k == msgDone {
		m.finish(n, r, owner, answerOK)
	}
}

func (m *model) ownerSteps(s *state, r int) {
	q := &s.req[r]
	if s.down[owner] {
		return
	}
	if q.has(submitOwner) {
		if q.owner != ownerNew {
			m.take(s, "a submission that was cancelled arrives", advance, func(n *state) { n.req[r].clear(submitOwner) })
		} else {
			m.allocations(s, r)
		}
	}
	if m.scope.Mode == Push {
		m.pushOwnerSteps(s, r)
	} else {
		m.pullOwnerSteps(s, r)
	}
	if q.has(cancelOwner) {
		m.take(s, "the owner takes the cancellation in", advance, func(n *state) {
			n.req[r].clear(cancelOwner)
			m.ownerCancel(n, r)
		})
	}
}

// allocations are the ways for the owner to reserve a block for a request.
func (m *model) allocations(s *state, r int) {
	for b := range m.scope.Blocks {
		if m.facts(s.block[b]).leased && m.off != freeOnly {
			continue
		}
		m.take(s, "the owner admits and reserves", advance, func(n *state) {
			n.req[r].clear(submitOwner)
			m.admit(n, r, owner, reqAdmit)
			m.alloc(n, r, b)
			if m.scope.Mode == Push {
				m.grant(n, r)
				m.emit(n, r, msgGrant)
				n.req[r].owner = ownerGranted
				return
			}
			m.beginOwn(n, r)
			n.req[r].owner = ownerComputing
		})
	}
}

// ownerCancel is what the owner does when it takes a cancellation in.
func (m *model) ownerCancel(n *state, r int) {
	q := &n.req[r]
	switch q.owner {
	case ownerNew:
		m.cancel(n, r, owner)
		m.ownerEnds(n, r, answerCancelled)
	case ownerComputing, ownerRunning:
		m.cancel(n, r, owner)
		if m.off != ownAccessFirst {
			m.endOwn(n, r)
		}
		m.free(n, r, "cancel", noWord)
		if m.off == ownAccessFirst {
			m.endOwn(n, r)
		}
		m.ownerEnds(n, r, answerCancelled)
	case ownerGranted:
		if m.off == waitDrained {
			m.cancel(n, r, owner)
			m.free(n, r, "cancel", noWord)
			m.ownerEnds(n, r, answerCancelled)
		} else if m.scope.Mode == Push {
			m.cancel(n, r, owner)
			m.emit(n, r, msgAbort)
			q.set(askedAck)
			q.owner = ownerAborting
		}
	}
}

// ownerEnds closes a request at the owner: its outcome, once.
func (m *model) ownerEnds(n *state, r int, a answer) {
	q := &n.req[r]
	q.owner = ownerDone
	if !q.has(finishedOwner) {
		m.finish(n, r, owner, a)
	}
}

// accessorSteps are what the accessor does by itself.
func (m *model) accessorSteps(s *state, r int) {
	q := &s.req[r]
	if s.down[accessor] {
		return
	}
	if q.has(submitAccessor) {
		m.take(s, "the accessor takes the submission in", advance, func(n *state) {
			n.req[r].clear(submitAccessor)
			if n.req[r].accessor == accessorNew {
				m.accessorAdmits(n, r)
			}
		})
	}
	if q.accessor == accessorReady && (q.has(gotGrant) || m.off == awaitGrant && q.block != 0) {
		m.take(s, "the accessor begins", advance, func(n *state) { m.begin(n, r) })
	}
	if q.accessor == accessorAccessing {
		m.take(s, "the access ends", advance, func(n *state) {
			if m.scope.Mode == Push {
				m.writeEnds(n, r)
			} else {
				m.readEnds(n, r)
			}
		})
	}
	if q.accessor == accessorRunning {
		m.take(s, "the accessor finishes", advance, func(n *state) {
			m.output(n, r, accessor)
			m.accessorEnds(n, r, answerOK)
		})
	}
	if q.has(cancelAccessor) {
		m.take(s, "the accessor takes the cancellation in", advance, func(n *state) {
			n.req[r].clear(cancelAccessor)
			m.accessorCancel(n, r)
		})
	}
}

// accessorAdmits is the accessor's decision on a request.
func (m *model) accessorAdmits(n *state, r int) {
	q := &n.req[r]
	switch {
	case q.need == 1:
		m.admit(n, r, accessor, reqAdmit)
	case m.off == withinCapacity:
		m.admit(n, r, accessor, reqAdmitOver)
	default:
		m.reject(n, r, accessor)
		if m.off != rejectTerminal {
			m.emit(n, r, msgRefused)
			m.accessorEnds(n, r, answerRejected)
			return
		}
		m.finish(n, r, accessor, answerRejected)
	}
	q.accessor = accessorReady
	if m.scope.Mode == Push {
		m.offer(n, r, accessor)
	}
}

// accessorCancel is what the accessor does when it takes a client's
// cancellation in. One that comes before the grant leaves a tombstone.
func (m *model) accessorCancel(n *state, r int) {
	q := &n.req[r]
	if q.accessor == accessorDone {
		return
	}
	if !q.has(stopped) {
		m.cancel(n, r, accessor)
	}
	switch {
	case q.accessor == accessorAccessing:
		q.set(stopped)
	case q.accessor == accessorRunning:
		m.accessorEnds(n, r, answerCancelled)
	case m.off == stopOnCancel:
		// it goes on as if it had not been asked
	default:
		q.set(stopped)
		m.emit(n, r, msgFail)
		m.accessorEnds(n, r, answerCancelled)
	}
}

func (m *model) accessorEnds(n *state, r int, a answer) {
	q := &n.req[r]
	q.accessor = accessorDone
	if q.ans[accessor] == noAnswer {
		m.finish(n, r, accessor, a)
	}
}

// timeouts are the owner's clock. Time is no evidence, so it may run out at any
// moment; what makes the release safe is the fence.
func (m *model) timeouts(s *state, r int) {
	q := &s.req[r]
	if s.down[owner] || m.off == timeoutExists || q.owner != ownerGranted && q.owner != ownerAborting {
		return
	}
	m.take(s, "the owner's clock runs out", impatient, func(n *state) {
		q := &n.req[r]
		a := answerError
		if q.owner == ownerAborting {
			a = answerCancelled
		}
		if q.owner != ownerAborting || m.off != reportAbsence {
			m.expire(n, r, owner, m.scope.Mode == Pull)
			q.clear(askedAck)
		}
		if m.off != fenceFirst {
			m.fence(n, r)
		}
		m.free(n, r, "timeout", noWord)
		m.ownerEnds(n, r, a)
	})
}

// faults are what the network and the machines do.
func (m *model) faults(s *state) {
	for r := range m.scope.Requests {
		for k := range messages {
			if s.req[r].flying(k) == 0 {
				continue
			}
			if m.scope.Loss {
				m.take(s, "lose "+signalName(m.scope.Mode, k), fault, func(n *state) {
					n.req[r].add(k, -1)
					m.recordFault(r, k, "drop")
				})
			}
			if s.doubles > 0 && s.req[r].flying(k) < 3 {
				m.take(s, "duplicate "+signalName(m.scope.Mode, k), fault, func(n *state) {
					n.doubles--
					n.req[r].add(k, 1)
					m.recordFault(r, k, "duplicate")
				})
			}
		}
	}
	if s.crashes == 0 {
		return
	}
	for at := range accessor + 1 {
		m.take(s, "a worker crashes", fault, func(n *state) { m.crash(n, at) })
	}
}

// crash ends a worker. Its connections break, and its clients know; what it had
// posted may still land, and its peers are told nothing.
func (m *model) crash(n *state, at side) {
	n.crashes--
	n.down[at] = true
	m.record(harness, 0, spec.Event{K: spec.KindExit, Worker: m.worker(at)})
	for r := range m.scope.Requests {
		if q := &n.req[r]; q.need != 0 && q.ans[at] == noAnswer {
			q.ans[at] = answerError
		}
	}
}

// quiescent judges a state from which no step but a fault leads on: whatever is
// still open now, nobody will ever close.
func (m *model) quiescent(s *state) (broken ruleSet, stuck bool) {
	m.broken = 0
	for r := range m.scope.Requests {
		q := &s.req[r]
		stuck = stuck || q.told == noAnswer
		if s.down[owner] {
			continue
		}
		if q.has(askedAck) {
			m.breaks(spec.SIG4)
		}
		if q.block == 0 || !m.owns(s, r) || !m.blockOf(s, r).leased {
			continue
		}
		if q.has(wasEnded) {
			m.breaks(spec.REQ2)
		}
		if q.has(finishedOwner) || q.told != noAnswer {
			m.breaks(spec.BLK5)
		}
	}
	return m.broken, stuck
}
