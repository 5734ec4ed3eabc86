package reference

import (
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

// digests records the content of consecutive blocks of a handoff, one part a
// block, numbered from first.
func (w *worker) digests(handoff, req, side, pool string, first int, blocks []int64, content []byte) {
	for i, b := range blocks {
		part := content[i*blockBytes : min((i+1)*blockBytes, len(content))]
		w.record(spec.Event{
			K: spec.KindDigest, Handoff: handoff, Req: req, Side: side, Part: int64(first + i), Sum: digest(part),
			Pool: pool, Blocks: spec.MakeBlocks(b),
		})
	}
}
