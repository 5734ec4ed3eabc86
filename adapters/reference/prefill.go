package reference

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"time"

	"conform/spec"
)

// prefill computes prompts' KV and passes it on.
type prefill struct {
	w         *worker
	kv, slots *pool
	xfer      *transferThreads
	reqs      map[string]*prefillReq // by handoff
	queue     []*prefillReq          // admitted, in order of arrival
	early     map[string]*earlyGrant // METADATA that came before the leg
	cache     *prefixCache           // nil for none
	tombs     *tombstones
	legsSeen  *tombstones // legs that came
	legs      int
}

type earlyGrant struct {
	ms []*Message // one of each decode rank
	at time.Time
}

// prefillReq is one request at prefill, from its admission until everything that
// it held has been given back.
type prefillReq struct {
	leg    leg
	answer chan legAnswer
	prompt []int32 // what is computed: the prompt
	since  time.Time

	metas  []*Message // push: the grants of decode's ranks
	slot   []int64
	blocks []int64
	reads  []*cachedBlock // those of blocks that the prefix cache has too
	state  kvState
	kv     []byte // what has been computed
	chunk  int64
	flow   *flow
	auxed  bool

	stopped  bool // cancelled or failed: nothing further begins
	forsaken bool // only the defect first-failure-frees sets it: nobody waits for the transfers
	outcome  spec.Outcome
	why      string // of the free
	status   int
	acks     []*Message // the ABORTs that wait for their acknowledgement
	leasedTo time.Time  // pull: granted until then; zero before
	answered bool
}

func newPrefill(w *worker) *prefill {
	l := w.cfg.Limits
	p := &prefill{
		w: w, kv: newPool("kv", "kv", l.PrefillBlocks, blockBytes), slots: newPool("slot", "slot", slotCount, slotBytes),
		reqs: map[string]*prefillReq{}, early: map[string]*earlyGrant{}, tombs: newTombstones(tombstoneCap), legsSeen: newTombstones(tombstoneCap),
	}
	if w.cfg.PrefixCache {
		p.cache = newPrefixCache()
	}
	p.xfer = newTransferThreads(w, p.kv)
	w.capacity(l.PrefillTokens, "what the pool and one batch hold")
	return p
}

func (p *prefill) pools() []*pool { return []*pool{p.kv, p.slots} }

func (p *prefill) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /generate", p.handleGenerate)
	mux.HandleFunc("POST /abort", p.w.handleAbort(p.abort))
}

func (p *prefill) load() load {
	l := load{Requests: p.legs, Handoffs: len(p.reqs)}
	l.Transfers = p.xfer.moving()
	return l
}

func (p *prefill) handleGenerate(rw http.ResponseWriter, hr *http.Request) {
	r := &prefillReq{answer: make(chan legAnswer, 1), since: p.w.now()}
	if err := readJSON(hr, &r.leg); err != nil || len(r.leg.Prompt) == 0 {
		writeJSON(rw, http.StatusBadRequest, legAnswer{Error: "expected a leg with a prompt"})
		return
	}
	r.prompt = r.leg.Prompt
	p.w.post(func() { p.legs++; p.arrive(r) })
	defer p.w.post(func() { p.legs-- })
	select {
	case a := <-r.answer:
		writeJSON(rw, a.Status, a)
	case <-hr.Context().Done():
		p.w.post(func() { p.cancel(r, "client_gone") })
	}
}

func (p *prefill) abort(req string) {
	for _, r := range slices.Clone(p.queue) {
		if r.leg.Req == req || r.leg.Client == req {
			p.cancel(r, "client")
		}
	}
}

// arrive decides on admission: by what this stage can process, not by the
// configured context.
func (p *prefill) arrive(r *prefillReq) {
	if (p.reqs[r.leg.Handoff] != nil || p.legsSeen.has(r.leg.Handoff)) && p.w.cfg.Defect != defSharedKey { // a leg that comes twice changes nothing
		r.answer <- legAnswer{Status: http.StatusConflict, Error: "this handoff is known already"}
		return
	}
	p.legsSeen.add(r.leg.Handoff, sigFailed)
	need, limit := int64(len(r.prompt)), p.w.cfg.Limits.PrefillTokens
	if p.w.cfg.Defect == defAdmitContext {
		limit = p.w.cfg.Limits.ContextTokens
	}
	handed := false
	if int(need) > limit {
		p.w.record(spec.Event{K: spec.KindReject, Req: r.leg.Req, Handoff: r.leg.Handoff, Need: &need, Unit: "token", Why: "capacity", Status: 400})
		if p.w.cfg.Defect != defRejectHanded || p.w.cfg.Mode != Push {
			p.refuse(r)
			return
		}
		r.prompt, handed = r.prompt[:1], true
	}
	if !handed {
		p.w.record(spec.Event{K: spec.KindAdmit, Req: r.leg.Req, Handoff: r.leg.Handoff, Need: &need, Unit: "token"})
	}
	p.reqs[r.leg.Handoff] = r
	p.queue = append(p.queue, r)
	if g := p.early[r.leg.Handoff]; g != nil {
		delete(p.early, r.leg.Handoff)
		r.metas = g.ms
	}
}

func (p *prefill) refuse(r *prefillReq) {
	p.w.record(spec.Event{K: spec.KindFinish, Req: r.leg.Req, Handoff: r.leg.Handoff, Result: spec.OutcomeRejected, Status: 400})
	p.tombs.add(r.leg.Handoff, sigRejected)
	if g := p.early[r.leg.Handoff]; g != nil {
		delete(p.early, r.leg.Handoff)
		for _, m := range g.ms {
			p.sayEnded(m)
		}
	}
	r.answer <- legAnswer{Status: 400, Error: "the prompt exceeds what prefill can process", Outcome: string(spec.OutcomeRejected)}
}

// sayEnded answers a grant for a handoff that has ended here: nothing under it
// runs, and the tombstone keeps anything from beginning.
func (p *prefill) sayEnded(m *Message) {
	signal := p.tombs.get(m.Handoff)
	if signal == sigRejected && silentReject(p.w.cfg.Defect) {
		return
	}
	p.reply(m, signal)
}

func (p *prefill) reply(m *Message, signal string) {
	p.w.send(m.Reply, &Message{Signal: signal, Handoff: m.Handoff, Req: m.Req, To: m.From}, "")
}

func (p *prefill) message(m *Message) {
	switch m.Signal {
	case sigMetadata:
		p.onMetadata(m)
	case sigAbort:
		p.onAbort(m)
	case sigHeartbeat:
		if r := p.leased(m); r != nil {
			r.leasedTo = p.w.now().Add(p.w.cfg.Limits.Lease)
		}
	case sigReadDone:
		p.onReadEnd(m, "done")
	case sigReadAbort:
		p.onReadEnd(m, "cancel")
	}
}

func (p *prefill) onMetadata(m *Message) {
	r := p.reqs[m.Handoff]
	switch {
	case p.tombs.has(m.Handoff):
		p.sayEnded(m)
	case r == nil:
		if p.early[m.Handoff] == nil {
			p.early[m.Handoff] = &earlyGrant{at: p.w.now()}
		}
		g := p.early[m.Handoff]
		g.ms = withGrant(g.ms, m)
	default:
		r.metas = withGrant(r.metas, m)
	}
}

// withGrant adds a decode rank's grant, once.
func withGrant(ms []*Message, m *Message) []*Message {
	if slices.ContainsFunc(ms, func(x *Message) bool { return x.From == m.From }) {
		return ms
	}
	return append(ms, m)
}

// ready reports whether every rank of decode has granted its blocks.
func (p *prefill) ready(r *prefillReq) bool {
	return p.w.cfg.Mode == Pull || len(r.metas) == p.w.cfg.DecodeRanks
}

func (p *prefill) onAbort(m *Message) {
	r := p.reqs[m.Handoff]
	if r == nil { // ended, or never seen: either way nothing runs, and nothing may begin
		p.tombs.add(m.Handoff, sigFailed)
		if g := p.early[m.Handoff]; g != nil {
			for _, other := range g.ms {
				if other.From != m.From {
					p.sayEnded(other)
				}
			}
		}
		delete(p.early, m.Handoff)
		p.reply(m, sigAbortAck)
		return
	}
	switch {
	case p.w.cfg.Defect == defAckReceived:
		p.reply(m, sigAbortAck)
	case p.w.cfg.Defect == defAckCleared && r.stopped:
	case p.w.cfg.Defect == defAckOverwritten:
		r.acks = []*Message{m}
	default:
		r.acks = append(r.acks, m)
	}
	p.cancel(r, "peer")
}

// cancel stops a request that the client or decode has given up.
func (p *prefill) cancel(r *prefillReq, why string) {
	if p.reqs[r.leg.Handoff] != r {
		return
	}
	if r.leasedTo.IsZero() {
		p.halt(r, spec.OutcomeCancelled, "cancel", statusCancelled)
		p.w.record(spec.Event{K: spec.KindCancel, Req: r.leg.Req, Handoff: r.leg.Handoff, Why: why})
		p.settle(r)
		return
	}
	if p.w.cfg.Defect == defAbortIgnored {
		return
	}
	p.w.record(spec.Event{K: spec.KindCancel, Req: r.leg.Req, Handoff: r.leg.Handoff, Why: why})
	p.w.fence(&r.leg, "cancel")
	p.release(r, "cancel", "")
}

// halt lets nothing further begin. The first reason stands.
func (p *prefill) halt(r *prefillReq, outcome spec.Outcome, why string, status int) {
	if r.stopped {
		return
	}
	r.stopped, r.outcome, r.why, r.status = true, outcome, why, status
	if r.flow != nil && p.w.cfg.Defect != defAckReceived {
		r.flow.stop()
	}
}

// settle ends a halted request once its last transfer has ended: only then does
// it give its blocks back and say drained.
func (p *prefill) settle(r *prefillReq) {
	if r.stopped && p.w.cfg.Defect == defSourceFreed {
		p.giveBack(r, r.why, "")
		r.blocks = nil
	}
	if !r.stopped || r.flow != nil && r.flow.outstanding > 0 && !r.forsaken {
		return
	}
	for _, m := range r.acks {
		p.reply(m, sigAbortAck)
	}
	for _, m := range r.metas {
		asked := slices.ContainsFunc(r.acks, func(x *Message) bool { return x.From == m.From })
		switch p.w.cfg.Defect {
		case defAckReceived, defAckCleared, defAckOverwritten: // no other word than the one that they lose
			continue
		}
		if !asked {
			p.reply(m, sigFailed)
		}
	}
	if p.w.cfg.Defect == defSlotReuse && len(r.metas) > 0 && len(r.kv) > 0 {
		p.writeLate(r)
	}
	p.end(r, r.outcome, r.status)
	p.release(r, r.why, "")
}

// end records this stage's outcome and answers the leg, once.
func (p *prefill) end(r *prefillReq, outcome spec.Outcome, status int) {
	if r.answered {
		return
	}
	r.answered = true
	p.w.record(spec.Event{K: spec.KindFinish, Req: r.leg.Req, Handoff: r.leg.Handoff, Result: outcome, Status: int64(status)})
	a := legAnswer{Status: status, Outcome: string(outcome), Done: true}
	if status != http.StatusOK {
		a.Error = "prefill: " + string(outcome)
	}
	r.answer <- a
}

// release gives everything back and forgets the request.
func (p *prefill) release(r *prefillReq, why, by string) {
	if !r.leasedTo.IsZero() && p.reqs[r.leg.Handoff] == r { // its leg was answered, and only now it ends
		p.w.record(spec.Event{K: spec.KindFinish, Req: r.leg.Req, Handoff: r.leg.Handoff, Result: spec.OutcomeLength, Status: 200})
	}
	p.giveBack(r, why, by)
	p.w.free(p.slots, &r.leg, r.slot, why, by)
	delete(p.reqs, r.leg.Handoff)
	p.queue = remove(p.queue, r)
	p.tombs.add(r.leg.Handoff, sigFailed)
}

// step starts what can start, computes a chunk of each request in the batch, and
// looks at the clocks.
func (p *prefill) step(now time.Time) {
	for _, r := range append([]*prefillReq(nil), p.queue...) {
		if r.stopped || !r.leasedTo.IsZero() || !p.ready(r) {
			continue
		}
		if !p.advance(r) {
			break // in order: a large prompt is not overtaken for ever
		}
	}
	p.expire(now)
}

// advance computes a request's next chunk, and reports whether there was room for it.
func (p *prefill) advance(r *prefillReq) bool {
	if r.flow == nil {
		if len(p.slots.free) < 1 {
			return false
		}
		r.slot = p.w.lease(p.slots, &r.leg, 1)
		r.flow = newFlow(p.w.ctx, r.leg.Handoff, r.leg.Req)
	}
	if len(r.blocks) == 0 {
		p.reuse(r)
	}
	end := min(len(r.kv)/tokenBytes+chunkBlocks*BlockTokens, len(r.prompt))
	if n := blocksFor(end) - len(r.blocks); n > 0 {
		if !p.room(r, n) {
			return false
		}
		r.blocks = append(r.blocks, p.w.lease(p.kv, &r.leg, n)...)
	}
	p.compute(r)
	return true
}

// compute is the forward pass over the next chunk of the prompt.
func (p *prefill) compute(r *prefillReq) {
	done := len(r.kv) / tokenBytes
	if done == len(r.prompt) {
		return
	}
	end := min(done+chunkBlocks*BlockTokens, len(r.prompt))
	first, last := done/BlockTokens, blocksFor(end)
	blocks := r.blocks[first:last]
	var part []byte
	states := make([]kvState, 0, len(blocks))
	for at := done; at < end; at += BlockTokens {
		part = append(part, kvOf(&r.state, r.prompt[at:min(at+BlockTokens, end)])...)
		states = append(states, r.state)
	}
	p.w.within(p.kv, "w", blocks, r.leg.Req, func() { p.kv.writeBlocks(blocks, 0, part) })
	r.kv = append(r.kv, part...)
	for i := range (end - done) / BlockTokens { // full ones
		p.keep(r, blocks[i], states[i])
	}
	p.w.digests(&r.leg, "source", p.kv.name, first, blocks, part, p.w.cfg.Rank)
	if p.w.cfg.Mode == Push {
		p.pass(r, blocks, first, len(part))
	} else if end == len(r.prompt) {
		p.lease(r)
	}
}

// pass posts the write of one chunk into decode's blocks.
func (p *prefill) pass(r *prefillReq, local []int64, first, n int) {
	r.chunk++
	for _, m := range r.metas {
		p.xfer.start(&transfer{
			flow: r.flow, mode: "w", chunk: r.chunk, peer: m.From, nic: m.NIC,
			pool: "kv", remote: m.Blocks[first : first+len(local)], size: blockBytes, local: local, n: n, share: p.w.share(p.w.cfg.Rank),
			of: m.Blocks, first: first,
			done: func(err error, _ string) { p.passed(r, err) },
		})
	}
}

func (p *prefill) passed(r *prefillReq, err error) {
	if p.reqs[r.leg.Handoff] != r {
		return
	}
	if err != nil {
		p.halt(r, spec.OutcomeError, "peer_lost", 502)
		r.forsaken = p.w.cfg.Defect == defFirstFailure
	}
	switch {
	case r.stopped:
		p.settle(r)
	case r.flow.outstanding > 0 || len(r.kv) < len(r.prompt)*tokenBytes:
	case !r.auxed && p.w.cfg.Rank == 0:
		r.auxed = true
		p.passAux(r, r.flow, func(err error, _ string) { p.passed(r, err) })
	default:
		for _, m := range r.metas {
			p.reply(m, sigSuccess)
		}
		p.end(r, spec.OutcomeLength, 200)
		p.release(r, "done", "")
		if p.w.cfg.Defect == defDoneTwice {
			p.release(r, "done", "")
		}
	}
}

// passAux writes decode's metadata slot: whose it is, and the first token.
func (p *prefill) passAux(r *prefillReq, f *flow, done func(error, string)) {
	for _, m := range r.metas {
		p.xfer.start(&transfer{
			flow: f, mode: "w", peer: m.From, nic: m.NIC, pool: "aux",
			remote: []int64{m.Aux}, size: auxBytes, n: auxBytes, data: encodeAux(r.leg.Handoff, nextToken(r.kv)), done: done,
		})
	}
}

// writeLate is the defect of the same name: a write that was not counted among
// those that had to drain, and that its thread gets to only now.
func (p *prefill) writeLate(r *prefillReq) {
	f := newFlow(p.w.ctx, r.leg.Handoff, r.leg.Req)
	p.w.spawn(func() {
		select {
		case <-time.After(30 * time.Millisecond):
			p.w.post(func() { p.passAux(r, f, func(error, string) {}) })
		case <-p.w.ctx.Done():
		}
	})
}

// lease (pull) exposes the computed blocks to decode, for a time.
func (p *prefill) lease(r *prefillReq) {
	h, req := r.leg.Handoff, r.leg.Req
	r.leasedTo = p.w.now().Add(p.w.cfg.Limits.Lease)
	p.w.nic.Permit(h)
	p.w.record(spec.Event{
		K: spec.KindGrant, Handoff: h, Pool: p.kv.name, Blocks: spec.MakeBlocks(r.blocks...), To: r.leg.Decode, Mode: "r", Req: req,
	})
	sig := p.w.nextID("s")
	p.w.record(spec.Event{K: spec.KindEmit, Sig: sig, Signal: sigParams, Handoff: h, Req: req, To: r.leg.Decode})
	p.w.publish()
	r.answered = true
	r.answer <- legAnswer{Status: 200, Outcome: string(spec.OutcomeLength), Done: true, KVParams: &kvParams{
		Sig: sig, Handoff: h, Worker: p.w.cfg.ID, To: r.leg.Decode, NIC: p.w.nic.Addr(), Blocks: r.blocks,
		First: nextToken(r.kv), Prompted: len(r.prompt), Until: r.leasedTo.UnixNano(),
	}}
}

// leased finds the request that a reader's message speaks of.
func (p *prefill) leased(m *Message) *prefillReq {
	if r := p.reqs[m.Handoff]; r != nil && !r.leasedTo.IsZero() {
		return r
	}
	return nil
}

func (p *prefill) onReadEnd(m *Message, why string) {
	if r := p.leased(m); r != nil {
		p.release(r, why, m.Sig)
	} else if r := p.tombs.request(m.Handoff); r != nil {
		p.release(r, why, m.Sig) // the defect double-release: the expiry has given it back already
	}
}

// expire looks at the clocks: leases, handoffs that decode never took up, and
// grants that no leg came for.
func (p *prefill) expire(now time.Time) {
	l := p.w.cfg.Limits
	for _, h := range slices.Sorted(maps.Keys(p.early)) {
		g := p.early[h]
		if now.Sub(g.at) > l.HandoffTimeout {
			delete(p.early, h)
			p.tombs.add(h, sigFailed)
			for _, m := range g.ms {
				p.reply(m, sigFailed)
			}
		}
	}
	for _, r := range slices.Clone(p.queue) {
		switch {
		case !r.leasedTo.IsZero() && now.After(r.leasedTo):
			p.leaseOver(r)
		case !r.leasedTo.IsZero() && p.w.cfg.Defect == defSweepStops:
			return
		case r.leasedTo.IsZero() && !r.stopped && !p.ready(r) && now.Sub(r.since) > l.HandoffTimeout:
			p.w.record(spec.Event{K: spec.KindExpire, Req: r.leg.Req, Handoff: r.leg.Handoff, Why: "no METADATA", After: int64(l.HandoffTimeout)})
			p.halt(r, spec.OutcomeError, "timeout", 504)
			p.settle(r)
		}
	}
}

// leaseOver ends a lease by the clock. It names the handoff only: the reader may
// have finished, and its word been lost.
func (p *prefill) leaseOver(r *prefillReq) {
	p.w.record(spec.Event{K: spec.KindExpire, Handoff: r.leg.Handoff, Why: "lease", After: int64(p.w.cfg.Limits.Lease)})
	switch p.w.cfg.Defect {
	case defLeaseReuse, defForeignClock: // the reader's own clock is to stop it
	case defDoubleRelease:
		p.w.fence(&r.leg, "lease")
		defer p.tombs.keep(r)
	default:
		p.w.fence(&r.leg, "lease")
	}
	p.release(r, "timeout", "")
}

func auxKey(handoff string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(handoff))
	return h.Sum64()
}

func encodeAux(handoff string, first int32) []byte {
	b := make([]byte, auxBytes)
	binary.BigEndian.PutUint64(b, auxKey(handoff))
	binary.BigEndian.PutUint32(b[8:], uint32(first))
	return b
}

func decodeAux(b []byte) (key uint64, first int32) {
	return binary.BigEndian.Uint64(b), int32(binary.BigEndian.Uint32(b[8:]))
}

func remove[T comparable](list []T, x T) []T {
	for i, y := range list {
		if y == x {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}
