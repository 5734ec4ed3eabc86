package check

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"conform/spec"
)

// ErrNoFinding is the error for a finding that is not about the given trace: one
// of its events is not there.
var ErrNoFinding = errors.New("the trace has no such finding")

// slicer cuts parts out of a trace, around a finding: what it rests on is the
// events of its block, handoff and request and of those linked to them, the signals
// that concern them, and the lines that say what exists. Lists of blocks are cut
// down to the blocks that remain.
//
// A part is a valid trace in its own right. Its sources number their events
// anew and without gaps, but for one wherever events of the whole trace were
// lost; ids, times, threads and block numbers stay as they are, and a source that
// was sealed is sealed. [WriteTrace] writes it.
//
// Judging it need not give the same finding: what a signal of another request
// tells about the clocks is left out. [Shrink] is for that. It is linear in the
// length of the trace.
type slicer struct {
	h       *history
	finding Finding
	witness []int32 // the finding's events
	pinned  map[int32]bool
}

// slicerOf indexes a trace to cut parts out of it.
func slicerOf(tr *spec.Trace, f Finding) (*slicer, error) {
	h, err := newHistory(tr)
	if err != nil {
		return nil, err
	}
	return newSlicer(h, f)
}

func newSlicer(h *history, f Finding) (*slicer, error) {
	s := &slicer{h: h, finding: f, pinned: map[int32]bool{}}
	want := map[spec.EventID]bool{}
	for _, id := range f.Events {
		want[id] = true
	}
	at := map[spec.EventID]int32{}
	for i := range h.ev {
		if id := h.ev[i].ID(); want[id] {
			at[id] = int32(i)
		}
	}
	for _, id := range f.Events {
		e, ok := at[id]
		if !ok {
			return nil, fmt.Errorf("%w: it names %s#%d", ErrNoFinding, id.Src, id.Seq)
		}
		s.witness = append(s.witness, e)
		s.pinned[e] = true
	}
	return s, nil
}

// selection is a part of a trace: some of its events, and of lists of blocks only
// some numbers.
type selection struct {
	events []int32 // in the order of the trace
	// numbers are the blocks kept of each pool. A pool that is not in the map
	// keeps all.
	numbers map[int32]map[int64]bool
}

// part is a selection as a trace, and which event of the whole each of its is,
// none for a mark of what was lost.
type part struct {
	trace *spec.Trace
	from  []int32
}

// around selects what the finding is about.
func (s *slicer) around() selection {
	return s.selectFor(s.namesOf(s.witness), s.blocksOf(nil), false)
}

// widened is around with all that touches the same blocks, and with every signal
// between clocks.
func (s *slicer) widened() selection {
	blocks := s.blocksOf(s.witness)
	named := s.namesOf(s.witness)
	for i := range s.h.ev {
		e := &s.h.ev[i]
		if p := s.poolOf(int32(i)); p != none && e.Blocks != nil && overlaps(e.Blocks, blocks[p]) {
			named = append(named, s.namesOf([]int32{int32(i)})...)
		}
	}
	slices.Sort(named)
	return s.selectFor(slices.Compact(named), blocks, true)
}

// everything selects the whole trace.
func (s *slicer) everything() selection {
	sel := selection{events: make([]int32, len(s.h.ev))}
	for i := range sel.events {
		sel.events[i] = int32(i)
	}
	return sel
}

// namesOf lists the handoffs and requests that the finding and some events name,
// and two steps of links: a signal concerns what is linked to what it names, and
// so does the access that it speaks of.
func (s *slicer) namesOf(events []int32) []int32 {
	named := []int32{s.h.names.of(s.finding.Handoff, false), s.h.names.of(s.finding.Req, true)}
	for _, e := range events {
		handoff, req := s.h.named(e)
		named = append(named, handoff, req)
		if id, ok := s.h.accessID[s.h.ev[e].Access]; ok {
			named = append(named, s.h.accesses[id].handoff, s.h.accesses[id].req)
		}
		if emit := s.h.emitOf[e]; emit != none {
			handoff, req = s.h.named(emit)
			named = append(named, handoff, req)
		}
	}
	return s.h.names.concern(s.h.names.concern(named...)...)
}

// blocksOf lists the blocks of the finding and of some events, by pool.
func (s *slicer) blocksOf(events []int32) map[int32]map[int64]bool {
	out := map[int32]map[int64]bool{}
	add := func(p int32, n int64) {
		if out[p] == nil {
			out[p] = map[int64]bool{}
		}
		out[p][n] = true
	}
	if b := s.finding.Block; b != nil {
		if w, ok := s.h.workerID[b.Worker]; ok {
			if p, ok := s.h.poolID[poolKey{w, b.Pool}]; ok {
				add(p, b.Number)
			}
		}
	}
	for _, e := range events {
		if p := s.poolOf(e); p != none && s.h.ev[e].Blocks.Len() <= maxSliced {
			for n := range s.h.ev[e].Blocks.All {
				add(p, n)
			}
		}
	}
	return out
}

// maxSliced bounds the blocks of one event that a slice is widened to.
const maxSliced = 1 << 16

// poolOf is the pool that an event acts on: that of a mutation, or the target of
// an access.
func (s *slicer) poolOf(e int32) int32 {
	ev := &s.h.ev[e]
	if ev.K == spec.KindBegin {
		if id, ok := s.h.accessID[ev.Access]; ok && s.h.accesses[id].begin == e {
			return s.h.accesses[id].pool
		}
	}
	return s.h.poolOf[e]
}

func overlaps(b spec.Blocks, numbers map[int64]bool) bool {
	if b.Len() < int64(len(numbers)) {
		for n := range b.All {
			if numbers[n] {
				return true
			}
		}
		return false
	}
	for n := range numbers {
		if b.Contains(n) {
			return true
		}
	}
	return false
}

// selectFor selects the events of some names and blocks. Of other holders of
// these blocks it keeps who held them, which says what was free when, and
// nothing else.
func (s *slicer) selectFor(names []int32, blocks map[int32]map[int64]bool, clocks bool) selection {
	wanted := map[int32]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	h := s.h
	concerns := func(e int32) bool {
		handoff, req := h.named(e)
		return wanted[handoff] || wanted[req]
	}
	if len(blocks) == 0 {
		blocks = s.touchedBy(concerns)
	}
	sel := selection{numbers: blocks}
	for i := range h.ev {
		if e := int32(i); s.belongs(e, concerns, blocks) || clocks && s.ties(e) {
			sel.events = append(sel.events, e)
		}
	}
	return sel
}

// touchedBy lists the blocks that some events act on.
func (s *slicer) touchedBy(concerns func(int32) bool) map[int32]map[int64]bool {
	var events []int32
	for i := range s.h.ev {
		if e := int32(i); s.poolOf(e) != none && concerns(e) {
			events = append(events, e)
		}
	}
	return s.blocksOf(events)
}

func (s *slicer) belongs(e int32, concerns func(int32) bool, blocks map[int32]map[int64]bool) bool {
	h, ev := s.h, &s.h.ev[e]
	if s.pinned[e] {
		return true
	}
	switch ev.K {
	case spec.KindSource, spec.KindPool, spec.KindSeal, spec.KindClockCmp:
		return true // cut keeps those of the sources that remain
	case spec.KindIdle, spec.KindNote, spec.KindLost, spec.KindCapacity:
		return false
	case spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree:
		return overlaps(ev.Blocks, blocks[h.poolOf[e]])
	case spec.KindBegin, spec.KindGrant, spec.KindRevoke:
		return concerns(e) && overlaps(ev.Blocks, blocks[s.poolOf(e)])
	case spec.KindEnd:
		id, ok := h.accessID[ev.Access]
		return ok && s.belongs(h.accesses[id].begin, concerns, blocks)
	case spec.KindObserve:
		return concerns(e) || h.emitOf[e] != none && concerns(h.emitOf[e])
	case spec.KindFault:
		id, ok := h.accessID[ev.Access]
		return concerns(e) || ok && concerns(h.accesses[id].begin)
	}
	return concerns(e)
}

// ties reports whether an event is of a signal between two clocks.
func (s *slicer) ties(e int32) bool {
	h := s.h
	if h.emitOf[e] != none {
		return h.clockOf[h.emitOf[e]] != h.clockOf[e]
	}
	return h.ev[e].K == spec.KindEmit && slices.ContainsFunc(h.observes[e], func(o int32) bool { return h.clockOf[o] != h.clockOf[e] })
}

// cut makes a trace of a selection. Whatever its events need to be one comes
// along or goes: sources that have a line left keep the first and the seal, pools
// that are acted on are declared, an end goes with its begin.
func (s *slicer) cut(sel selection) part {
	keep := s.needed(sel)
	c := cutting{s: s, sel: sel, next: make([]uint64, len(s.h.sources)), epoch: make([]int32, len(s.h.sources)), tail: make([]int32, len(s.h.sources))}
	for i := range c.tail {
		c.tail[i] = none
	}
	for _, e := range keep {
		c.tail[s.h.srcOf[e]] = e
	}
	c.out.trace = &spec.Trace{Events: make([]spec.Event, 0, len(keep))}
	for _, e := range keep {
		c.add(e)
	}
	Reseal(c.out.trace.Events)
	return c.out
}

// needed lists what of a selection remains, with what it needs.
func (s *slicer) needed(sel selection) []int32 {
	h := s.h
	used := make([]bool, len(h.sources))
	pools := make([]bool, len(h.pools))
	declared := map[int32]bool{}
	for _, e := range sel.events {
		declared[e] = h.ev[e].K == spec.KindSource
	}
	in := func(src int32) bool {
		decl := h.sources[src].decl
		return decl == none || declared[decl]
	}
	left := func(e int32) bool {
		p := s.poolOf(e)
		return in(h.srcOf[e]) && (p == none || sel.numbers[p] == nil || h.ev[e].Blocks == nil || overlaps(h.ev[e].Blocks, sel.numbers[p]))
	}
	begun := map[int32]bool{}
	for _, e := range sel.events {
		if id, ok := h.accessID[h.ev[e].Access]; ok && h.ev[e].K == spec.KindBegin {
			begun[id] = left(e)
		}
	}
	var kept []int32
	for _, e := range sel.events {
		ev, src, p := &h.ev[e], h.srcOf[e], s.poolOf(e)
		id, known := h.accessID[ev.Access]
		if !left(e) || ev.K == spec.KindLost || ev.K == spec.KindEnd && known && !begun[id] {
			continue
		}
		kept = append(kept, e)
		switch ev.K {
		case spec.KindSource, spec.KindPool, spec.KindSeal, spec.KindClockCmp:
			continue
		}
		used[src] = true
		if p != none {
			pools[p] = true
			used[h.pools[p].src] = true
		}
	}
	for _, e := range s.witness {
		used[h.srcOf[e]] = used[h.srcOf[e]] || in(h.srcOf[e])
	}
	for i := range h.sources {
		used[i] = used[i] || h.sources[i].lost() && in(int32(i))
	}
	return slices.DeleteFunc(kept, func(e int32) bool {
		if ev := &h.ev[e]; ev.K == spec.KindPool {
			return !pools[h.poolID[poolKey{h.workerOf(e), ev.Pool}]]
		}
		return !used[h.srcOf[e]]
	})
}

// cutting is the state of cut.
type cutting struct {
	s     *slicer
	sel   selection
	out   part
	next  []uint64 // of each source: its next seq
	epoch []int32  // the losses before its last event
	tail  []int32  // its last event
}

func (c *cutting) add(e int32) {
	h := c.s.h
	src := h.srcOf[e]
	if h.epochOf[e] > c.epoch[src] {
		c.epoch[src] = h.epochOf[e]
		c.next[src]++ // a gap: something was lost here
	}
	ev := h.ev[e]
	ev.Seq = c.next[src]
	c.next[src]++
	if p := c.s.poolOf(e); p != none && c.sel.numbers[p] != nil {
		ev.Blocks = within(ev.Blocks, c.sel.numbers[p])
	}
	c.put(ev, e)
	if losses := len(h.sources[src].losses); c.tail[src] == e && int(c.epoch[src]) < losses {
		c.put(spec.Event{Src: ev.Src, Seq: c.next[src], T: ev.T, T2: ev.T, Th: ev.Th, K: spec.KindLost, Count: 1}, none)
	}
}

func (c *cutting) put(ev spec.Event, from int32) {
	c.out.trace.Events = append(c.out.trace.Events, ev)
	c.out.from = append(c.out.from, from)
}

// within cuts a list of blocks down to some numbers.
func within(b spec.Blocks, numbers map[int64]bool) spec.Blocks {
	var left []int64
	if b.Len() < int64(len(numbers)) {
		for n := range b.All {
			if numbers[n] {
				left = append(left, n)
			}
		}
		return spec.MakeBlocks(left...)
	}
	for n := range numbers {
		if b.Contains(n) {
			left = append(left, n)
		}
	}
	slices.Sort(left)
	return spec.MakeBlocks(left...)
}

// Reseal gives each seal the count and the sum of its source's lines as
// [WriteTrace] writes them.
func Reseal(events []spec.Event) {
	type lines struct {
		n   int64
		sum hash.Hash
	}
	of := map[string]*lines{}
	var buf []byte
	for i := range events {
		e := &events[i]
		l := of[e.Src]
		if l == nil {
			l = &lines{sum: sha256.New()}
			of[e.Src] = l
		}
		if e.K == spec.KindSeal {
			e.Events, e.Sum = l.n, hex.EncodeToString(l.sum.Sum(nil))
			continue
		}
		buf = append(e.AppendJSON(buf[:0]), '\n')
		l.n++
		l.sum.Write(buf)
	}
}

// WriteTrace writes a trace as JSON Lines, all sources in one file, in the order
// of its events. It cannot say what was lost but by what is in the events
// themselves: gaps in seq, and events of kind lost.
func WriteTrace(w io.Writer, tr *spec.Trace) error {
	var buf []byte
	for i := range tr.Events {
		buf = append(tr.Events[i].AppendJSON(buf[:0]), '\n')
		if _, err := w.Write(buf); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	}
	return nil
}
