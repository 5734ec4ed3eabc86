package reference

import (
	"conform/faults"
	"conform/spec"
)

// copier copies the blocks of decode's requests to the host, one copy after the other,
// beside the scheduler: a reader of a block that is neither its request nor a peer. The
// scheduler counts the copies of each request, whose blocks stay until they have ended.
type copier struct {
	w    *worker
	kv   *pool
	jobs chan *hostCopy
}

// hostCopy is some blocks on their way to the host.
type hostCopy struct {
	r      *decodeReq
	blocks []int64
	done   func(by string)
	post   string // the sig that handed it over
}

const copierThread = "offload"

func newCopier(w *worker, kv *pool) *copier {
	o := &copier{w: w, kv: kv, jobs: make(chan *hostCopy, 1024)}
	w.spawn(o.run)
	return o
}

// start hands a copy over. Only the scheduler calls it.
func (o *copier) start(c *hostCopy) {
	c.post = o.w.nextID("s")
	o.w.record(spec.Event{K: spec.KindEmit, Sig: c.post, Signal: sigCopyPost, Handoff: c.r.leg.Handoff, Req: c.r.leg.Req})
	select {
	case o.jobs <- c:
	case <-o.w.ctx.Done():
	}
}

func (o *copier) run() {
	for {
		select {
		case c := <-o.jobs:
			o.perform(c)
		case <-o.w.ctx.Done():
			return
		}
	}
}

// perform copies, and tells the scheduler of the end: the copy has been taken in full.
func (o *copier) perform(c *hostCopy) {
	w, handoff, req := o.w, c.r.leg.Handoff, c.r.leg.Req
	w.record(spec.Event{K: spec.KindObserve, Th: copierThread, Sig: c.post, Signal: sigCopyPost, Handoff: handoff, Req: req})
	access, blocks := w.nextID("a"), spec.MakeBlocks(c.blocks...)
	w.record(spec.Event{
		K: spec.KindBegin, Th: copierThread, Access: access, Mode: "r", Target: w.cfg.ID, Pool: o.kv.name,
		Blocks: blocks, Handoff: handoff, Req: req, Via: "offload",
	})
	role := string(w.cfg.Role)
	w.passes(faults.Point{
		Kind: faults.KindAccess, Name: "r", From: role, To: role, Pool: o.kv.name, Access: access, Handoff: handoff, Req: req, Blocks: blocks,
	})
	o.kv.readBlocks(c.blocks, len(c.blocks)*blockBytes)
	ok := true
	w.record(spec.Event{K: spec.KindEnd, Th: copierThread, Access: access, OK: &ok})
	by := w.nextID("s")
	w.record(spec.Event{
		K: spec.KindEmit, Th: copierThread, Sig: by, Signal: sigCopyDone, Handoff: handoff, Req: req,
		Claims: claims(sigCopyDone), Accesses: []string{access},
	})
	w.post(func() {
		w.record(spec.Event{K: spec.KindObserve, Sig: by, Signal: sigCopyDone, Handoff: handoff, Req: req})
		c.done(by)
	})
}

// offload has the blocks copied that a running request has filled since the last copy,
// once they are as many tokens as the limit says.
func (d *decode) offload(r *decodeReq) {
	full := r.length / BlockTokens
	if d.copier == nil || (full-r.offloaded)*BlockTokens < d.w.cfg.Limits.Offload {
		return
	}
	blocks := r.blocks[r.offloaded:full]
	r.offloaded = full
	r.copies++
	d.copier.start(&hostCopy{r: r, blocks: blocks, done: func(by string) { d.copied(r, by) }})
}

// copied takes the end of a copy in: with the last one of a request that has ended, its
// blocks are free.
func (d *decode) copied(r *decodeReq, by string) {
	r.copies--
	switch {
	case r.state == leaving && r.copies == 0:
		d.release(r, r.why, by)
	case r.state == running && r.evicted == 0 && d.w.cfg.Defect == defOffloadEvicts:
		r.evicted = blocksFor(len(r.leg.Prompt))
		d.w.free(d.kv, &r.leg, r.blocks[:r.evicted], "evict", by)
	}
}
