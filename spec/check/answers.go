package check

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"conform/spec"
)

// answerKey files what may settle a signal that asks for an answer: under the
// worker that asked, and each name that it names itself.
type answerKey struct{ worker, name int32 }

// answered judges SIG-4: each signal that asks for an answer gets one, or its
// worker reports that none came.
func (c *court) answered() {
	asks := slices.DeleteFunc(slices.Clone(c.h.emits), func(e int32) bool { return c.h.ev[e].Asks == "" })
	if len(asks) == 0 {
		return
	}
	answers, reports := c.settling()
	idles := c.idlesByWorker()
	for n, e := range asks {
		if n%64 == 0 && c.ctx.Err() != nil {
			return
		}
		c.judged(spec.SIG4, 1)
		c.judgeAsk(e, append(c.answersTo(e, answers), c.under(e, reports)...), idles[c.h.workerOf(e)])
	}
}

// settling files the signals that workers observed, and the expires and failed
// finishes by which they report, in an order that is legal.
func (c *court) settling() (answers, reports map[answerKey][]int32) {
	answers, reports = map[answerKey][]int32{}, map[answerKey][]int32{}
	file := func(m map[answerKey][]int32, e int32, names ...int32) {
		for _, n := range names {
			if n != none {
				k := answerKey{c.h.workerOf(e), n}
				m[k] = append(m[k], e)
			}
		}
	}
	for _, e := range c.h.byKind[spec.KindObserve] {
		handoff, req := c.h.named(e)
		if s := c.h.emitOf[e]; s != none && (c.h.ev[s].Handoff != "" || c.h.ev[s].Req != "") {
			handoff, req = c.h.named(s)
		}
		file(answers, e, handoff, req)
	}
	for _, e := range c.h.byKind[spec.KindExpire] {
		handoff, req := c.h.named(e)
		file(reports, e, handoff, req)
	}
	for _, e := range c.h.byKind[spec.KindFinish] {
		if c.h.ev[e].Result == spec.OutcomeError {
			handoff, req := c.h.named(e)
			file(reports, e, handoff, req)
		}
	}
	for _, m := range []map[answerKey][]int32{answers, reports} {
		for _, list := range m {
			slices.SortFunc(list, c.byRank)
		}
	}
	return answers, reports
}

// byRank compares events by one legal order.
func (c *court) byRank(a, b int32) int { return cmp.Compare(c.legal.rank[a], c.legal.rank[b]) }

// under lists what is filed for the asking worker under the handoffs and requests
// that both concern.
func (c *court) under(e int32, filed map[answerKey][]int32) []int32 {
	var out []int32
	for _, n := range c.h.names.concern(c.h.names.concern(c.h.named(e))...) {
		out = append(out, filed[answerKey{c.h.workerOf(e), n}]...)
	}
	return out
}

// answersTo lists the observations of the kind that a signal asks for: up to its
// slash it equals what is asked.
func (c *court) answersTo(e int32, answers map[answerKey][]int32) []int32 {
	return slices.DeleteFunc(c.under(e, answers), func(o int32) bool {
		signal := c.h.ev[o].Signal
		if s := c.h.emitOf[o]; s != none {
			signal = c.h.ev[s].Signal
		}
		kind, _, _ := strings.Cut(signal, "/")
		return kind != c.h.ev[e].Asks
	})
}

// judgeAsk judges one signal that asks, given all that may settle it.
func (c *court) judgeAsk(e int32, settles, idles []int32) {
	slices.SortFunc(settles, c.byRank)
	settles = slices.Compact(settles)
	for _, idle := range idles {
		if c.legal.surelyBefore(e, idle) && !c.settled(e, idle, settles) {
			c.unanswered(e, idle, spec.Fail)
			return
		}
	}
	switch src := &c.h.sources[c.h.srcOf[e]]; {
	case c.settled(e, none, settles):
	case src.seal != none:
		c.unanswered(e, src.seal, spec.Fail)
	default:
		c.unanswered(e, none, spec.Inconclusive)
	}
}

// settled reports whether in some legal order one of the events comes after the
// signal and before the other event, which may be none.
func (c *court) settled(e, until int32, settles []int32) bool {
	rank := c.legal.rank
	i := sort.Search(len(settles), func(i int) bool { return rank[settles[i]] > rank[e] })
	if i < len(settles) && (until == none || rank[settles[i]] < rank[until]) {
		return true // the order that the ranks are of is one
	}
	return slices.ContainsFunc(settles, func(s int32) bool { return c.legal.feasible(edge{e, s}, edge{s, until}) })
}

func (c *court) unanswered(e, at int32, v spec.Verdict) {
	ev := &c.h.ev[e]
	f := Finding{Rule: spec.SIG4, Verdict: v, Handoff: ev.Handoff, Req: ev.Req, Events: c.ids(e, at)}
	f.Text = fmt.Sprintf("%s asks for %s; %s neither observed one for that handoff or request after it, nor reported by an expire or a finish with error that none came",
		c.say(e), ev.Asks, c.h.workerName(e))
	switch {
	case at == none:
		f.Text += "; neither an idle nor a seal says that it had to by then"
	case c.lost:
		f.Verdict = spec.Inconclusive
		f.Text += fmt.Sprintf(", by %s; events are missing that may be it", c.say(at))
	default:
		f.Text += ", by " + c.say(at)
	}
	c.find(f)
}
