package reference

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"conform/faults"
	"conform/spec"
)

// flow is all transfers of one handoff by this worker. The scheduler posts and
// counts them; threads perform them.
type flow struct {
	handoff, req string
	ctx          context.Context
	cancel       context.CancelFunc // ends reads that run; writes can't be called back

	outstanding int // the scheduler's

	mu      sync.Mutex
	stopped bool // no access begins once it is set
}

func newFlow(parent context.Context, handoff, req string) *flow {
	ctx, cancel := context.WithCancel(parent)
	return &flow{handoff: handoff, req: req, ctx: ctx, cancel: cancel}
}

// stop keeps every transfer that has not begun from beginning.
func (f *flow) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
}

// transfer is one chunk between this worker's memory and a peer's.
type transfer struct {
	flow   *flow
	mode   string // of the access to the peer's memory: r or w
	chunk  int64
	peer   string // worker
	nic    string
	pool   string // of the peer
	remote []int64
	size   int // bytes of one of the peer's blocks
	local  []int64
	n      int     // bytes
	share  [2]int  // which bytes of each block; {0, 0} is all
	data   []byte  // what to write, where it does not come from local blocks
	of     []int64 // all blocks of the grant, of which remote are those from first on
	first  int
	done   func(err error, by string)

	post string // the sig that handed it over
}

// transferThreads performs transfers, each thread with its own connections.
type transferThreads struct {
	w    *worker
	kv   *pool
	jobs chan *transfer

	latest  sync.Map     // only the defect queued-chunk-outlives-key: the latest transfer by raw key
	running atomic.Int64 // transfers that a thread has in hand
}

// moving counts the transfers that will end by themselves: whether anybody has
// counted on them is another question.
func (t *transferThreads) moving() int { return len(t.jobs) + int(t.running.Load()) }

func newTransferThreads(w *worker, kv *pool) *transferThreads {
	t := &transferThreads{w: w, kv: kv, jobs: make(chan *transfer, 1024)}
	for i := range xferThreads {
		w.spawn(func() { t.run(fmt.Sprintf("xfer%d", i)) })
	}
	return t
}

// start hands a transfer to the threads. Only the scheduler calls it.
func (t *transferThreads) start(x *transfer) {
	x.flow.outstanding++
	if t.w.cfg.Defect == defStaleChunk && len(x.of) > 0 {
		t.latest.Store(rawKey(x.flow.handoff), x)
	}
	x.post = t.w.nextID("s")
	t.w.record(spec.Event{K: spec.KindEmit, Sig: x.post, Signal: sigXferPost, Handoff: x.flow.handoff, Req: x.flow.req})
	select {
	case t.jobs <- x:
	case <-t.w.ctx.Done():
	}
}

func (t *transferThreads) run(thread string) {
	peers := map[string]*nicPeer{}
	defer func() {
		for _, p := range peers {
			p.close()
		}
	}()
	for {
		select {
		case x := <-t.jobs:
			if peers[x.nic] == nil {
				peers[x.nic] = &nicPeer{addr: x.nic}
			}
			if !t.perform(thread, x, peers[x.nic]) {
				return
			}
		case <-t.w.ctx.Done():
			return
		}
	}
}

// perform carries a transfer out, and reports whether its thread lives on.
func (t *transferThreads) perform(thread string, x *transfer, peer *nicPeer) bool {
	w := t.w
	t.running.Add(1)
	defer t.running.Add(-1)
	w.record(spec.Event{K: spec.KindObserve, Th: thread, Sig: x.post, Signal: sigXferPost, Handoff: x.flow.handoff, Req: x.flow.req})
	accesses, began := t.begin(thread, x)
	var err error
	if began {
		err = t.move(x, peer, accesses[0])
		for _, a := range accesses {
			ok := err == nil
			w.record(spec.Event{K: spec.KindEnd, Th: thread, Access: a, OK: &ok})
		}
		if err != nil && w.cfg.Defect == defCountLost {
			return false
		}
	}
	by := w.nextID("s")
	done := spec.Event{K: spec.KindEmit, Th: thread, Sig: by, Signal: "XFER_SKIPPED", Handoff: x.flow.handoff, Req: x.flow.req}
	if began {
		done.Signal, done.Claims, done.Accesses = sigXferDone, claims(sigXferDone), accesses
	}
	w.record(done)
	w.post(func() {
		w.record(spec.Event{K: spec.KindObserve, Sig: by, Signal: done.Signal, Handoff: x.flow.handoff, Req: x.flow.req})
		x.flow.outstanding--
		x.done(err, by)
	})
	return true
}

// begin records the accesses of a transfer, unless its flow has been stopped:
// under the flow's lock, so that none begins after the stop.
func (t *transferThreads) begin(thread string, x *transfer) (accesses []string, began bool) {
	x.flow.mu.Lock()
	defer x.flow.mu.Unlock()
	if x.flow.stopped && !t.readdress(x) {
		return nil, false
	}
	w := t.w
	accesses = []string{w.nextID("a")}
	w.record(spec.Event{
		K: spec.KindBegin, Th: thread, Access: accesses[0], Mode: x.mode, Target: x.peer, Pool: x.pool,
		Blocks: spec.MakeBlocks(x.remote...), Handoff: x.flow.handoff, Req: x.flow.req, Via: "nic/tcp",
	})
	if len(x.local) > 0 {
		mode := map[string]string{"r": "w", "w": "r"}[x.mode]
		accesses = append(accesses, w.nextID("a"))
		w.record(spec.Event{
			K: spec.KindBegin, Th: thread, Access: accesses[1], Mode: mode, Target: w.cfg.ID, Pool: t.kv.name,
			Blocks: spec.MakeBlocks(x.local...), Handoff: x.flow.handoff, Req: x.flow.req, Via: "nic/tcp",
		})
	}
	w.publish()
	return accesses, true
}

// readdress is the defect queued-chunk-outlives-key: a chunk looks for the state and
// the destination of its key when its turn comes, and finds those of the key's next use.
func (t *transferThreads) readdress(x *transfer) bool {
	found, ok := t.latest.Load(rawKey(x.flow.handoff))
	if !ok {
		return false
	}
	now := found.(*transfer)
	last := x.first + len(x.remote)
	if now.flow == x.flow || len(x.of) == 0 || last > len(now.of) {
		return false
	}
	x.remote = now.of[x.first:last]
	return true
}

// move carries the bytes. The failpoint stands between the post and the bytes: a
// held transfer is one that the fabric has taken and not yet carried out, a
// dropped one is reported as done although nothing arrived, and a duplicated one
// arrives again when nobody counts on it.
func (t *transferThreads) move(x *transfer, peer *nicPeer, access string) error {
	act := t.w.passes(faults.Point{
		Kind: faults.KindAccess, Name: x.mode, From: t.w.cfg.ID, To: x.peer, Pool: x.pool,
		Access: access, Handoff: x.flow.handoff, Req: x.flow.req, N: x.chunk, Blocks: spec.MakeBlocks(x.remote...),
	})
	switch act.Do {
	case faults.Fail:
		return errors.New("transfer failed by a fault of the plan")
	case faults.Drop:
		return nil
	case faults.Duplicate:
		t.w.spawn(func() { t.again(x, act) })
	}
	return t.carry(x, peer)
}

// again carries the bytes of a transfer that has been carried out, late.
func (t *transferThreads) again(x *transfer, act faults.Action) {
	peer := &nicPeer{addr: x.nic}
	defer peer.close()
	for range act.Copies {
		select {
		case <-time.After(act.After):
			_ = t.carry(x, peer) // nobody waits for it
		case <-t.w.ctx.Done():
			return
		}
	}
}

// carry reads or writes block by block.
func (t *transferThreads) carry(x *transfer, peer *nicPeer) error {
	left, offset := x.n, 0
	for i, block := range x.remote {
		n := min(left, x.size)
		req := &nicRequest{op: x.mode[0], key: x.flow.handoff, to: x.peer, pool: x.pool, off: block * int64(x.size), n: n}
		if x.mode == "w" {
			req.data = x.data
			if req.data == nil {
				req.data = t.kv.readBlocks(x.local[i:i+1], n)
			}
			if x.share[1] > 0 {
				from := min(x.share[0], n)
				req.data = req.data[from:min(x.share[1], n)]
				req.off, req.n = req.off+int64(from), len(req.data)
			}
		}
		got, err := peer.do(x.flow.ctx, req)
		if err != nil {
			return err
		}
		if x.mode == "r" {
			t.kv.writeBlocks(x.local, offset, got)
		}
		left, offset = left-n, offset+n
	}
	return nil
}
