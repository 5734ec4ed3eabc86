package check

import (
	"math"
	"slices"

	"conform/spec"
)

// foldFrom is from how many block numbers on, over all mutations and accesses,
// blocks that the trace never tells apart are judged as one.
const foldFrom = 200_000

// folded is a trace's lists of blocks, each with one number for all blocks that
// the trace only ever names together. Such blocks have one history: what is true of
// the first is true of each. So that what a line makes the judge hold depends on
// how long the line is, not on how large the numbers in it are.
type folded struct {
	blocks []spec.Blocks     // of each event
	starts map[int32][]int64 // of each pool: where a run of such blocks begins, or the last ends
}

// blocksOf lists the blocks of an event that are to be judged.
func (h *history) blocksOf(e int32) spec.Blocks {
	if h.folded != nil {
		return h.folded.blocks[e]
	}
	return h.ev[e].Blocks
}

// width is how many blocks are judged as block n.
func (h *history) width(pool int32, n int64) int {
	if h.folded == nil {
		return 1
	}
	starts := h.folded.starts[pool]
	i, found := slices.BinarySearch(starts, n)
	if !found || i+1 == len(starts) {
		return 1
	}
	return int(starts[i+1] - n)
}

// touching gives each event that names blocks of a pool of the trace.
func (h *history) touching(yield func(e, pool int32) bool) {
	for p := range h.pools {
		for _, m := range h.pools[p].muts {
			if !yield(m, int32(p)) {
				return
			}
		}
	}
	for i := range h.accesses {
		if a := &h.accesses[i]; a.pool != none && !yield(a.begin, a.pool) {
			return
		}
	}
}

// fold bounds what the blocks of the trace can make the judge hold. It is linear in
// the ranges that the trace writes, but for sorting them, and in what is left.
func (h *history) fold(from int64) error {
	total, written, limit := int64(0), 0, min(maxBlockOps, foldFrom+opsPerEvent*len(h.ev))
	for e := range h.touching {
		n := h.ev[e].Blocks.Len()
		if n > maxEventBlocks {
			return &LimitError{"block numbers in one event", maxEventBlocks}
		}
		// At least this much is left of the ranges that the trace writes.
		if written += len(h.ev[e].Blocks); written > limit {
			return &LimitError{"block numbers", limit}
		}
		total += n
	}
	if total <= from {
		return nil
	}
	f := &folded{blocks: make([]spec.Blocks, len(h.ev)), starts: map[int32][]int64{}}
	for e, p := range h.touching {
		for _, r := range h.ev[e].Blocks {
			f.starts[p] = append(f.starts[p], r.First, min(r.Last, math.MaxInt64-1)+1)
		}
	}
	for p, s := range f.starts {
		slices.Sort(s)
		f.starts[p] = slices.Compact(s)
	}
	left := 0
	for e, p := range h.touching {
		for _, r := range h.ev[e].Blocks {
			f.blocks[e] = f.runs(f.blocks[e], p, r)
		}
		if left += len(f.blocks[e]); left > limit {
			return &LimitError{"block numbers", limit}
		}
	}
	h.folded = f
	return nil
}

// runs adds the first block of each run within a range.
func (f *folded) runs(to spec.Blocks, pool int32, r spec.BlockRange) spec.Blocks {
	starts := f.starts[pool]
	i, _ := slices.BinarySearch(starts, r.First)
	for ; starts[i] <= r.Last; i++ {
		to = append(to, spec.BlockRange{First: starts[i], Last: starts[i]})
	}
	return to
}
