package check

import (
	"fmt"

	"conform/spec"
)

// byRequest files the events of some kinds under the requests that they are for:
// the one that they name, else those linked to the handoff that they name.
func (c *court) byRequest(kinds ...spec.Kind) map[int32][]int32 {
	m := map[int32][]int32{}
	for _, k := range kinds {
		for _, e := range c.h.byKind[k] {
			for _, r := range c.h.names.requests(c.h.named(e)) {
				m[r] = append(m[r], e)
			}
		}
	}
	return m
}

// terminalRejection judges REQ-1: after a reject by any stage, later in every
// legal order, an accept, a new begin for it, or an output fails.
func (c *court) terminalRejection() {
	work := c.byRequest(spec.KindAccept, spec.KindBegin, spec.KindOutput)
	done := map[int32]bool{}
	for _, r := range c.h.byKind[spec.KindReject] {
		c.judged(spec.REQ1, 1)
		_, req := c.h.named(r)
		for _, e := range work[req] {
			if done[e] || !c.legal.surelyBefore(r, e) {
				continue
			}
			done[e] = true
			c.find(Finding{
				Rule: spec.REQ1, Verdict: spec.Fail, Handoff: c.h.ev[e].Handoff, Req: c.h.ev[r].Req, Events: c.ids(r, e),
				Text: fmt.Sprintf("request %s was rejected by %s at %s; later in every legal order %s %s for it, at %s",
					c.h.ev[r].Req, c.h.workerName(r), c.say(r), c.h.workerName(e), worked(c.h.ev[e].K), c.say(e)),
			})
		}
		if c.ctx.Err() != nil {
			return
		}
	}
}

// worked says what an event does for a request.
func worked(k spec.Kind) string {
	switch k {
	case spec.KindAccept:
		return "accepted a handoff"
	case spec.KindBegin:
		return "began an access"
	}
	return "emitted output"
}

// stopped judges REQ-3: after a worker took a cancellation in, it begins no new
// access for that request. Where program order and signals lead from the cancel to
// the begin, it knew; where it is only later in every legal order, nothing stopped
// it.
func (c *court) stopped() {
	begins := c.byRequest(spec.KindBegin)
	type stop struct{ worker, req int32 }
	cancels := map[stop][]int32{}
	var order []stop
	for _, e := range c.h.byKind[spec.KindCancel] {
		for _, req := range c.h.names.requests(c.h.named(e)) {
			c.judged(spec.REQ3, 1)
			key := stop{c.h.workerOf(e), req}
			if cancels[key] == nil {
				order = append(order, key)
			}
			cancels[key] = append(cancels[key], e)
		}
	}
	for _, key := range order {
		for _, b := range begins[key.req] {
			if c.h.workerOf(b) == key.worker {
				c.judgeStop(key.req, cancels[key], b)
			}
		}
		if c.ctx.Err() != nil {
			return
		}
	}
}

// judgeStop judges one begin against the cancels of its request by its worker.
func (c *court) judgeStop(req int32, cancels []int32, begin int32) {
	say := func(v spec.Verdict, cancel int32, why string) {
		e := &c.h.ev[begin]
		c.find(Finding{
			Rule: spec.REQ3, Verdict: v, Handoff: e.Handoff, Req: c.h.names.text[req], Events: c.ids(cancel, begin),
			Text: fmt.Sprintf("%s took in the cancellation of request %s at %s and began access %s for it at %s: %s",
				c.h.workerName(begin), c.h.names.text[req], c.say(cancel), e.Access, c.say(begin), why),
		})
	}
	for _, k := range cancels {
		if c.legal.leads(k, begin) {
			say(spec.Fail, k, "program order and signals lead from the one to the other, so it knew")
			return
		}
	}
	for _, k := range cancels {
		if c.legal.surelyBefore(k, begin) {
			say(spec.Unproven, k, "it is later in every legal order, and nothing stopped it")
			return
		}
	}
}

// oneOutcome judges REQ-4.
func (c *court) oneOutcome() {
	first := map[[2]int32]int32{} // (worker, request)
	for _, e := range c.h.byKind[spec.KindFinish] {
		c.judged(spec.REQ4, 1)
		_, req := c.h.named(e)
		key := [2]int32{c.h.workerOf(e), req}
		f, twice := first[key]
		if !twice {
			first[key] = e
			continue
		}
		c.find(Finding{
			Rule: spec.REQ4, Verdict: spec.Fail, Req: c.h.ev[e].Req, Events: c.ids(f, e),
			Text: fmt.Sprintf("request %s finished twice at worker %s: %s at %s, and %s at %s", c.h.ev[e].Req, c.h.workerName(e),
				c.h.ev[f].Result, c.say(f), c.h.ev[e].Result, c.say(e)),
		})
	}
	failed := c.failedRequests()
	for _, e := range c.h.byKind[spec.KindFinish] {
		ev := &c.h.ev[e]
		_, req := c.h.named(e)
		why, bad := failed[req]
		if !bad || !c.h.isClient(c.h.workerOf(e)) || !saysGood(ev) {
			continue
		}
		told := string(ev.Result)
		if ev.Status != 0 {
			told += fmt.Sprintf(", status %d", ev.Status)
		}
		c.find(Finding{
			Rule: spec.REQ4, Verdict: spec.Fail, Req: ev.Req, Events: c.ids(why, e),
			Text: fmt.Sprintf("the client was told %s for request %s at %s, but worker %s had it %s at %s", told, ev.Req, c.say(e),
				c.h.workerName(why), c.ended(why), c.say(why)),
		})
	}
}

// saysGood reports whether a client's finish tells of success.
func saysGood(e *spec.Event) bool {
	return e.Result == spec.OutcomeOK || e.Result == spec.OutcomeLength || e.Status >= 200 && e.Status <= 299
}

func (c *court) ended(e int32) string {
	switch ev := &c.h.ev[e]; ev.K {
	case spec.KindReject:
		return "rejected"
	case spec.KindExpire:
		return "expired"
	default:
		return "finished as " + string(ev.Result)
	}
}

// failedRequests finds, for each request that some stage rejected, expired by
// name, or finished as error, rejected or cancelled, the event that says so.
func (c *court) failedRequests() map[int32]int32 {
	m := map[int32]int32{}
	for _, k := range []spec.Kind{spec.KindReject, spec.KindExpire, spec.KindFinish} {
		for _, e := range c.h.byKind[k] {
			if c.h.isClient(c.h.workerOf(e)) {
				continue
			}
			if k == spec.KindFinish {
				switch c.h.ev[e].Result {
				case spec.OutcomeError, spec.OutcomeRejected, spec.OutcomeCancelled:
				default:
					continue
				}
			}
			if _, req := c.h.named(e); req != none {
				if _, known := m[req]; !known {
					m[req] = e
				}
			}
		}
	}
	return m
}

// capacity judges REQ-5: an admit whose need exceeds the latest earlier capacity
// of the same source and unit fails. Need and unit come from the admit, or both
// from the submit where it gives no need.
func (c *court) capacity() {
	submits := c.byRequest(spec.KindSubmit)
	type unitOf struct {
		src  int32
		unit string
	}
	limits := map[unitOf]int32{}
	for i := range c.h.ev {
		e := &c.h.ev[i]
		src := c.h.srcOf[i]
		switch e.K {
		case spec.KindCapacity:
			limits[unitOf{src, e.Unit}] = int32(i)
		case spec.KindAdmit:
			need, unit := e.Need, e.Unit
			_, req := c.h.named(int32(i))
			if s := submits[req]; need == nil && len(s) > 0 {
				need, unit = c.h.ev[s[0]].Need, c.h.ev[s[0]].Unit
			}
			at, known := limits[unitOf{src, unit}]
			if need == nil || unit == "" || !known {
				continue
			}
			c.judged(spec.REQ5, 1)
			if *need > c.h.ev[at].Limit {
				c.overCapacity(at, int32(i), *need, unit)
			}
		}
	}
}

// overCapacity reports an admit above the capacity that was recorded last. A loss
// between the two may have been a later capacity.
func (c *court) overCapacity(at, admit int32, need int64, unit string) {
	f := Finding{
		Rule: spec.REQ5, Verdict: spec.Fail, Req: c.h.ev[admit].Req, Events: c.ids(at, admit),
		Text: fmt.Sprintf("worker %s admitted request %s, which needs %d %s, at %s; what it can process is %d %s, by %s",
			c.h.workerName(admit), c.h.ev[admit].Req, need, unit, c.say(admit), c.h.ev[at].Limit, unit, c.say(at)),
	}
	if c.h.epochOf[at] != c.h.epochOf[admit] {
		f.Verdict = spec.Inconclusive
		f.Text += "; events of this source are missing in between, which may say otherwise"
	}
	c.find(f)
}
