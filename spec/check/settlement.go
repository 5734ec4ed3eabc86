package check

import (
	"cmp"
	"slices"
	"strings"

	"conform/spec"
)

// SettledResult says how requests that were rejected, cancelled or expired gave
// back what they held on one worker. Requests of which all of it reads the same
// are one row.
type SettledResult struct {
	// Worker is whose blocks were held.
	Worker string `json:"worker"`
	// Ended says what ended the requests, such as "reject by prefill-0" and "expire
	// by decode-0"; at most eight of them.
	Ended []string `json:"ended"`
	// How is the reason that the worker gave for the free, "drop" for a holder that
	// left while others stayed; "" for what was not seen to be given back.
	How string `json:"how,omitempty"`
	// By is the kind of the signal that the decision waited for, where it says so.
	By string `json:"by,omitempty"`
	// Evidence is what the trace shows to lead to the decision: the kind of the last
	// signal of another worker about the request that claims stopped, completed or
	// drained, else "fence", else such a signal between the worker's own threads.
	Evidence string `json:"evidence,omitempty"`
	Requests int    `json:"requests"`
	// Holds counts holders of blocks: a block that two requests held counts twice.
	Holds int `json:"holds"`
	// After is how long after the request's end on this worker's own clock the holds
	// were given back, least and most, in ns. It is null where that can't be told.
	After *[2]int64 `json:"after"`
}

// maxSettled bounds the rows, and maxWords the signals that are looked through for
// the evidence of one decision.
const (
	maxSettled = 100
	maxWords   = 64
)

// settledTable collects how holds came to their end.
type settledTable struct {
	rows     map[string]*SettledResult
	requests map[string]map[int32]bool
	evidence map[[3]int32]string
	ended    map[int32][]string // of a request
}

// settlements says of each request that ended so how its holds ended.
func (c *court) settlements() []SettledResult {
	enders := c.endings()
	if len(enders) == 0 {
		return nil
	}
	t := settledTable{map[string]*SettledResult{}, map[string]map[int32]bool{}, map[[3]int32]string{}, map[int32][]string{}}
	for i := range c.chains.leases {
		l := &c.chains.leases[i]
		b := &c.chains.blocks[l.block]
		if b.dead != none && l.free == none {
			continue
		}
		for j := range l.holds {
			h := &l.holds[j]
			for _, req := range c.h.names.requests(h.handoff, h.req) {
				if ended := enders[req]; len(ended) > 0 {
					c.addHold(&t, h, req, ended, b)
				}
			}
		}
		if i%256 == 0 && c.ctx.Err() != nil {
			break
		}
	}
	return t.sorted()
}

// endings files what ended each request so, in one legal order.
func (c *court) endings() map[int32][]int32 {
	enders := c.byRequest(spec.KindReject, spec.KindCancel, spec.KindExpire)
	for _, list := range enders {
		slices.SortFunc(list, c.byRank)
	}
	return enders
}

// addHold adds one hold to the table, unless it had been given back before the
// request ended.
func (c *court) addHold(t *settledTable, h *holding, req int32, ended []int32, b *block) {
	if h.to != none && c.legal.rank[h.to] < c.legal.rank[ended[0]] {
		return
	}
	if t.ended[req] == nil {
		t.ended[req] = c.sayEnded(ended)
	}
	worker := c.h.pools[b.pool].worker
	row := SettledResult{Worker: c.h.workers[worker], Ended: t.ended[req]}
	var after *int64
	if h.to != none {
		e := &c.h.ev[h.to]
		row.How = cmp.Or(e.Why, "free")
		if e.K == spec.KindDrop {
			row.How = "drop"
		}
		row.By, row.Evidence = c.kindOf(e.By), c.wordBefore(t, h, worker)
		after = c.since(ended, h.to)
	}
	key := strings.Join(append([]string{row.Worker, row.How, row.By, row.Evidence}, row.Ended...), "\x00")
	r := t.rows[key]
	if r == nil {
		r = &row
		t.rows[key], t.requests[key] = r, map[int32]bool{}
	}
	t.requests[key][req] = true
	r.Requests, r.Holds = len(t.requests[key]), r.Holds+c.h.width(b.pool, b.number)
	switch {
	case after == nil:
	case r.After == nil:
		r.After = &[2]int64{*after, *after}
	default:
		r.After[0], r.After[1] = min(r.After[0], *after), max(r.After[1], *after)
	}
}

// sayEnded names what ended a request, each worker's decision once, whatever order
// they came in: requests that two stages ended at once are one row.
func (c *court) sayEnded(ended []int32) []string {
	var out []string
	for _, k := range []spec.Kind{spec.KindReject, spec.KindCancel, spec.KindExpire} {
		first := len(out)
		for _, e := range ended {
			if s := string(k) + " by " + c.h.workerName(e); c.h.ev[e].K == k && len(out) < 8 && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
		slices.Sort(out[first:])
	}
	return out
}

func (c *court) kindOf(sig string) string {
	if sig == "" {
		return ""
	}
	if s, ok := c.signal(sig); ok {
		return c.h.ev[s].Signal
	}
	return "unknown"
}

// since is the time from the first end of a request that the event's own clock
// timed.
func (c *court) since(ended []int32, e int32) *int64 {
	for _, x := range ended {
		if c.h.clockOf[x] == c.h.clockOf[e] {
			d := c.h.from(e) - c.h.from(x)
			return &d
		}
	}
	return nil
}

// wordBefore is what leads to the end of a hold: the last word of another worker
// that reached its worker, else a fence of it, else the last word of its own
// threads.
func (c *court) wordBefore(t *settledTable, h *holding, worker int32) string {
	key := [3]int32{h.to, h.handoff, h.req}
	if kind, known := t.evidence[key]; known {
		return kind
	}
	emits := c.concerning(h.handoff, h.req)
	emits = emits[max(0, len(emits)-maxWords):]
	kind := c.lastWord(emits, h.to, worker, true)
	if kind == "" && slices.ContainsFunc(c.h.fences[fenceKey{worker, h.handoff}], func(f int32) bool { return c.legal.leads(f, h.to) }) {
		kind = string(spec.KindFence)
	}
	if kind == "" {
		kind = c.lastWord(emits, h.to, worker, false)
	}
	t.evidence[key] = kind
	return kind
}

// lastWord is the kind of the last signal by others, or by the worker itself, that
// the worker took in before a decision and that is evidence for it.
func (c *court) lastWord(emits []int32, to, worker int32, others bool) string {
	for _, e := range slices.Backward(emits) {
		if ev := &c.h.ev[e]; (c.h.workerOf(e) != worker) != others || !quiets(ev) && ev.Claims != spec.ClaimsCompleted {
			continue
		}
		if slices.ContainsFunc(c.h.observes[e], func(o int32) bool { return c.h.workerOf(o) == worker && c.legal.leads(o, to) }) {
			return c.h.ev[e].Signal
		}
	}
	return ""
}

// sorted lists the rows, those of most requests first.
func (t *settledTable) sorted() []SettledResult {
	var out []SettledResult
	for _, r := range t.rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b SettledResult) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Worker, b.Worker), slices.Compare(a.Ended, b.Ended),
			cmp.Compare(a.How, b.How), cmp.Compare(a.By, b.By), cmp.Compare(a.Evidence, b.Evidence))
	})
	return out[:min(len(out), maxSettled)]
}
