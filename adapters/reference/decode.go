package reference

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"conform/spec"
)

// decodeState is where a request stands at decode.
type decodeState int

const (
	waiting  decodeState = iota // for blocks, or for a peer
	granted                     // push: prefill may write
	reading                     // pull: this worker reads
	running                     // accepted: tokens are generated
	aborting                    // push: waits for the acknowledgement of an abort
	halting                     // pull: waits for its own reads to end
	leaving                     // has ended, and waits for the last copy to the host
	ended
)

// decode takes handed-over state in and generates tokens from it.
type decode struct {
	w               *worker
	kv, slots, aux  *pool
	xfer            *transferThreads
	copier          *copier               // nil: nothing is offloaded
	reqs            map[string]*decodeReq // by handoff
	queue           []*decodeReq          // in order of arrival
	released        map[string]*decodeReq // only the defect double-release keeps any
	asked           map[askedOf]time.Time // aborts that no acknowledgement has answered, and until when that is waited for
	legsSeen        *tombstones           // legs that came
	legs            int
	peers           []string // by rank: prefill's present incarnation, "" while it is lost
	peersSeen       []time.Time
	heartbeatsAfter time.Time
}

// askedOf names an acknowledgement that is owed. The duty outlives the request, which
// another word of the peer may end first.
type askedOf struct{ handoff, peer string }

// decodeReq is one request at decode, from its admission until everything that
// it held has been given back.
type decodeReq struct {
	leg   leg
	out   chan legAnswer // tokens as they come, then the end
	since time.Time
	state decodeState
	peers []string // by rank: prefill's incarnations
	heard []bool   // by rank, push: it has said its last word, nothing of it runs

	blocks, slot, auxSlot []int64
	model                 kvState
	length                int // tokens whose KV is in the blocks
	tokens                []int32
	flow                  *flow
	offloaded             int // blocks that were handed to the copier
	copies                int // that have not ended
	evicted               int // blocks that are gone: only the defect offload-evicts-running has any

	outcome  spec.Outcome // once it has been halted
	why      string
	status   int
	deadline time.Time // aborting: when the fence takes over
	answered bool
	finished bool
}

func newDecode(w *worker) *decode {
	l := w.cfg.Limits
	d := &decode{
		w: w, kv: newPool("kv", "kv", l.DecodeBlocks, blockBytes), slots: newPool("slot", "slot", slotCount, slotBytes),
		aux: newPool("aux", "aux", auxCount, auxBytes), reqs: map[string]*decodeReq{}, released: map[string]*decodeReq{}, asked: map[askedOf]time.Time{}, legsSeen: newTombstones(tombstoneCap),
	}
	d.xfer = newTransferThreads(w, d.kv)
	if l.Offload > 0 {
		d.copier = newCopier(w, d.kv)
	}
	w.capacity(l.DecodeTokens, "prompt and output, what the pool holds for one request")
	d.peers, d.peersSeen = make([]string, w.cfg.PrefillRanks), make([]time.Time, w.cfg.PrefillRanks)
	for rank := range d.peers {
		w.spawn(func() { d.watchPeer(rank) })
	}
	return d
}

func (d *decode) pools() []*pool { return []*pool{d.kv, d.slots, d.aux} }

func (d *decode) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /generate", d.handleGenerate)
	mux.HandleFunc("POST /abort", d.w.handleAbort(d.abortRequest))
}

func (d *decode) load() load {
	l := load{Requests: d.legs, Handoffs: len(d.reqs)}
	for a := range d.asked {
		if d.reqs[a.handoff] == nil {
			l.Handoffs++
		}
	}
	l.Transfers = d.xfer.moving()
	return l
}

func (d *decode) handleGenerate(rw http.ResponseWriter, hr *http.Request) {
	r := &decodeReq{since: d.w.now()}
	if err := readJSON(hr, &r.leg); err != nil || len(r.leg.Prompt) == 0 || r.leg.MaxNew < 1 || r.leg.MaxNew > maxTokensWire {
		writeJSON(rw, http.StatusBadRequest, legAnswer{Error: "expected a leg with a prompt and max_new_tokens from 1"})
		return
	}
	r.out = make(chan legAnswer, r.leg.MaxNew+2)
	d.w.post(func() { d.legs++; d.arrive(r) })
	defer d.w.post(func() { d.legs-- })
	relay(rw, r.leg.Stream, r.out, hr.Context().Done(), func() {
		d.w.post(func() { d.cancel(r, "client_gone") })
	})
}

// relay answers a leg: a stream of lines from its first token on, or one body.
// Until the first token an error keeps its own status.
func relay(rw http.ResponseWriter, stream bool, out <-chan legAnswer, gone <-chan struct{}, left func()) {
	var tokens []int32
	started := false
	for {
		select {
		case <-gone:
			left()
			return
		case a := <-out:
			tokens = append(tokens, a.Tokens...)
			switch {
			case a.Done && !started:
				if a.Status < 300 {
					a.Tokens = tokens
				}
				writeJSON(rw, a.Status, a)
				return
			case stream:
				if !started {
					started = true
					rw.Header().Set("Content-Type", "application/x-ndjson")
				}
				writeLine(rw, a)
				if a.Done {
					return
				}
			}
		}
	}
}

func (d *decode) abortRequest(req string) {
	for _, r := range slices.Clone(d.queue) {
		if r.leg.Req == req || r.leg.Client == req {
			d.cancel(r, "client")
		}
	}
}

func (d *decode) arrive(r *decodeReq) {
	if d.legsSeen.has(r.leg.Handoff) && d.w.cfg.Defect != defSharedKey { // a leg that comes twice changes nothing
		d.answer(r, spec.OutcomeError, http.StatusConflict, "this handoff is known already")
		return
	}
	d.legsSeen.add(r.leg.Handoff, sigFailed)
	h, req, p := r.leg.Handoff, r.leg.Req, r.leg.KVParams
	if p != nil {
		d.w.record(spec.Event{K: spec.KindObserve, Sig: p.Sig, Signal: sigParams, Handoff: h, Req: req})
		r.peers = []string{p.Worker}
	}
	need := int64(len(r.leg.Prompt) + r.leg.MaxNew)
	if int(need) > d.w.cfg.Limits.DecodeTokens {
		d.w.record(spec.Event{K: spec.KindReject, Req: req, Handoff: h, Need: &need, Unit: "token", Why: "capacity", Status: 400})
		if p != nil && d.w.cfg.Defect != defRejectLeaks {
			d.tell(r, sigReadAbort)
		}
		d.finish(r, spec.OutcomeRejected, 400, "the prompt and its output exceed what decode can process")
		return
	}
	if p != nil && p.To != d.w.cfg.ID { // granted to an earlier incarnation
		d.finish(r, spec.OutcomeError, 503, "the state was granted to a worker that is gone")
		return
	}
	if p != nil && d.w.cfg.Defect == defForeignClock && d.w.now().UnixNano() > p.Until {
		d.finish(r, spec.OutcomeError, 503, "the lease has run out")
		return
	}
	d.w.record(spec.Event{K: spec.KindAdmit, Req: req, Handoff: h, Need: &need, Unit: "token"})
	d.reqs[h] = r
	d.queue = append(d.queue, r)
}

// tell sends prefill a message about a handoff: those ranks that have not said their
// last word.
func (d *decode) tell(r *decodeReq, signal string) {
	asks := ""
	if signal == sigAbort {
		asks = sigAbortAck
	}
	for rank, peer := range r.peers {
		if len(r.heard) > 0 && r.heard[rank] {
			continue
		}
		if asks != "" {
			d.asked[askedOf{r.leg.Handoff, peer}] = r.deadline
		}
		d.w.send(d.w.cfg.PrefillCtl[rank], &Message{
			Signal: signal, Handoff: r.leg.Handoff, Req: r.leg.Req, To: peer, Reply: d.w.cfg.Ctl,
		}, asks)
	}
}

func (d *decode) step(now time.Time) {
	for _, r := range append([]*decodeReq(nil), d.queue...) {
		if r.state == waiting && !d.start(r) {
			break
		}
	}
	for _, r := range append([]*decodeReq(nil), d.queue...) {
		if r.state == running {
			d.generate(r)
		}
	}
	d.clocks(now)
}

// start reserves what the request will need to its end and begins the handoff. A
// reservation is not acceptance.
func (d *decode) start(r *decodeReq) bool {
	push := d.w.cfg.Mode == Push
	n := blocksFor(len(r.leg.Prompt) + r.leg.MaxNew)
	if len(d.kv.free) < n || len(d.slots.free) < 1 || push && (len(d.aux.free) < 1 || slices.Contains(d.peers, "")) {
		return false
	}
	r.blocks = d.w.lease(d.kv, &r.leg, n)
	r.slot = d.w.lease(d.slots, &r.leg, 1)
	r.flow = newFlow(d.w.ctx, r.leg.Handoff, r.leg.Req)
	if push {
		r.auxSlot = d.w.lease(d.aux, &r.leg, 1)
		d.grant(r)
	} else {
		d.read(r)
	}
	return true
}

// grant (push) exposes the reservation to prefill's writes.
func (d *decode) grant(r *decodeReq) {
	r.state, r.peers, r.heard, r.since = granted, slices.Clone(d.peers), make([]bool, len(d.peers)), d.w.now()
	prompt := r.blocks[:blocksFor(len(r.leg.Prompt))]
	for _, g := range []struct {
		of     *pool
		blocks []int64
	}{{d.kv, prompt}, {d.aux, r.auxSlot}} {
		for rank, peer := range r.peers {
			if g.of == d.aux && rank > 0 { // the first rank's alone
				continue
			}
			d.w.record(spec.Event{
				K: spec.KindGrant, Handoff: r.leg.Handoff, Pool: g.of.name, Blocks: spec.MakeBlocks(g.blocks...), To: peer, Mode: "w", Req: r.leg.Req,
			})
		}
	}
	for rank, peer := range r.peers {
		d.w.send(d.w.cfg.PrefillCtl[rank], &Message{
			Signal: sigMetadata, Handoff: r.leg.Handoff, Req: r.leg.Req, To: peer, Reply: d.w.cfg.Ctl,
			NIC: d.w.nic.Addr(), Blocks: prompt, Aux: r.auxSlot[0],
		}, "")
	}
}

// read (pull) posts the reads of prefill's blocks.
func (d *decode) read(r *decodeReq) {
	r.state, r.since = reading, d.w.now()
	p, left := r.leg.KVParams, len(r.leg.Prompt)*tokenBytes
	for i := 0; i < len(p.Blocks); i += chunkBlocks {
		j := min(i+chunkBlocks, len(p.Blocks))
		n := min(left, (j-i)*blockBytes)
		left -= n
		d.xfer.start(&transfer{
			flow: r.flow, mode: "r", chunk: int64(i/chunkBlocks + 1), peer: r.peers[0], nic: p.NIC,
			pool: "kv", remote: p.Blocks[i:j], size: blockBytes, local: r.blocks[i:j], n: n,
			done: func(err error, _ string) { d.hasRead(r, err) },
		})
	}
}

func (d *decode) hasRead(r *decodeReq, err error) {
	if err != nil && r.state == reading {
		d.halt(r, halting, spec.OutcomeError, "peer_lost", 502)
	}
	switch {
	case r.flow.outstanding > 0:
	case r.state == reading:
		d.tell(r, sigReadDone)
		r.tokens = []int32{r.leg.KVParams.First}
		d.accept(r, "")
	case r.state == halting && d.w.cfg.Defect != defReadForgotten:
		d.tell(r, sigReadAbort)
		d.release(r, r.why, "")
	}
}

// find gives the request that a word is about. A handoff's name holds the number of
// its key's use.
func (d *decode) find(handoff string) *decodeReq {
	if r := d.reqs[handoff]; r != nil || d.w.cfg.Defect != defStaleAck {
		return r
	}
	for _, r := range d.queue {
		if rawKey(r.leg.Handoff) == rawKey(handoff) {
			return r
		}
	}
	return nil
}

func (d *decode) message(m *Message) {
	if m.Signal == sigAbortAck {
		delete(d.asked, askedOf{m.Handoff, m.From})
	}
	r := d.find(m.Handoff)
	if r == nil {
		if late := d.released[m.Handoff]; late != nil && m.Signal == sigAbortAck {
			delete(d.released, m.Handoff)
			d.giveBack(late, "cancel", m.Sig) // the defect double-release
		}
		return // a word about a handoff that has ended changes nothing
	}
	rank := slices.Index(r.peers, m.From)
	if rank < 0 {
		return
	}
	last := m.Signal == sigSuccess || m.Signal == sigAbortAck || m.Signal == sigFailed || m.Signal == sigRejected
	if last && len(r.heard) > 0 {
		r.heard[rank] = true
	}
	all := !slices.Contains(r.heard, false)
	switch {
	case m.Signal == sigSuccess && r.state == granted && !all: // until each rank has written its share
	case m.Signal == sigSuccess && (r.state == granted || r.state == aborting && d.w.cfg.Defect == defUnfailed):
		d.arrived(r, m)
	case r.state == aborting && last && (all || d.w.cfg.Defect == defOneRank):
		d.release(r, r.why, m.Sig)
	case r.state == granted && last && !all: // one rank has failed; the others are to stop
		d.abort(r, spec.OutcomeError, "cancel", 502)
	case r.state == granted && m.Signal == sigRejected:
		d.halt(r, aborting, spec.OutcomeRejected, "reject", 400)
		d.release(r, "reject", m.Sig)
	case r.state == granted && m.Signal == sigFailed:
		d.halt(r, aborting, spec.OutcomeError, "cancel", 502)
		d.release(r, "cancel", m.Sig)
	}
}

// arrived takes the metadata slot's word for whose state this is, and accepts it.
func (d *decode) arrived(r *decodeReq, m *Message) {
	var b []byte
	d.w.within(d.aux, "r", r.auxSlot, r.leg.Req, func() { b = d.aux.readBlocks(r.auxSlot, auxBytes) })
	key, first := decodeAux(b)
	if key != auxKey(r.leg.Handoff) {
		d.halt(r, aborting, spec.OutcomeError, "done", 500)
		d.release(r, "done", m.Sig)
		return
	}
	d.w.free(d.aux, &r.leg, r.auxSlot, "done", m.Sig)
	r.auxSlot = nil
	r.tokens = []int32{first}
	d.accept(r, m.Sig)
}

// shares are the prefill ranks.
func (d *decode) shares() []int {
	ranks := make([]int, d.w.cfg.PrefillRanks)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

// accept takes the handed-over state for valid: from here on tokens come of it.
func (d *decode) accept(r *decodeReq, by string) {
	n := len(r.leg.Prompt)
	d.w.record(spec.Event{K: spec.KindAccept, Req: r.leg.Req, Handoff: r.leg.Handoff, By: by})
	prompt := r.blocks[:blocksFor(n)]
	var content []byte
	d.w.within(d.kv, "r", prompt, r.leg.Req, func() { content = d.kv.readBlocks(prompt, n*tokenBytes) })
	d.w.digests(&r.leg, "target", d.kv.name, 0, prompt, content, d.shares()...)
	r.state, r.length, r.model = running, n, stateAfter(r.leg.Prompt)
	d.emit(r)
}

// emit lets the latest token leave towards the client, and ends a request that
// has all of its tokens.
func (d *decode) emit(r *decodeReq) {
	if !r.leg.Follower {
		d.w.record(spec.Event{K: spec.KindOutput, Req: r.leg.Req, Handoff: r.leg.Handoff, N: 1})
	}
	r.out <- legAnswer{Tokens: r.tokens[len(r.tokens)-1:]}
	if len(r.tokens) == r.leg.MaxNew {
		d.finish(r, spec.OutcomeOK, 200, "")
		d.release(r, "done", "")
	}
}

// generate is one step of one request: the KV of its latest token goes in, and
// the next token comes of all KV read.
func (d *decode) generate(r *decodeReq) {
	kv := r.model.append(r.tokens[len(r.tokens)-1])
	at := r.length / BlockTokens
	d.w.within(d.kv, "w", r.blocks[at:at+1], r.leg.Req, func() { d.kv.writeBlocks(r.blocks, r.length*tokenBytes, kv[:]) })
	r.length++
	used := r.blocks[:blocksFor(r.length)]
	var content []byte
	d.w.within(d.kv, "r", used, r.leg.Req, func() { content = d.kv.readBlocks(used, r.length*tokenBytes) })
	r.tokens = append(r.tokens, nextToken(content))
	d.offload(r)
	d.emit(r)
}

// cancel gives a request up, as its client asked. What it takes to give its
// memory back depends on who else may touch it.
func (d *decode) cancel(r *decodeReq, why string) {
	if d.reqs[r.leg.Handoff] != r || r.state >= aborting {
		return
	}
	status := statusCancelled
	if d.w.cfg.Defect == defCancel200 {
		status = 200
	}
	if r.flow != nil {
		r.flow.stop()
	}
	d.w.record(spec.Event{K: spec.KindCancel, Req: r.leg.Req, Handoff: r.leg.Handoff, Why: why})
	switch r.state {
	case waiting, running:
		if p := r.leg.KVParams; p != nil && r.state == waiting && d.w.cfg.Defect != defQueuedForgets {
			d.tell(r, sigReadAbort)
		}
		d.finish(r, spec.OutcomeCancelled, status, "cancelled")
		d.release(r, "cancel", "")
	case granted:
		d.abort(r, spec.OutcomeCancelled, "cancel", status)
	case reading:
		d.halt(r, halting, spec.OutcomeCancelled, "cancel", status)
		d.hasRead(r, nil)
	}
}

// abort (push) asks prefill to stop and keeps the blocks until it says that it has.
func (d *decode) abort(r *decodeReq, outcome spec.Outcome, why string, status int) {
	d.halt(r, aborting, outcome, why, status)
	r.deadline = d.w.now().Add(d.w.cfg.Limits.AbortTimeout)
	d.tell(r, sigAbort)
	if d.w.cfg.Defect == defFreeAtCancel {
		d.release(r, why, "")
	}
}

// halt answers the client and lets nothing further begin; the memory comes later.
func (d *decode) halt(r *decodeReq, to decodeState, outcome spec.Outcome, why string, status int) {
	r.state, r.outcome, r.why, r.status = to, outcome, why, status
	if r.flow != nil {
		r.flow.stop()
	}
	d.answer(r, outcome, status, "decode: "+string(outcome))
}

func (d *decode) answer(r *decodeReq, outcome spec.Outcome, status int, text string) {
	if r.answered {
		return
	}
	r.answered = true
	a := legAnswer{Done: true, Outcome: string(outcome), Status: status}
	if status != http.StatusOK {
		a.Error = text
	} else if outcome == spec.OutcomeCancelled {
		a.Outcome = string(spec.OutcomeLength) // the defect cancel-answers-200
	}
	r.out <- a
}

func (d *decode) finish(r *decodeReq, outcome spec.Outcome, status int, text string) {
	d.outcome(r, outcome, status)
	d.answer(r, outcome, status, text)
}

// outcome records this stage's terminal outcome, once.
func (d *decode) outcome(r *decodeReq, outcome spec.Outcome, status int) {
	if r.finished {
		return
	}
	r.finished = true
	d.w.record(spec.Event{K: spec.KindFinish, Req: r.leg.Req, Handoff: r.leg.Handoff, Result: outcome, Status: int64(status)})
}

// release gives everything back and forgets the request, once no copy of its blocks to
// the host runs.
func (d *decode) release(r *decodeReq, why, by string) {
	d.outcome(r, r.outcome, r.status)
	if r.copies > 0 && d.w.cfg.Defect != defOffloadFinish {
		r.state, r.why = leaving, why
		d.queue = remove(d.queue, r)
		return
	}
	d.giveBack(r, why, by)
	r.state = ended
	delete(d.reqs, r.leg.Handoff)
	d.queue = remove(d.queue, r)
}

func (d *decode) giveBack(r *decodeReq, why, by string) {
	d.w.free(d.kv, &r.leg, r.blocks[r.evicted:], why, by)
	d.w.free(d.slots, &r.leg, r.slot, why, by)
	d.w.free(d.aux, &r.leg, r.auxSlot, why, by)
}

// clocks is where an engine would release by time alone. Here a fence comes first.
func (d *decode) clocks(now time.Time) {
	l := d.w.cfg.Limits
	if now.After(d.heartbeatsAfter) {
		d.heartbeatsAfter = now.Add(l.Heartbeat)
		d.heartbeat()
	}
	for rank, peer := range d.peers {
		if peer != "" && now.Sub(d.peersSeen[rank]) > l.PeerTimeout {
			d.lose(peer, "silent")
		}
	}
	for _, r := range append([]*decodeReq(nil), d.queue...) {
		switch {
		case r.state == aborting && now.After(r.deadline):
			for _, peer := range r.peers {
				delete(d.asked, askedOf{r.leg.Handoff, peer})
			}
			d.w.record(spec.Event{K: spec.KindExpire, Req: r.leg.Req, Handoff: r.leg.Handoff, Why: "no " + sigAbortAck, After: int64(l.AbortTimeout)})
			if d.w.cfg.Defect != defTimeoutFrees {
				d.w.fence(&r.leg, "abort timeout")
			}
			d.release(r, "timeout", "")
			if d.w.cfg.Defect == defDoubleRelease {
				d.released[r.leg.Handoff] = r
			}
		case r.state == granted && now.Sub(r.since) > l.HandoffTimeout:
			d.w.record(spec.Event{K: spec.KindExpire, Req: r.leg.Req, Handoff: r.leg.Handoff, Why: "no STATUS", After: int64(l.HandoffTimeout)})
			if d.w.cfg.Defect == defRejectByClock {
				d.halt(r, aborting, spec.OutcomeError, "timeout", 504)
				d.release(r, "timeout", "")
				continue
			}
			d.abort(r, spec.OutcomeError, "timeout", 504)
		case r.state == waiting && now.Sub(r.since) > l.HandoffTimeout:
			d.giveUpWaiting(r)
		}
	}
	for _, a := range d.inOrder() {
		if now.After(d.asked[a]) {
			d.unanswered(a, "no "+sigAbortAck)
		}
	}
}

// inOrder lists the acknowledgements that are owed, in one order.
func (d *decode) inOrder() []askedOf {
	return slices.SortedFunc(maps.Keys(d.asked), func(a, b askedOf) int {
		return cmp.Or(cmp.Compare(a.handoff, b.handoff), cmp.Compare(a.peer, b.peer))
	})
}

// unanswered reports that an acknowledgement which is owed will not be waited for.
func (d *decode) unanswered(a askedOf, why string) {
	delete(d.asked, a)
	d.w.record(spec.Event{K: spec.KindExpire, Handoff: a.handoff, Why: why})
}

func (d *decode) giveUpWaiting(r *decodeReq) {
	d.w.record(spec.Event{K: spec.KindExpire, Req: r.leg.Req, Handoff: r.leg.Handoff, Why: "no room", After: int64(d.w.cfg.Limits.HandoffTimeout)})
	if r.leg.KVParams != nil {
		d.tell(r, sigReadAbort)
	}
	d.finish(r, spec.OutcomeError, 503, "no room, or no peer")
	d.release(r, "timeout", "")
}

// heartbeat (pull) renews the leases of what is not yet read.
func (d *decode) heartbeat() {
	for _, r := range d.queue {
		if r.leg.KVParams != nil && (r.state == waiting || r.state == reading || r.state == halting) {
			d.tell(r, sigHeartbeat)
		}
	}
}

// lose ends what depends on a prefill worker that is gone, or silent for so long
// that it is held for gone. Silence proves nothing about its writes: the fence
// does.
func (d *decode) lose(peer, why string) {
	if rank := slices.Index(d.peers, peer); rank >= 0 {
		d.peers[rank] = ""
	}
	for _, a := range d.inOrder() {
		if a.peer == peer {
			d.unanswered(a, "peer "+why)
		}
	}
	for _, r := range append([]*decodeReq(nil), d.queue...) {
		if !slices.Contains(r.peers, peer) {
			continue
		}
		switch r.state {
		case granted, aborting:
			if r.state == granted {
				d.halt(r, aborting, spec.OutcomeError, "peer_lost", 503)
			}
			if d.w.cfg.Defect != defSilentIsDead {
				d.w.fence(&r.leg, "peer "+why)
			}
			d.release(r, "peer_lost", "")
		case reading, halting:
			if r.state == reading {
				d.halt(r, halting, spec.OutcomeError, "peer_lost", 503)
			}
			r.flow.cancel() // ends the reads on this side; each reports its end
			d.hasRead(r, nil)
		case waiting:
			d.finish(r, spec.OutcomeError, 503, "prefill is lost")
			d.release(r, "peer_lost", "")
		}
	}
}

// watchPeer asks a prefill rank who it is, again and again: an incarnation that answers
// with another name is another worker.
func (d *decode) watchPeer(rank int) {
	url := fmt.Sprintf("http://%s/info", d.w.cfg.PrefillHTTP[rank])
	every := max(d.w.cfg.Limits.PeerTimeout/8, 5*time.Millisecond)
	client := &http.Client{Timeout: d.w.cfg.Limits.PeerTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var i info
		if err := getJSON(d.w.ctx, client, url, &i); err == nil && i.Worker != "" {
			d.w.post(func() { d.sawPeer(rank, i.Worker) })
		}
		select {
		case <-tick.C:
		case <-d.w.ctx.Done():
			return
		}
	}
}

func (d *decode) sawPeer(rank int, id string) {
	if was := d.peers[rank]; was != "" && was != id {
		d.lose(was, "restarted")
	}
	d.peers[rank], d.peersSeen[rank] = id, d.w.now()
}
