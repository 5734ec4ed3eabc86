package check

import (
	"context"
	"slices"

	"conform/spec"
)

// Covered says how often traces took one transition of the two machines, and how
// often its guards refused it.
type Covered struct {
	spec.Transition
	// Taken counts the times, Traces the traces in which it was taken, and First
	// names the first of these.
	Taken  int
	Traces int
	First  string
	// Refused counts the refusals by the rule that the guard stands for.
	Refused map[spec.RuleID]int
}

// Coverage counts what traces reach of the two machines. It replays each in one
// order that is legal, or as near to legal as the trace allows, with the Step of
// the model. The zero value is not ready: use [NewCoverage].
type Coverage struct{ rows []Covered }

// NewCoverage is a table of every transition, none taken.
func NewCoverage() *Coverage {
	c := &Coverage{}
	for _, t := range spec.Transitions() {
		c.rows = append(c.rows, Covered{Transition: t, Refused: map[spec.RuleID]int{}})
	}
	return c
}

// Rows lists every transition with what reached it, in the order of
// [spec.Transitions].
func (c *Coverage) Rows() []Covered { return slices.Clone(c.rows) }

// Add counts a trace under a name. The errors are those of [Judge].
func (c *Coverage) Add(ctx context.Context, name string, tr *spec.Trace) error {
	ct, err := newCourt(ctx, tr, Options{unconfirmed: true})
	if err != nil {
		return err
	}
	if err := ct.judge(); err != nil {
		return err
	}
	return c.AddJudged(ctx, name, &Judged{c: ct})
}

// AddJudged counts a trace that was judged already. The error is that of ctx.
func (c *Coverage) AddJudged(ctx context.Context, name string, j *Judged) error {
	ct := j.c
	w := walk{
		court: ct, name: name, rows: c.rows, seen: make([]bool, len(c.rows)), block: map[blockKey]spec.Block{},
		request: map[[2]int32]spec.Request{}, limit: map[walkUnit]int64{},
	}
	for _, e := range ct.legal.topo {
		w.step(e)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// walk replays one trace.
type walk struct {
	*court
	name    string
	rows    []Covered
	seen    []bool // of a row: the trace has been counted
	block   map[blockKey]spec.Block
	request map[[2]int32]spec.Request // by worker and request
	limit   map[walkUnit]int64
}

type walkUnit struct {
	src  int32
	unit string
}

// count notes that an event took, or was refused, a transition.
func (w *walk) count(machine string, e spec.Kind, breach *spec.Breach) {
	for i := range w.rows {
		r := &w.rows[i]
		if r.Machine != machine || r.Event != e {
			continue
		}
		if breach != nil {
			r.Refused[breach.Rule]++
			continue
		}
		r.Taken++
		if !w.seen[i] {
			w.seen[i] = true
			if r.Traces++; r.Traces == 1 {
				r.First = w.name
			}
		}
	}
}

const (
	blockMachine   = "Block"
	requestMachine = "Request"
)

func (w *walk) step(e int32) {
	ev := &w.h.ev[e]
	switch {
	case ev.K.Mutates():
		w.blocks(w.h.poolOf[e], w.h.blocksOf(e), func(b spec.Block, _ int64) (spec.BlockOp, bool) {
			return blockOp(ev), b.Leased || ev.K != spec.KindRevoke
		})
	case ev.K == spec.KindBegin:
		if i, ok := w.h.accessID[ev.Access]; ok && w.h.accesses[i].begin == e {
			w.begin(i)
		}
	case ev.K == spec.KindEnd:
		w.end(e)
	case ev.K == spec.KindFence:
		w.fence(e)
	}
	w.requests(e)
}

// blocks applies an operation to blocks of one pool. It counts once: as refused if
// the machine refuses any, as taken if one of them is in a state that has the
// transition.
func (w *walk) blocks(pool int32, blocks spec.Blocks, op func(spec.Block, int64) (spec.BlockOp, bool)) {
	if pool == none {
		return
	}
	var kind spec.Kind
	var refused *spec.Breach
	taken := false
	for n := range blocks.All {
		key := blockKey{pool, n}
		o, leaves := op(w.block[key], n)
		next, breach := w.block[key].Step(o)
		w.block[key], kind = next, o.Kind
		if breach != nil && refused == nil {
			refused = breach
		}
		taken = taken || leaves && breach == nil
	}
	if refused != nil || taken {
		w.count(blockMachine, kind, refused)
	}
}

// begin applies an access to its blocks, under the leases that the judge found for
// it, else under the last that come into question.
func (w *walk) begin(i int32) {
	a, k := &w.h.accesses[i], &w.cases[i]
	ev := &w.h.ev[a.begin]
	w.blocks(a.pool, w.h.blocksOf(a.begin), func(b spec.Block, n int64) (spec.BlockOp, bool) {
		op := spec.BlockOp{
			Kind: spec.KindBegin, Access: a.id, By: w.h.workers[a.by], Handoff: ev.Handoff, Mode: ev.Mode, Remote: a.by != a.target,
			Generation: b.Generation,
		}
		id, known := w.chains.blockID[blockKey{a.pool, n}]
		s, ok := k.spotOf(n)
		if !known || !ok {
			return op, true
		}
		cl := &k.classes[s.class]
		switch {
		case len(cl.cands) == 0: // granted, but not so; or held by others only
			op.Granted = op.Remote && len(w.chains.granted[blockName{id, a.handoff}]) > 0
			if !op.Granted {
				op.Generation = 0
			}
		default:
			choice := len(cl.cands) - 1
			if len(k.places) > k.chosen && len(k.places[k.chosen].choice) > s.class {
				choice = k.places[k.chosen].choice[s.class]
			}
			op.Generation = w.chains.leases[cl.leases[s.at][choice]].gen
			op.Granted = cl.cands[choice].grant != none
		}
		return op, true
	})
}

func (w *walk) end(e int32) {
	i, ok := w.h.accessID[w.h.ev[e].Access]
	if !ok {
		return
	}
	a := &w.h.accesses[i]
	w.blocks(a.pool, w.h.blocksOf(a.begin), func(b spec.Block, _ int64) (spec.BlockOp, bool) {
		open := slices.ContainsFunc(b.Open, func(o spec.OpenAccess) bool { return o.ID == a.id })
		return spec.BlockOp{Kind: spec.KindEnd, Access: a.id}, open
	})
}

// fence applies a fence to every block of its worker that was ever leased.
func (w *walk) fence(e int32) {
	handoff := w.h.ev[e].Handoff
	taken := false
	for i := range w.chains.blocks {
		b := &w.chains.blocks[i]
		if w.h.pools[b.pool].worker != w.h.workerOf(e) {
			continue
		}
		key := blockKey{b.pool, b.number}
		was := w.block[key]
		taken = taken || slices.ContainsFunc(was.Grants, func(g spec.Grant) bool { return g.Handoff == handoff })
		w.block[key], _ = was.Step(spec.BlockOp{Kind: spec.KindFence, Handoff: handoff})
	}
	if taken {
		w.count(blockMachine, spec.KindFence, nil)
	}
}

// requests applies an event to the machines of its requests, at its own worker and
// at all others that may know of it.
func (w *walk) requests(e int32) {
	ev := &w.h.ev[e]
	op := spec.RequestOp{Kind: ev.K, Outcome: ev.Result, Status: ev.Status, Client: w.h.isClient(w.h.workerOf(e))}
	reqs := w.h.names.requests(w.h.named(e))
	switch ev.K {
	case spec.KindCapacity:
		w.limit[walkUnit{w.h.srcOf[e], ev.Unit}] = ev.Limit
		return
	case spec.KindAdmit:
		op.Need, op.Limit = w.need(e)
	case spec.KindSubmit, spec.KindReject, spec.KindOffer, spec.KindAccept, spec.KindBegin, spec.KindOutput, spec.KindCancel, spec.KindExpire, spec.KindFinish:
	default:
		return
	}
	for _, req := range reqs {
		here := w.h.workerOf(e)
		was := w.request[[2]int32{here, req}]
		next, breach := was.Step(op)
		w.request[[2]int32{here, req}] = next
		if ev.K == spec.KindBegin {
			if breach != nil {
				w.count(blockMachine, ev.K, breach)
			}
			continue
		}
		if breach != nil || w.leaves(was.Phase, ev.K) {
			w.count(requestMachine, ev.K, breach)
		}
		for other := range w.h.workers {
			if int32(other) != here {
				w.elsewhere([2]int32{int32(other), req}, op, ev.To)
			}
		}
	}
}

// elsewhere tells a worker of what another did: a submission and an offer reach it
// as they are, an end binds it from afar.
func (w *walk) elsewhere(at [2]int32, op spec.RequestOp, to string) {
	switch op.Kind {
	case spec.KindSubmit:
		if w.request[at].Phase != spec.PhaseNew {
			return
		}
	case spec.KindOffer:
		if to != "" && to != w.h.workers[at[0]] {
			return
		}
	case spec.KindReject, spec.KindCancel, spec.KindExpire, spec.KindFinish:
		op.Elsewhere, op.Client = true, false
	default:
		return
	}
	w.request[at], _ = w.request[at].Step(op)
}

// leaves reports whether the table has the event for a request in a phase.
func (w *walk) leaves(p spec.Phase, k spec.Kind) bool {
	return slices.ContainsFunc(w.rows, func(r Covered) bool { return r.Machine == requestMachine && r.Event == k && r.Leaves(p) })
}

// need is what an admit asks of its stage, and what that can process, 0 if that is
// not known in one unit.
func (w *walk) need(e int32) (need, limit int64) {
	ev := &w.h.ev[e]
	n, unit := ev.Need, ev.Unit
	if n == nil {
		for _, s := range w.h.byKind[spec.KindSubmit] {
			if w.h.ev[s].Req == ev.Req {
				n, unit = w.h.ev[s].Need, w.h.ev[s].Unit
				break
			}
		}
	}
	if n == nil || unit == "" {
		return 0, 0
	}
	return *n, w.limit[walkUnit{w.h.srcOf[e], unit}]
}
