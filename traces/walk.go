package traces

import (
	"context"
	"io"

	"conform/spec"
)

// Walk gives each event of the trace at path to each, in the order in which [Read]
// would list them, and holds none of them: an event is valid until each returns.
// It reads what Read reads, within the same limits but for the number of events,
// and returns what the trace has lost. An error of each ends it and is returned as
// it is.
//
// What several lines show to be wrong may come to light after their events were
// given, at the latest when Walk returns: what was made of them is then worth
// nothing. Memory grows by some 100 bytes for each access and each signal, whose
// names must be unique.
func Walk(ctx context.Context, path string, stdin io.Reader, each func(*spec.Event) error) ([]spec.Loss, error) {
	lim := DefaultLimits()
	lim.Events, lim.TotalBytes = walkEvents, walkBytes
	r := newReader(lim)
	var own error // of each, as it is
	r.each = func(e *spec.Event) error {
		if own = ctx.Err(); own == nil {
			own = each(e)
		}
		return own
	}
	err := r.path(path, stdin)
	if own != nil {
		return nil, own
	}
	if err == nil {
		err = r.checkDeferred()
	}
	return r.losses, err
}

const (
	walkEvents = 100_000_000
	walkBytes  = 64 << 30
)

// lateID is what events have in common whose pools are checked alike, once known.
type lateID struct{ src, worker, pool string }

// putOff keeps of an event whose pool is not declared yet what the check at the end
// needs: of all alike, the first one and those with larger blocks than before.
func (r *reader) putOff(e *spec.Event, worker string) {
	id, most := lateID{e.Src, worker, e.Pool}, e.Blocks.Max()
	if last, ok := r.late[id]; ok && most <= last {
		return
	}
	if r.late == nil {
		r.late = map[lateID]int64{}
	}
	r.late[id] = most
	r.deferred = append(r.deferred, &spec.Event{
		Src: e.Src, Seq: e.Seq, K: e.K, Pool: e.Pool, Target: e.Target, Blocks: spec.MakeBlocks(most), Pos: e.Pos,
	})
}
