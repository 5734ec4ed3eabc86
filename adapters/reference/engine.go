package reference

import (
	"net/http"

	"conform/spec"
)

// within records an access of the scheduler's own to this worker's memory round do.
func (w *worker) within(p *pool, mode string, blocks []int64, req string, do func()) {
	id := w.nextID("a")
	w.record(spec.Event{
		K: spec.KindBegin, Access: id, Mode: mode, Target: w.cfg.ID, Pool: p.name,
		Blocks: spec.MakeBlocks(blocks...), Req: req, Via: "forward",
	})
	do()
	ok := true
	w.record(spec.Event{K: spec.KindEnd, Access: id, OK: &ok})
}

// share is which bytes of each block a prefill rank computes and passes on.
func (w *worker) share(rank int) [2]int {
	n := blockBytes / w.cfg.PrefillRanks
	return [2]int{rank * n, (rank + 1) * n}
}

// digests records the content of consecutive blocks of a handoff, the first of which
// is number first: a part for each block and prefill rank, of the ranks given.
func (w *worker) digests(l *leg, side, pool string, first int, blocks []int64, content []byte, ranks ...int) {
	for i, b := range blocks {
		block := content[i*blockBytes : min((i+1)*blockBytes, len(content))]
		for _, rank := range ranks {
			s := w.share(rank)
			part := block[min(s[0], len(block)):min(s[1], len(block))]
			if len(part) == 0 {
				continue
			}
			w.record(spec.Event{
				K: spec.KindDigest, Handoff: l.Handoff, Req: l.Req, Side: side, Part: int64((first+i)*w.cfg.PrefillRanks + rank), Sum: digest(part),
				Pool: pool, Blocks: spec.MakeBlocks(b),
			})
		}
	}
}

// lease takes n blocks for a request. The caller has looked that there are so many.
func (w *worker) lease(from *pool, l *leg, n int) []int64 {
	blocks, ok := from.take(n)
	if !ok {
		panic("reference: a lease of more blocks than are free")
	}
	w.record(spec.Event{
		K: spec.KindAlloc, Pool: from.name, Blocks: spec.MakeBlocks(blocks...), Holder: l.Req, Req: l.Req, Handoff: l.Handoff,
	})
	return blocks
}

// free ends the leases of a request's blocks. By is the signal that the decision
// waited for, "" for none.
func (w *worker) free(from *pool, l *leg, blocks []int64, why, by string) {
	if len(blocks) == 0 {
		return
	}
	w.record(spec.Event{
		K: spec.KindFree, Pool: from.name, Blocks: spec.MakeBlocks(blocks...), Holder: l.Req, Req: l.Req, Handoff: l.Handoff,
		Why: why, By: by,
	})
	from.put(blocks)
}

// fence keeps every access under a request's handoff from this worker's blocks,
// from now on.
func (w *worker) fence(l *leg, why string) {
	w.nic.Revoke(l.Handoff)
	w.record(spec.Event{K: spec.KindFence, Handoff: l.Handoff, Why: why})
}

// handleAbort takes a client's wish to end a request, which cancel carries out on
// the scheduler.
func (w *worker) handleAbort(cancel func(req string)) http.HandlerFunc {
	return func(rw http.ResponseWriter, hr *http.Request) {
		var l leg
		if err := readJSON(hr, &l); err != nil {
			writeJSON(rw, http.StatusBadRequest, legAnswer{Error: err.Error()})
			return
		}
		w.post(func() { cancel(l.Req) })
		writeJSON(rw, http.StatusOK, legAnswer{})
	}
}
