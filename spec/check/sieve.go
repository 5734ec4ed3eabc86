package check

import (
	"strings"

	"conform/spec"
)

// Sieve judges a trace in one pass, and says either what [Judge] would say of it
// or that it cannot tell. It keeps what is open (leases, accesses, signals under
// way, requests of late) and forgets the rest, so that traces of any length can be
// judged; what it cannot tell is left to Judge.
//
// # Why it is right
//
// It takes the order in which the events are given for a candidate. That order is
// legal if it agrees with program order, pool order and signals, if some offsets
// of the clocks let instants be given to the events that do not decrease along it,
// and if each access lies within its lease. The sieve checks all of that; where
// one thing fails it gives up. Where all holds, question 1 is answered for every
// access at once and without a search: there is a legal order, here it is. And
// since that order is legal, "surely before" never holds against it, so that a
// rule that fails only on what is surely so can only fail on what the given order
// shows. The sieve looks for that along the order, and gives up where it finds it.
//
// Question 2 is a question about paths, and every edge of a path leads forward in
// the given order. So they are followed as the events come: for each handoff or
// request, with all that is linked to it, each thread knows how far the other
// threads' events lead to it (sievepaths.go).
//
// What depends on events that come later (a link between a handoff and a request,
// a begin after a claim) is remembered as long as its object is, and an object
// that comes back after it was forgotten makes the sieve give up. Names that were
// forgotten are known by a hash of 64 bits with a random seed: two that collide
// look like one that came back, which costs time and nothing else.
//
// The zero value is of no use; see [NewSieve].
type Sieve struct {
	n       int32 // events so far; the position of the current one is n
	stopped string
	sources []sieveSource
	threads []sieveThread
	workers map[string]int32
	client  []bool // of each worker
	texts   []string
	times   sieveTimes
	names   sieveNames
	memory  sieveMemory
	signals sieveSignals
	counts  sieveCounts
	stats   Stats
	limits  map[sieveUnit]int64
	idles   []int32       // workers, one for each idle of each
	asking  map[int32]int // of each worker: its signals that wait for an answer
	keep    sieveKeep
	looks   int // at accesses, for counterexamples
	// drifting is set where clocks may drift; the sieve knows constant offsets only.
	drifting bool
	// core is what is left to Judge while the sieve goes on; nil where it gives up
	// on the whole trace. order is what Judge needs to know of the rest.
	core  *sieveCore
	order *sieveOrder
	at    *sievePlace // of the current event
}

// sieveKeep is for how many events what is over is remembered, where nothing else
// keeps it, and how often the sieve looks for what to forget. It changes what the
// sieve can tell, never what it tells.
type sieveKeep struct{ names, signals, sweep int32 }

// sieveCounts counts what each rule was applied to.
type sieveCounts struct{ blk1, blk2, blk3, blk4, blk5, req1, req3, req4, req5, sig1, sig2, sig3, sig4, dat1, dat2 int }

// sieveSource is one source, with what a note about its end says.
type sieveSource struct {
	name   string
	worker int32
	clock  int32
	sealed bool
	next   uint64
	last   sieveLast
	pools  []*sievePool // it may mutate, found by name
}

// sieveLast is the last event of a source, as [court.say] needs it.
type sieveLast struct {
	seq         uint64
	t, t2       int64
	kind        spec.Kind
	sig, signal []byte
}

type sieveThread struct {
	source, worker, clock int32
	latest                sieveLatest // what its events come after so far, themselves included
}

type sieveUnit struct {
	source int32
	unit   string
}

// maxSieveEvents is how many events positions can name.
const maxSieveEvents = 1<<31 - 16

// NewSieve makes an empty sieve. Of the options, those for Porcupine and for the
// number of findings have no meaning here.
func NewSieve(opt Options) *Sieve {
	s := &Sieve{workers: map[string]int32{}, limits: map[sieveUnit]int64{}, asking: map[int32]int{}, keep: sieveKeep{names: 1 << 18, signals: 1 << 15, sweep: 1 << 12}}
	s.names = newSieveNames()
	s.memory = newSieveMemory()
	s.signals = newSieveSignals()
	s.times.clockID, s.times.given = map[string]int32{}, nothingYet()
	s.drifting = opt.DriftPPM > 0
	if opt.Checker != "" && opt.Checker != CheckerChain {
		s.giveUp("Porcupine was asked for")
	}
	return s
}

// Add takes the next event of a trace that a reader accepts. Sources and threads
// are numbered by the caller, from 0 in the order of their first events. The event
// and its strings, but for its kind, are not kept. It is false once the sieve has
// given up.
func (s *Sieve) Add(e *spec.Event, source, thread int32) bool {
	if s.stopped != "" {
		return false
	}
	if e.K == spec.KindSource {
		s.addSource(e, source)
	}
	if int(source) >= len(s.sources) || s.n >= maxSieveEvents {
		return s.giveUp("more than it can number")
	}
	src := &s.sources[source]
	for int(thread) >= len(s.threads) {
		s.threads = append(s.threads, sieveThread{source, src.worker, src.clock, nothingYet()})
	}
	if e.Seq != src.next || e.K == spec.KindLost && e.Count > 0 {
		return s.giveUp("a loss")
	}
	src.next = e.Seq + 1
	src.last.set(e)
	s.n++
	s.event(e, source, thread)
	if s.n%s.keep.sweep == 0 {
		s.sweep()
	}
	return s.stopped == ""
}

// GaveUp says why the sieve cannot tell, "" while it can.
func (s *Sieve) GaveUp() string { return s.stopped }

// giveUp says that the current event shows something that the sieve cannot tell.
// Where a core is kept, that is left to Judge with all of the event's group.
func (s *Sieve) giveUp(why string) bool {
	if s.core != nil && s.at != nil && !s.at.core && s.taint(s.at.group) {
		return false
	}
	if s.stopped == "" {
		s.stopped = why
	}
	return false
}

func (l *sieveLast) set(e *spec.Event) {
	l.seq, l.t, l.t2, l.kind = e.Seq, e.T, e.T2, e.K
	if e.K == spec.KindEmit || e.K == spec.KindObserve {
		l.sig, l.signal = append(l.sig[:0], e.Sig...), append(l.signal[:0], e.Signal...)
	}
}

func (s *Sieve) addSource(e *spec.Event, source int32) {
	if int(source) != len(s.sources) {
		s.giveUp("a second source line")
		return
	}
	w, known := s.workers[e.Worker]
	if !known {
		name := strings.Clone(e.Worker)
		w = int32(len(s.texts))
		s.workers[name] = w
		s.texts, s.client = append(s.texts, name), append(s.client, e.Role == spec.RoleClient)
		s.stats.Workers++
	} else if s.client[w] != (e.Role == spec.RoleClient) {
		s.giveUp("a worker that is a client and is not")
	}
	clock := s.times.clock(s, e.Clock, e.T)
	s.stats.Sources++
	s.sources = append(s.sources, sieveSource{name: strings.Clone(e.Src), worker: w, clock: clock})
}

// event judges one event.
func (s *Sieve) event(e *spec.Event, source, thread int32) {
	handoff, req, group := s.resolve(e)
	at := sievePlace{source: source, thread: thread, worker: s.threads[thread].worker, handoff: handoff, req: req, group: group}
	s.at = &at
	if s.core != nil && s.core.any && s.isCore(e, &at) {
		at.core = true
		s.coreEvent(e, &at)
	} else {
		s.judge(e, &at)
	}
	s.place(e, &at)
	if s.order != nil {
		s.order.keep(s, e, &at)
	}
	s.at = nil
}

// judge judges an event that is not left to Judge.
func (s *Sieve) judge(e *spec.Event, at *sievePlace) {
	if e.By != "" {
		s.waitedFor(e, at)
	}
	switch e.K {
	case spec.KindPool:
		s.declare(e, *at)
	case spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree, spec.KindGrant, spec.KindRevoke:
		s.mutate(e, at)
	case spec.KindBegin:
		s.begin(e, at)
	case spec.KindEnd:
		s.end(e, at)
	case spec.KindEmit:
		s.emit(e, at)
	case spec.KindObserve:
		s.observe(e, at)
	case spec.KindFence:
		s.giveUp("a fence")
	case spec.KindSeal:
		s.sources[at.source].sealed = true
	case spec.KindFault:
		s.stats.Faults++
	case spec.KindClockCmp:
		s.times.compare(s, e, s.sources[at.source].clock)
	case spec.KindIdle:
		s.idle(e)
	default:
		s.request(e, at)
	}
}

// place gives an event its place in time, after what its thread, its pool and the
// signal that it observes have come to.
func (s *Sieve) place(e *spec.Event, at *sievePlace) {
	th, clocks := &s.threads[at.thread], len(s.times.zero)
	if at.pool != nil {
		th.latest.join(&at.pool.latest, clocks)
	}
	if at.observed != nil {
		th.latest.join(&at.observed.latest, clocks)
	}
	s.times.add(s, e, th.clock, &th.latest)
	if s.order != nil {
		s.order.place(s, e, at)
	}
	if at.pool != nil {
		at.pool.latest = th.latest
	}
	if at.emitted != nil {
		at.emitted.latest = th.latest
	}
}

// sievePlace says where an event is and whom it names.
type sievePlace struct {
	source, thread, worker int32
	handoff, req           *sieveName
	group                  *sieveGroup
	pool                   *sievePool   // that it mutates
	emitted, observed      *sieveSignal // that it emits or observes
	core                   bool         // it is left to Judge
	begun                  *sieveAccess // that it begins
	gens                   []blockGen   // of a core alloc: the lease of each block
}
