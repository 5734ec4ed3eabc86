package export

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"conform/spec"
	"conform/spec/check"
)

// What a picture may hold: above that no viewer opens it.
const (
	maxBlockTracks = 1_000_000
	maxBlockEvents = 50_000_000 // events times the blocks that they name
)

// Perfetto writes a trace as a timeline in Perfetto's TrackEvent protobuf, with what
// was found wrong in it. Of the result it needs the findings and the clocks; nil
// draws the trace alone. It walks the trace twice. Memory grows with the blocks, and
// with the accesses and leases that are open at one time.
func Perfetto(w io.Writer, events Events, r *check.Result) error {
	if r == nil {
		r = &check.Result{}
	}
	starts, err := firstReadings(events)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<20)
	p := &painter{
		packets: packets{w: out}, times: timesOf(starts, r.Clocks), origins: origins{}, known: map[string]uint64{},
		blocks: map[spec.BlockID]*blockTrack{}, open: map[string][]openSlice{}, ended: map[string]int64{}, marks: marksOf(r),
	}
	if err := events(p.event); err != nil {
		return err
	}
	return out.Flush()
}

// painter draws event by event.
type painter struct {
	packets
	times   times
	origins origins
	known   map[string]uint64 // tracks by their paths
	blocks  map[spec.BlockID]*blockTrack
	open    map[string][]openSlice // of accesses
	ended   map[string]int64       // accesses whose end came before their begin, at which time
	marks   map[spec.EventID][]mark
	drawn   int64 // events times blocks
}

// blockTrack is the track of a block.
type blockTrack struct {
	id, parent uint64
	leased     bool
	last       uint64 // nothing on the track may lie before it
	lanes      []lane
}

// lane is a track for accesses that do not overlap.
type lane struct {
	id   uint64
	busy bool
	last uint64
}

// openSlice is an access under way, on one block.
type openSlice struct {
	block *blockTrack
	lane  int
}

// mark is a finding at one of its events.
type mark struct {
	finding check.Finding
	nth     uint64
}

func marksOf(r *check.Result) map[spec.EventID][]mark {
	all, n := map[spec.EventID][]mark{}, uint64(0)
	for i := range r.Rules {
		for _, f := range r.Rules[i].Findings {
			n++
			for _, e := range f.Events {
				all[e] = append(all[e], mark{f, n})
			}
		}
	}
	return all
}

func (p *painter) event(e *spec.Event) error {
	from := p.origins.of(e)
	at := p.times.of(from.clock, e.T)
	switch e.K {
	case spec.KindAlloc, spec.KindFree, spec.KindHold, spec.KindDrop, spec.KindGrant, spec.KindRevoke:
		if err := p.mutation(e, from.worker, at); err != nil {
			return err
		}
	case spec.KindBegin:
		if err := p.begin(e, from.worker, at); err != nil {
			return err
		}
	case spec.KindEnd:
		p.end(e, at)
	default:
		p.said(e, from, at)
	}
	for _, m := range p.marks[e.ID()] {
		p.mark(m, e, from, at)
	}
	return p.err
}

// track is the track of a path, such as decode-0, kv, 7; it is declared when it is
// first asked for.
func (p *painter) track(parent uint64, path, name string, rank int64) uint64 {
	if id, ok := p.known[path]; ok {
		return id
	}
	id := digest("track", path)
	p.known[path] = id
	p.declare(id, parent, name, rank)
	return id
}

func (p *painter) worker(name string) uint64 { return p.track(0, "w\x00"+name, name, 0) }

func (p *painter) block(id spec.BlockID) (*blockTrack, error) {
	if b := p.blocks[id]; b != nil {
		return b, nil
	}
	if len(p.blocks) == maxBlockTracks {
		return nil, &LimitError{"blocks", maxBlockTracks}
	}
	pool := p.track(p.worker(id.Worker), "p\x00"+id.Worker+"\x00"+id.Pool, id.Pool, 0)
	b := &blockTrack{id: digest("block", id.Worker, id.Pool, fmt.Sprint(id.Number)), parent: pool}
	p.declare(b.id, pool, fmt.Sprintf("%s %d", id.Pool, id.Number), min(id.Number, math.MaxInt32))
	p.blocks[id] = b
	return b, nil
}

// each calls f for each block of an event.
func (p *painter) each(e *spec.Event, worker string, f func(*blockTrack)) error {
	n := e.Blocks.Len()
	if n > maxBlockEvents || p.drawn+n > maxBlockEvents {
		return &LimitError{"events of blocks", maxBlockEvents}
	}
	p.drawn += n
	for number := range e.Blocks.All {
		b, err := p.block(spec.BlockID{Worker: worker, Pool: e.Pool, Number: number})
		if err != nil {
			return err
		}
		f(b)
	}
	return nil
}

// mutation draws what happened to leases.
func (p *painter) mutation(e *spec.Event, worker string, at uint64) error {
	return p.each(e, worker, func(b *blockTrack) {
		b.last = max(b.last, at)
		switch {
		case e.K == spec.KindAlloc:
			if b.leased {
				p.finish(b.id, b.last)
			}
			b.leased = true
			p.slice(b.id, b.last, e.Holder, "lease", e)
		case e.K == spec.KindFree && b.leased:
			b.leased = false
			p.finish(b.id, b.last)
		default:
			p.instant(b.id, b.last, title(e), "lease", e)
		}
	})
}

func (p *painter) begin(e *spec.Event, worker string, at uint64) error {
	ended, over := p.ended[e.Access]
	delete(p.ended, e.Access)
	var all []openSlice
	name := word(e.Mode, "r", "read", "write") + " by " + worker
	err := p.each(e, e.Target, func(b *blockTrack) {
		n := b.free(at)
		if n == len(b.lanes) {
			l := lane{id: digest("lane", fmt.Sprint(b.id), fmt.Sprint(n))}
			p.declare(l.id, b.id, "accesses", int64(n))
			b.lanes = append(b.lanes, l)
		}
		l := &b.lanes[n]
		l.busy, l.last = true, at
		p.slice(l.id, at, name, "access", e)
		all = append(all, openSlice{b, n})
	})
	p.open[e.Access] = all
	if over {
		p.close(e.Access, uint64(ended))
	}
	return err
}

// free is the first lane on which an access can begin.
func (b *blockTrack) free(at uint64) int {
	for i := range b.lanes {
		if !b.lanes[i].busy && b.lanes[i].last <= at {
			return i
		}
	}
	return len(b.lanes)
}

func (p *painter) end(e *spec.Event, at uint64) {
	if _, begun := p.open[e.Access]; !begun {
		p.ended[e.Access] = int64(at)
		return
	}
	p.close(e.Access, at)
}

func (p *painter) close(access string, at uint64) {
	for _, s := range p.open[access] {
		l := &s.block.lanes[s.lane]
		l.busy, l.last = false, max(l.last, at)
		p.finish(l.id, l.last)
	}
	delete(p.open, access)
}

// said draws what was said and decided, on the thread's track.
func (p *painter) said(e *spec.Event, from origin, at uint64) {
	thread := p.thread(e, from)
	switch e.K {
	case spec.KindEmit:
		p.instant(thread, at, title(e), "signal", e, flow{id: digest("sig", e.Sig)})
	case spec.KindObserve:
		p.instant(thread, at, title(e), "signal", e, flow{id: digest("sig", e.Sig), ends: true})
	default:
		p.instant(thread, at, title(e), category(e.K), e)
	}
}

func (p *painter) thread(e *spec.Event, from origin) uint64 {
	return p.track(p.worker(from.worker), "t\x00"+e.Src+"\x00"+e.Th, e.Src+" "+e.Th, 0)
}

// mark draws a finding: once among all findings, and once where its event is.
func (p *painter) mark(m mark, e *spec.Event, from origin, at uint64) {
	name := fmt.Sprintf("%s %s", m.finding.Rule, m.finding.Verdict)
	all := p.track(0, "findings", "findings", 0)
	p.instant(all, at, name, "finding", e, about(m.finding))
	on := p.thread(e, from)
	if m.finding.Block != nil && e.Blocks.Contains(m.finding.Block.Number) {
		if b := p.blocks[*m.finding.Block]; b != nil {
			on, at = b.id, max(at, b.last)
		}
	}
	p.instant(on, at, name, "finding", e, about(m.finding), flow{id: digest("finding", fmt.Sprint(m.nth))})
}
