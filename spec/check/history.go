package check

import (
	"cmp"
	"math"
	"slices"

	"conform/spec"
	"conform/spec/check/clock"
)

// none is the index of nothing: an event, a lease or a name that is not there.
const none = int32(-1)

// Limits on what a trace may make a judge spend. They are far above what a run
// produces; a trace beyond them is an attack or a mistake.
const (
	maxClocks   = 512
	maxBlockOps = 20_000_000 // block numbers over all mutations and accesses
	// maxEventBlocks bounds the block numbers of one event. It is a prompt of 262,144
	// tokens in blocks of one.
	maxEventBlocks = 1 << 18
	// opsPerEvent bounds what is left of the block numbers after [history.fold], on
	// average: each takes about a kilobyte.
	opsPerEvent = 64
	// freeChoices, and opsPerEvent for each event, bound the leases that accesses may
	// belong to, one for each block and lease. A request of a recorded stack holds a
	// block once, perhaps twice.
	freeChoices = 1 << 21
)

// history is the trace as the judges look it up. Events are named by their
// index in the trace, everything else by its index in a list here.
type history struct {
	ev      []spec.Event
	srcOf   []int32
	clockOf []int32
	thread  []int32 // of each event
	pos     []int32 // in its thread
	poolOf  []int32 // of a mutation, none for the rest
	poolPos []int32
	epochOf []int32 // how many losses of its source lie before the event
	emitOf  []int32 // of an observe, none for the rest and for an unknown sig

	sources  []source
	srcIndex map[string]int32
	workers  []string
	roles    [][]spec.Role // of each worker
	workerID map[string]int32
	clocks   []string
	clockID  map[string]int32
	zero     []int64 // of each clock: the time that relative times count from
	driftPPM int64   // by how much the clocks' rates may differ
	threads  [][]int32
	threadID map[spec.Thread]int32

	names    names
	pools    []pool
	poolID   map[poolKey]int32
	accesses []access
	accessID map[string]int32
	emits    []int32
	observes map[int32][]int32 // of an emit
	emitting map[int32][]int32 // of a name: the emits that name it
	fences   map[fenceKey][]int32
	byKind   map[spec.Kind][]int32
	folded   *folded // nil where the blocks of the events are judged one by one
	// slice is set where the trace is the core of a longer one.
	slice *sliceOf
	// unknownEnds are ends of accesses that no begin of the trace started.
	unknownEnds []int32
}

type poolKey struct {
	worker int32
	name   string
}

// fenceKey names the accesses that a fence ends: those by others, to this
// worker's blocks, under this handoff.
type fenceKey struct{ worker, handoff int32 }

type source struct {
	name    string
	worker  int32
	role    spec.Role
	clock   int32
	decl    int32
	seal    int32
	last    int32 // its last event
	losses  []spec.Loss
	lastSeq uint64
}

func (s *source) lost() bool { return len(s.losses) > 0 }

type pool struct {
	worker int32
	name   string
	src    int32 // that mutates it, else that declared it
	muts   []int32
	// whole is the number of mutations before the first loss of the source: up to
	// there, none is missing.
	whole int
}

type access struct {
	id           string
	begin, end   int32
	by           int32 // worker
	src          int32 // of the begin
	pool         int32 // none if the target worker did not record it
	target       int32 // worker, none if no source of the trace is of it
	handoff, req int32 // names
}

// names holds handoffs and requests, and which of them are linked: any event
// that names a handoff and a request links the two.
type names struct {
	id     map[nameKey]int32
	text   []string
	isReq  []bool
	links  [][]int32
	linked map[[2]int32]bool
}

type nameKey struct {
	text string
	req  bool
}

func (n *names) of(text string, req bool) int32 {
	if text == "" {
		return none
	}
	k := nameKey{text, req}
	if id, ok := n.id[k]; ok {
		return id
	}
	id := int32(len(n.text))
	n.id[k] = id
	n.text, n.isReq, n.links = append(n.text, text), append(n.isReq, req), append(n.links, nil)
	return id
}

func (n *names) link(a, b int32) {
	if a == none || b == none || n.linked[[2]int32{a, b}] {
		return
	}
	n.linked[[2]int32{a, b}] = true
	n.links[a] = append(n.links[a], b)
	n.links[b] = append(n.links[b], a)
}

// concern is what an event that names these concerns: them, and those linked to
// them.
func (n *names) concern(named ...int32) []int32 {
	var out []int32
	for _, a := range named {
		if a == none {
			continue
		}
		out = append(out, a)
		out = append(out, n.links[a]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// requests lists the requests that a handoff and a request, either of which may
// be none, speak of: the request if there is one, else those linked.
func (n *names) requests(handoff, req int32) []int32 {
	if req != none {
		return []int32{req}
	}
	if handoff == none {
		return nil
	}
	return n.links[handoff]
}

// newHistory indexes the trace. Whatever a reader should have refused is taken
// as it stands where it has a meaning, and is left out otherwise.
func newHistory(tr *spec.Trace) (*history, error) { return newHistoryOf(tr, nil) }

// newHistoryOf is newHistory of what may be the core of a longer trace.
func newHistoryOf(tr *spec.Trace, slice *sliceOf) (*history, error) {
	n := len(tr.Events)
	if n >= math.MaxInt32/2 {
		return nil, &LimitError{"events", math.MaxInt32 / 2}
	}
	h := &history{
		ev: tr.Events, srcOf: make([]int32, n), clockOf: make([]int32, n), thread: make([]int32, n), pos: make([]int32, n),
		poolOf: make([]int32, n), poolPos: make([]int32, n), epochOf: make([]int32, n), emitOf: make([]int32, n),
		srcIndex: map[string]int32{}, workerID: map[string]int32{}, clockID: map[string]int32{},
		threadID: map[spec.Thread]int32{}, poolID: map[poolKey]int32{}, accessID: map[string]int32{},
		observes: map[int32][]int32{}, emitting: map[int32][]int32{}, fences: map[fenceKey][]int32{}, byKind: map[spec.Kind][]int32{},
		names: names{id: map[nameKey]int32{}, linked: map[[2]int32]bool{}},
		slice: slice,
	}
	h.addSources(tr)
	if len(h.clocks) > maxClocks {
		return nil, &LimitError{"clocks", maxClocks}
	}
	for i := range h.ev {
		h.place(int32(i))
	}
	h.setZeros()
	h.countLosses()
	sigs := map[string]int32{}
	for i := range h.ev {
		if !slice.carries(i) {
			h.index(int32(i), sigs)
		}
	}
	for i := range h.ev {
		if !slice.carries(i) {
			h.pair(int32(i), sigs)
		}
	}
	if err := h.fold(foldFrom); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *history) worker(name string) int32 {
	id, ok := h.workerID[name]
	if !ok {
		id = int32(len(h.workers))
		h.workerID[name] = id
		h.workers = append(h.workers, name)
		h.roles = append(h.roles, nil)
	}
	return id
}

func (h *history) clock(name string) int32 {
	id, ok := h.clockID[name]
	if !ok {
		id = int32(len(h.clocks))
		h.clockID[name] = id
		h.clocks = append(h.clocks, name)
		h.zero = append(h.zero, math.MaxInt64)
	}
	return id
}

// addSources declares the sources and finds out which of them are lost.
func (h *history) addSources(tr *spec.Trace) {
	for i := range h.ev {
		e := &h.ev[i]
		if e.K == spec.KindClockCmp {
			h.clock(e.Clock)
		}
		if e.K != spec.KindSource || h.hasSource(e.Src) {
			continue
		}
		s := source{name: e.Src, worker: h.worker(e.Worker), role: e.Role, clock: h.clock(e.Clock), decl: int32(i), seal: none, last: none}
		h.roles[s.worker] = append(h.roles[s.worker], e.Role)
		h.srcIndex[e.Src] = int32(len(h.sources))
		h.sources = append(h.sources, s)
	}
	for _, l := range tr.Losses {
		if id, ok := h.srcIndex[l.Src]; ok {
			h.sources[id].losses = append(h.sources[id].losses, l)
		}
	}
}

func (h *history) hasSource(src string) bool {
	_, ok := h.srcIndex[src]
	return ok
}

// source finds the source of an event; one that no source line declares is
// taken for a worker and a clock of its own.
func (h *history) source(e *spec.Event) int32 {
	id, ok := h.srcIndex[e.Src]
	if !ok {
		id = int32(len(h.sources))
		h.srcIndex[e.Src] = id
		h.sources = append(h.sources, source{name: e.Src, worker: h.worker("?" + e.Src), clock: h.clock("?" + e.Src), decl: none, seal: none, last: none})
	}
	return id
}

// place puts an event into its source, thread, clock and pool.
func (h *history) place(i int32) {
	e := &h.ev[i]
	si := h.source(e)
	s := &h.sources[si]
	h.srcOf[i], h.clockOf[i] = si, s.clock
	expected := s.lastSeq + 1
	if s.last == none {
		expected = 0
	}
	if e.Seq > expected && h.slice == nil {
		s.losses = append(s.losses, spec.Loss{Src: e.Src, Next: expected, Why: "a gap in seq", Pos: e.Pos})
	}
	if e.K == spec.KindLost && e.Count > 0 {
		s.losses = append(s.losses, spec.Loss{Src: e.Src, Next: e.Seq, Why: "events that the recorder dropped", Pos: e.Pos})
	}
	s.last, s.lastSeq = i, e.Seq
	if e.K == spec.KindSeal {
		s.seal = i
	}
	th := spec.Thread{Src: e.Src, Th: e.Th}
	ti, ok := h.threadID[th]
	if !ok {
		ti = int32(len(h.threads))
		h.threadID[th] = ti
		h.threads = append(h.threads, nil)
	}
	h.thread[i], h.pos[i] = ti, int32(len(h.threads[ti]))
	h.threads[ti] = append(h.threads[ti], i)
	h.poolOf[i], h.poolPos[i], h.emitOf[i] = none, none, none
	if (e.K == spec.KindPool || e.K.Mutates()) && !h.slice.carries(int(i)) {
		h.placeInPool(i, si)
	}
}

func (h *history) placeInPool(i, si int32) {
	e := &h.ev[i]
	key := poolKey{h.sources[si].worker, e.Pool}
	pi, ok := h.poolID[key]
	if !ok {
		pi = int32(len(h.pools))
		h.poolID[key] = pi
		h.pools = append(h.pools, pool{worker: key.worker, name: e.Pool, src: si})
	}
	if e.K == spec.KindPool {
		return
	}
	p := &h.pools[pi]
	if len(p.muts) == 0 {
		p.src = si
	}
	h.poolOf[i], h.poolPos[i] = pi, int32(len(p.muts))
	p.muts = append(p.muts, i)
}

// index files an event under its kind and its names, and gives begins and emits
// their identity.
func (h *history) index(i int32, sigs map[string]int32) {
	e := &h.ev[i]
	h.byKind[e.K] = append(h.byKind[e.K], i)
	handoff, req := h.names.of(e.Handoff, false), h.names.of(e.Req, true)
	h.names.link(handoff, req)
	switch e.K {
	case spec.KindBegin:
		h.addAccess(i, handoff, req)
	case spec.KindEmit:
		if _, dup := sigs[e.Sig]; !dup {
			sigs[e.Sig] = i
		}
		h.emits = append(h.emits, i)
		for _, n := range []int32{handoff, req} {
			if n != none {
				h.emitting[n] = append(h.emitting[n], i)
			}
		}
	case spec.KindFence:
		k := fenceKey{h.workerOf(i), handoff}
		h.fences[k] = append(h.fences[k], i)
	}
}

func (h *history) addAccess(i, handoff, req int32) {
	e := &h.ev[i]
	if _, dup := h.accessID[e.Access]; dup {
		return
	}
	a := access{
		id: e.Access, begin: i, end: none, by: h.workerOf(i), src: h.srcOf[i],
		pool: none, target: none, handoff: handoff, req: req,
	}
	if w, ok := h.workerID[e.Target]; ok {
		a.target = w
		if p, ok := h.poolID[poolKey{w, e.Pool}]; ok {
			a.pool = p
		}
	}
	h.accessID[e.Access] = int32(len(h.accesses))
	h.accesses = append(h.accesses, a)
}

// pair joins ends to begins and observes to emits; the trace may hold either
// before the other.
func (h *history) pair(i int32, sigs map[string]int32) {
	e := &h.ev[i]
	switch e.K {
	case spec.KindEnd:
		a, ok := h.accessID[e.Access]
		if !ok {
			h.unknownEnds = append(h.unknownEnds, i)
		} else if h.accesses[a].end == none {
			h.accesses[a].end = i
		}
	case spec.KindObserve:
		if s, ok := sigs[e.Sig]; ok {
			h.emitOf[i] = s
			h.observes[s] = append(h.observes[s], i)
		}
	}
}

func (h *history) workerOf(e int32) int32 { return h.sources[h.srcOf[e]].worker }

func (h *history) workerName(e int32) string { return h.workers[h.workerOf(e)] }

// named returns the names that an event carries.
func (h *history) named(e int32) (handoff, req int32) {
	return h.names.of(h.ev[e].Handoff, false), h.names.of(h.ev[e].Req, true)
}

func (h *history) anyLost() bool {
	return slices.ContainsFunc(h.sources, func(s source) bool { return s.lost() })
}

// countLosses counts for each event the losses of its source before it: between
// two events of one source with different counts, events are missing.
func (h *history) countLosses() {
	next := make([]int, len(h.sources))
	for i := range h.sources {
		s := &h.sources[i]
		slices.SortStableFunc(s.losses, func(a, b spec.Loss) int { return cmp.Compare(a.Next, b.Next) })
		s.losses = slices.CompactFunc(s.losses, func(a, b spec.Loss) bool { return a.Next == b.Next })
	}
	for i := range h.ev {
		src := h.srcOf[i]
		losses := h.sources[src].losses
		for next[src] < len(losses) && losses[next[src]].Next <= h.ev[i].Seq {
			next[src]++
		}
		h.epochOf[i] = int32(next[src])
	}
	for i := range h.pools {
		p := &h.pools[i]
		for p.whole < len(p.muts) && h.epochOf[p.muts[p.whole]] == 0 {
			p.whole++
		}
	}
}

// setZeros gives each clock the time that its times are counted from: the first
// of those that are not absurdly far before its last. A recorder may stamp its
// first lines with 0 and all others with the time of day.
func (h *history) setZeros() {
	if h.slice != nil {
		for c, name := range h.clocks {
			h.zero[c] = h.slice.zeros[name]
		}
		return
	}
	last := make([]int64, len(h.clocks))
	for i := range last {
		last[i] = math.MinInt64
	}
	for i := range h.ev {
		last[h.clockOf[i]] = max(last[h.clockOf[i]], h.ev[i].T)
	}
	for i := range h.ev {
		c, t := h.clockOf[i], h.ev[i].T
		if uint64(last[c])-uint64(t) < uint64(clock.Far/2) {
			h.zero[c] = min(h.zero[c], t)
		}
	}
	// A clock that is only compared with has the readings that this makes it have.
	for i := range h.ev {
		if e := &h.ev[i]; e.K == spec.KindClockCmp && h.zero[h.clockID[e.Clock]] == math.MaxInt64 {
			h.zero[h.clockID[e.Clock]] = h.zero[h.clockOf[i]]
		}
	}
}

// from and till are the event's time interval on its clock, counted from the
// clock's zero so that differences do not overflow.
func (h *history) from(e int32) int64 { return relative(h.ev[e].T, h.zero[h.clockOf[e]]) }
func (h *history) till(e int32) int64 { return relative(h.ev[e].T2, h.zero[h.clockOf[e]]) }

// relative is t − zero, or as far as times go: of two times, none overtakes the
// other.
func relative(t, zero int64) int64 {
	if t < zero {
		return -relative(zero, t)
	}
	if d := uint64(t) - uint64(zero); d < uint64(clock.Far) {
		return int64(d)
	}
	return clock.Far
}

func (h *history) isClient(worker int32) bool {
	return slices.Contains(h.roles[worker], spec.RoleClient)
}
