package traces

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"

	"conform/spec"
)

// reader is the state of reading one trace. It checks each line as it comes, and
// what depends on lines that may come later (deferred) at the end.
type reader struct {
	lim   Limits
	total int64 // bytes of lines so far
	fast  *fastParser
	count int // of events so far
	// expected is how many events the first chunk gets room for.
	expected int
	// events grow by chunks: an event is large, and chunks are never moved.
	events [][]spec.Event
	losses []spec.Loss
	// each is given every event, and none is kept; nil to keep all. See [Walk].
	each   func(*spec.Event) error
	walked spec.Event
	late   map[lateID]int64

	sources  map[string]*source
	workers  map[string][]*source
	pools    map[poolID]pool
	mutators map[poolID]string // the source that mutates a pool
	accesses map[string]access
	sigs     map[string]struct{}

	// deferred are the events that name a pool which was not declared when they
	// were read.
	deferred []*spec.Event
	// unnamed is set where a torn file never said whose it was: its source may
	// have declared any pool.
	unnamed bool
}

type poolID struct{ worker, pool string }

type pool struct {
	count int64
	by    spec.EventID // the declaration
}

// access says which of its two lines have been seen.
type access struct{ begun, ended bool }

// file is one stream of lines.
type file struct {
	name      string
	oneSource bool // it may hold one source only
	sources   []*source
}

type source struct {
	name    string
	worker  string
	file    *file
	next    uint64           // the least seq that may come
	threads map[string]int64 // the last t of each
	lines   int64
	sum     hash.Hash // over the lines so far, each with its line feed
	sealed  bool
	lost    bool
	lostAt  uint64 // the first seq that may be missing, where lost
}

func newReader(lim Limits) *reader {
	return &reader{
		lim:      lim,
		sources:  map[string]*source{},
		workers:  map[string][]*source{},
		pools:    map[poolID]pool{},
		mutators: map[poolID]string{},
		accesses: map[string]access{},
		sigs:     map[string]struct{}{},
		fast:     newFastParser(),
	}
}

// line checks one complete line and keeps its event.
func (r *reader) line(f *file, pos spec.Position, line []byte) error {
	r.total += int64(len(line)) + 1
	if r.total > r.lim.TotalBytes {
		return bad(fmt.Sprintf("at most %d bytes, decompressed", r.lim.TotalBytes), "more lines")
	}
	if r.count >= r.lim.Events {
		return bad(fmt.Sprintf("at most %d events", r.lim.Events), "one more event")
	}
	e := r.place()
	if !r.fast.event(line, e) {
		parsed, err := spec.ParseEvent(line)
		if err != nil {
			return err
		}
		*e = parsed
	}
	e.Pos = pos
	s, err := r.sourceOf(f, e)
	if err != nil {
		return err
	}
	if err := r.order(s, e); err != nil {
		return err
	}
	if err := r.kind(s, e); err != nil {
		return err
	}
	s.lines++
	s.sum.Write(line)
	s.sum.Write([]byte{'\n'})
	if r.each != nil {
		return r.each(e)
	}
	return nil
}

// place returns a zero event of the trace.
func (r *reader) place() *spec.Event {
	if r.each != nil {
		r.count++
		r.walked = spec.Event{}
		return &r.walked
	}
	const least, most = 64, 4096
	last := len(r.events) - 1
	if last < 0 || len(r.events[last]) == cap(r.events[last]) {
		size := max(least, r.expected)
		if last >= 0 {
			size = min(2*cap(r.events[last]), most)
		}
		r.events = append(r.events, make([]spec.Event, 0, size))
		last++
	}
	r.events[last] = append(r.events[last], spec.Event{})
	r.count++
	return &r.events[last][len(r.events[last])-1]
}

// sourceOf finds the source of a line, which its first line makes known.
func (r *reader) sourceOf(f *file, e *spec.Event) (*source, error) {
	if f.oneSource && len(f.sources) > 0 && f.sources[0].name != e.Src {
		return nil, bad(fmt.Sprintf("lines of source %s alone: in a run directory each file holds one", quote(f.sources[0].name)),
			"a line of source %s", quote(e.Src))
	}
	s := r.sources[e.Src]
	switch {
	case s == nil && e.K != spec.KindSource:
		return nil, bad("its source line first", "an event of source %s before its source line", quote(e.Src))
	case s == nil:
		s = &source{name: e.Src, worker: e.Worker, file: f, threads: map[string]int64{}, sum: sha256.New()}
		r.sources[e.Src] = s
		f.sources = append(f.sources, s)
		r.workers[e.Worker] = append(r.workers[e.Worker], s)
	case e.K == spec.KindSource:
		return nil, bad("one source line for each source", "a second source line of %s", quote(e.Src))
	case s.sealed:
		return nil, bad("nothing of a source after its seal", "an event of source %s after its seal", quote(e.Src))
	case s.file != f:
		return nil, bad("each source in one file", "source %s, which %s holds already", quote(e.Src), s.file.name)
	}
	return s, nil
}

// order checks seq and time, and notes a gap.
func (r *reader) order(s *source, e *spec.Event) error {
	if e.Seq < s.next {
		return bad(fmt.Sprintf("a seq of %s from %d on", quote(s.name), s.next), "seq %d, a duplicate or out of order", e.Seq)
	}
	if e.Seq > s.next {
		r.lose(s, s.next, e.Pos, fmt.Sprintf("a gap: seq %d to %d are missing", s.next, e.Seq-1))
	}
	s.next = e.Seq + 1
	if last, ok := s.threads[e.Th]; ok && e.T < last {
		return bad(fmt.Sprintf("t from %d on in thread %s", last, quote(e.Th)), "t %d, earlier than the line before it", e.T)
	}
	s.threads[e.Th] = e.T
	return nil
}

// kind checks what one kind asks for beside its own fields.
func (r *reader) kind(s *source, e *spec.Event) error {
	switch e.K {
	case spec.KindPool:
		id := poolID{s.worker, e.Pool}
		if _, ok := r.pools[id]; ok {
			return bad("one declaration of each pool", "pool %s of worker %s declared twice", quote(e.Pool), quote(s.worker))
		}
		r.pools[id] = pool{e.Count, e.ID()}
	case spec.KindBegin:
		a := r.accesses[e.Access]
		if a.begun {
			return bad("an access that is unique in the trace", "a second begin of access %s", quote(e.Access))
		}
		a.begun = true
		r.accesses[e.Access] = a
		return r.blocks(e, e.Target)
	case spec.KindEnd:
		a := r.accesses[e.Access]
		if a.ended {
			return bad("one end of each access", "a second end of access %s", quote(e.Access))
		}
		a.ended = true
		r.accesses[e.Access] = a
	case spec.KindEmit:
		if _, ok := r.sigs[e.Sig]; ok {
			return bad("a sig that is unique in the trace", "a second emit of sig %s", quote(e.Sig))
		}
		r.sigs[e.Sig] = struct{}{}
	case spec.KindLost:
		if e.Count > 0 {
			r.lose(s, e.Seq, e.Pos, fmt.Sprintf("the recorder lost %d events", e.Count))
		}
	case spec.KindSeal:
		return seal(s, e)
	}
	if e.K.Mutates() {
		return r.mutation(s, e)
	}
	return nil
}

func seal(s *source, e *spec.Event) error {
	if e.Events != s.lines {
		return bad(fmt.Sprintf("%d, the number of its earlier lines", s.lines), "a seal of %d events", e.Events)
	}
	if sum := hex.EncodeToString(s.sum.Sum(nil)); e.Sum != sum {
		return bad("the SHA-256 of its earlier lines, "+sum, "a seal with the sum %s", quote(e.Sum))
	}
	s.sealed = true
	return nil
}

func (r *reader) mutation(s *source, e *spec.Event) error {
	id := poolID{s.worker, e.Pool}
	if by, ok := r.mutators[id]; ok && by != s.name {
		return bad(fmt.Sprintf("mutations of one pool from one source, here %s", quote(by)),
			"%s of pool %s of worker %s by source %s", e.K, quote(e.Pool), quote(s.worker), quote(s.name))
	}
	r.mutators[id] = s.name
	return r.blocks(e, s.worker)
}

// blocks checks the blocks of an event against the pool, which may be declared
// in lines that come later.
func (r *reader) blocks(e *spec.Event, worker string) error {
	p, ok := r.pools[poolID{worker, e.Pool}]
	if !ok && r.each != nil {
		r.putOff(e, worker)
		return nil
	}
	if !ok {
		r.deferred = append(r.deferred, e)
		return nil
	}
	return p.holds(e, worker)
}

func (p pool) holds(e *spec.Event, worker string) error {
	n := e.Blocks.Max()
	if n < p.count {
		return nil
	}
	return bad(fmt.Sprintf("a block below %d, the count of pool %s of worker %s", p.count, quote(e.Pool), quote(worker)),
		"block %d", n)
}

// checkDeferred checks what had to wait for the last line.
func (r *reader) checkDeferred() error {
	for _, e := range r.deferred {
		if err := r.blocksLate(e); err != nil {
			return at(e.Pos, err)
		}
	}
	return nil
}

// finish checks what had to wait for the last line, and hands out the trace.
func (r *reader) finish() (*spec.Trace, error) {
	if err := r.checkDeferred(); err != nil {
		return nil, err
	}
	if len(r.events) == 1 {
		return &spec.Trace{Events: slices.Clip(r.events[0]), Losses: r.losses}, nil
	}
	return &spec.Trace{Events: slices.Concat(r.events...), Losses: r.losses}, nil
}

// blocksLate is blocks for an event whose pool was not declared when it was read.
func (r *reader) blocksLate(e *spec.Event) error {
	worker := e.Target
	if e.K.Mutates() {
		worker = r.sources[e.Src].worker
	}
	p, declared := r.pools[poolID{worker, e.Pool}]
	// The lines of one source were read in its own order.
	tooLate := declared && e.K.Mutates() && p.by.Src == e.Src
	switch {
	case declared && !tooLate:
		return p.holds(e, worker)
	case r.mayBeLost(e, worker):
		return nil
	case tooLate:
		return bad("the declaration of a pool before its first use",
			"pool %s of worker %s, declared later", quote(e.Pool), quote(worker))
	}
	return bad("a declared pool", "pool %s, which no source of worker %s declares", quote(e.Pool), quote(worker))
}

// mayBeLost reports whether a loss may have taken the declaration of a pool of
// worker that e names. A worker without any source recorded nothing at all.
func (r *reader) mayBeLost(e *spec.Event, worker string) bool {
	sources := r.workers[worker]
	if r.unnamed || len(sources) == 0 {
		return true
	}
	for _, s := range sources {
		if s.lost && (s.name != e.Src || s.lostAt <= e.Seq) {
			return true
		}
	}
	return false
}

// torn notes the loss of each source that the torn end of f may belong to.
func (r *reader) torn(f *file, pos spec.Position, why string) error {
	if len(f.sources) == 0 {
		r.unnamed = true
		r.losses = append(r.losses, spec.Loss{Src: stem(f.name), Why: why + " before any source line", Pos: pos})
		return nil
	}
	open := false
	for _, s := range f.sources {
		if !s.sealed {
			open = true
			r.lose(s, s.next, pos, why)
		}
	}
	if !open {
		return bad("nothing after the seal", "%s after the seal of the source that it belongs to", why)
	}
	return nil
}

func (r *reader) lose(s *source, next uint64, pos spec.Position, why string) {
	if !s.lost {
		s.lost, s.lostAt = true, next
	}
	r.losses = append(r.losses, spec.Loss{Src: s.name, Next: next, Why: why, Pos: pos})
}
