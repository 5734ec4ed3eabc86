package check

import (
	"strings"

	"conform/spec"
)

// sieveSignals is the signals that are under way or were of late, and what each
// kind of them has shown.
type sieveSignals struct {
	open map[string]*sieveSignal
	seen []sieveSeen // observed, in that order
	// strays are observes of signals that were not known then.
	strays hashSet
	forgot bool // some signal was forgotten
	late   bool // one that was may have been observed again
	kinds  map[string]*sieveKind
	spare  []*sieveSignal
}

type sieveSignal struct {
	handoff, req *sieveName
	kind         string // up to its slash
	sig          string
	group        *sieveGroup
	tells        []sieveKnown
	lists        []sieveListed
	seen, core   bool
	latest       sieveLatest
	after        [orders]lineage // what comes before it, where an order is kept
}

// sieveSeen is a signal that was observed at a position. It is kept for a while:
// it may be observed again.
type sieveSeen struct {
	signal *sieveSignal
	at     int32
}

// sieveListed is an access that a signal tells of as completed, and whose end
// leads to it.
type sieveListed struct {
	access *sieveAccess
	id     string
}

// sieveKind is what all signals of a kind have shown so far; see shown. What the
// given order alone does not decide is marked as such.
type sieveKind struct {
	name                  string
	seen                  int
	claims                spec.Predicate
	accesses              bool
	unstopped, stopUnsure bool
	unended, endUnsure    bool
	past, pastUnsure      bool
	later, amid           sieveAgainst
}

// sieveWork is the accesses by one worker under one handoff, or under none.
type sieveWork struct {
	worker  int32
	handoff *sieveName
	open    int
	threads []sieveSpan
	emits   []sieveEmit
}

// sieveSpan is the accesses that began, or ended, in one thread.
type sieveSpan struct {
	thread             int32
	began, over        bool
	lastBegin, lastEnd int32 // positions
	beginBy, endBy     int64 // the latest times
}

// sieveEmit is the signals of a kind that a worker emitted in one thread.
type sieveEmit struct {
	worker int32
	thread int32
	kind   *sieveKind
	last   int32
	seq    uint64 // of the last
	by     int64
	quiet  bool // one of them claims that no access begins any more
}

const (
	// maxSieveSignals bounds the signals under way.
	maxSieveSignals = 1 << 20
	maxSieveKinds   = 1 << 12
)

func newSieveSignals() sieveSignals {
	return sieveSignals{open: map[string]*sieveSignal{}, kinds: map[string]*sieveKind{}}
}

func (m *sieveSignals) kind(name string) *sieveKind {
	k := m.kinds[name]
	if k == nil {
		k = &sieveKind{name: strings.Clone(name)}
		m.kinds[k.name] = k
	}
	return k
}

// countEmit counts an emission among those of its kind. few is false once there are
// more kinds, or more signals under way, than the sieve keeps.
func (s *Sieve) countEmit(e *spec.Event) (k *sieveKind, few bool) {
	m := &s.signals
	k = m.kind(e.Signal)
	k.seen++
	k.claims = stronger(k.claims, e.Claims)
	s.stats.Signals++
	return k, len(m.kinds) <= maxSieveKinds && len(m.open) <= maxSieveSignals
}

// emit judges a claim (SIG-1), notes what the signal shows, and sends it on its
// way with what its thread knows.
func (s *Sieve) emit(e *spec.Event, at *sievePlace) {
	m := &s.signals
	k, few := s.countEmit(e)
	if !few {
		s.giveUp("many signals")
		return
	}
	if m.strays.has(s.names.hash(e.Sig, false)) {
		s.giveUp("a signal observed before its emit")
		return
	}
	sig := m.newSignal()
	sig.sig, sig.group = strings.Clone(e.Sig), at.group
	if _, dup := m.open[sig.sig]; dup {
		s.giveUp("a sig twice")
		return
	}
	m.open[sig.sig] = sig
	sig.handoff, sig.req = at.handoff, at.req
	sig.kind, _, _ = strings.Cut(k.name, "/")
	if e.Asks != "" {
		s.ask(e, at)
	}
	at.emitted = sig
	claims := e.Claims == spec.ClaimsStopped || e.Claims == spec.ClaimsCompleted || e.Claims == spec.ClaimsDrained
	if claims {
		s.counts.sig1++
	}
	if e.Accesses != nil {
		s.listed(e, at, k, sig)
	} else {
		s.claim(e, at, k, claims)
	}
	if at.group != nil {
		sig.tells = at.group.tells(sig.tells, at.thread, s.n, [pathKinds]bool{pathAny: true, pathEnded: endsAll(e), pathQuiet: quiets(e)})
	}
}

func (m *sieveSignals) newSignal() *sieveSignal {
	if n := len(m.spare); n > 0 {
		sig := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return sig
	}
	return &sieveSignal{}
}

// listed takes in a signal that lists accesses.
func (s *Sieve) listed(e *spec.Event, at *sievePlace, k *sieveKind, sig *sieveSignal) {
	for _, id := range e.Accesses {
		a := s.memory.accesses[id]
		if a == nil || !a.ended {
			s.giveUp("a list of accesses that are open or not known")
			return
		}
		k.accesses = true
		g := a.group.root()
		if !s.surely(g, a.thread, a.pos, a.beginBy, at.thread, e.T) {
			k.stopUnsure = true
		}
		if s.surely(g, a.endTh, a.endAt, a.endBy, at.thread, e.T) {
			k.past = true
		} else {
			k.endUnsure, k.pastUnsure = true, true
		}
		if e.Claims == spec.ClaimsCompleted && at.group == g && a.told(g, at.thread) {
			sig.lists = append(sig.lists, sieveListed{a, a.id})
		}
	}
	if e.Claims == spec.ClaimsStopped || e.Claims == spec.ClaimsDrained {
		s.giveUp("a list with another claim")
	}
}

// told reports whether evidence leads from the access's end to the thread.
func (a *sieveAccess) told(g *sieveGroup, thread int32) bool {
	if g.leads(pathEnded, a.endTh, a.endAt, thread) {
		return true
	}
	for _, f := range a.fronts {
		if g.leads(pathEnded, f.thread, f.pos, thread) {
			return true
		}
	}
	return false
}

// claim takes in a signal that speaks of the accesses of its worker under the
// handoff that it names, or under its request.
func (s *Sieve) claim(e *spec.Event, at *sievePlace, k *sieveKind, claims bool) {
	g := at.group
	if g == nil {
		return
	}
	said := sieveEmit{
		worker: at.worker, thread: at.thread, kind: k, last: s.n, seq: e.Seq, by: e.T2,
		quiet: e.Claims == spec.ClaimsStopped || e.Claims == spec.ClaimsDrained,
	}
	if at.handoff == nil {
		for i := range g.workers {
			if w := &g.workers[i]; w.worker == at.worker {
				s.speakOf(w, e, at, k, claims)
			}
		}
		g.reqEmits = s.addEmit(g.reqEmits, said)
		return
	}
	w := s.workOf(g, at.worker, at.handoff)
	s.speakOf(w, e, at, k, claims)
	w.emits = s.addEmit(w.emits, said)
}

func (s *Sieve) addEmit(list []sieveEmit, e sieveEmit) []sieveEmit {
	for i := range list {
		if o := &list[i]; o.worker == e.worker && o.thread == e.thread && o.kind == e.kind {
			o.last, o.seq, o.by, o.quiet = e.last, e.seq, max(o.by, e.by), o.quiet || e.quiet
			return list
		}
	}
	if len(list) == maxSieveList {
		s.giveUp("many kinds of signals")
	}
	return append(list, e)
}

func (s *Sieve) workOf(g *sieveGroup, worker int32, handoff *sieveName) *sieveWork {
	for i := range g.workers {
		if w := &g.workers[i]; w.worker == worker && w.handoff == handoff {
			return w
		}
	}
	if len(g.workers) == maxSieveList {
		s.giveUp("many handoffs of one request")
	}
	g.workers = append(g.workers, sieveWork{worker: worker, handoff: handoff})
	return &g.workers[len(g.workers)-1]
}

// speakOf holds a signal against the accesses so far that it speaks of.
func (s *Sieve) speakOf(w *sieveWork, e *spec.Event, at *sievePlace, k *sieveKind, claims bool) {
	if w.open > 0 {
		s.refuteEnded(w, e, at, k)
		k.accesses, k.unended = true, true
		if claims && e.Claims != spec.ClaimsStopped {
			s.giveUp("SIG-1: open at a claim")
			return
		}
	}
	for i := range w.threads {
		t := &w.threads[i]
		if t.began {
			k.accesses = true
			if !s.surely(at.group, t.thread, t.lastBegin, t.beginBy, at.thread, e.T) {
				k.stopUnsure = true
			}
		}
		if t.over {
			if s.surely(at.group, t.thread, t.lastEnd, t.endBy, at.thread, e.T) {
				k.past = true
			} else {
				k.endUnsure, k.pastUnsure = true, true
			}
		}
	}
}

// surely reports whether an earlier event, in a thread at a position, over by a
// time on its clock, comes before the current one in every legal order. It may say
// no where it does.
func (s *Sieve) surely(g *sieveGroup, thread, at int32, by int64, to int32, t int64) bool {
	return thread == to || s.threads[thread].clock == s.threads[to].clock && by < t || g.leads(pathAny, thread, at, to)
}

// beganWork notes a begin, and holds it against the signals before it.
func (s *Sieve) beganWork(e *spec.Event, at *sievePlace) {
	g := at.group
	w := s.workOf(g, at.worker, at.handoff)
	w.open++
	t := s.span(w, at.thread)
	if !t.began {
		t.began, t.beginBy = true, e.T2
	}
	t.lastBegin, t.beginBy = s.n, max(t.beginBy, e.T2)
	s.answer(w.emits, e, at)
	s.answer(g.reqEmits, e, at)
}

func (s *Sieve) span(w *sieveWork, thread int32) *sieveSpan {
	for i := range w.threads {
		if w.threads[i].thread == thread {
			return &w.threads[i]
		}
	}
	if len(w.threads) == maxSieveList {
		s.giveUp("many threads")
	}
	w.threads = append(w.threads, sieveSpan{thread: thread})
	return &w.threads[len(w.threads)-1]
}

// answer holds a begin against signals before it that speak of it.
func (s *Sieve) answer(emits []sieveEmit, e *spec.Event, at *sievePlace) {
	for i := range emits {
		m := &emits[i]
		if m.worker != at.worker {
			continue
		}
		if m.quiet {
			s.giveUp("SIG-1: begun after a claim")
		}
		s.refuteStopped(m, e, at)
		m.kind.accesses, m.kind.unstopped = true, true
		if !s.surely(at.group, m.thread, m.last, m.by, at.thread, e.T) {
			m.kind.endUnsure = true
		}
	}
}

func (s *Sieve) endedWork(a *sieveAccess, e *spec.Event, at *sievePlace) {
	w := s.workOf(a.group.root(), a.by, a.handoff)
	w.open--
	t := s.span(w, at.thread)
	if !t.over {
		t.over, t.endBy = true, e.T2
	}
	t.lastEnd, t.endBy = s.n, max(t.endBy, e.T2)
}

// observe brings what a signal tells to the thread that takes it in.
func (s *Sieve) observe(e *spec.Event, at *sievePlace) {
	m := &s.signals
	sig := m.open[e.Sig]
	if sig == nil {
		if m.forgot && e.Handoff != "" {
			s.giveUp("a signal observed late, by its handoff")
		}
		m.late = m.late || m.forgot // it may say something about the clocks, if there are several
		if m.late && len(s.times.zero) > 1 {
			s.giveUp("a signal observed late")
		}
		m.strays.add(s.names.hash(e.Sig, false))
		return
	}
	at.observed = sig
	if !sig.seen {
		sig.seen = true
		m.seen = append(m.seen, sieveSeen{sig, s.n})
	}
	if at.handoff != nil && sig.handoff != nil {
		s.counts.sig3++
		if at.handoff != sig.handoff {
			s.giveUp("SIG-3: taken for another's")
		}
	}
	if sig.group == nil {
		s.settleAsks(at.group, at.worker, sig.kind)
		return
	}
	g := sig.group.root()
	s.settleAsks(g, at.worker, sig.kind)
	for _, k := range sig.tells {
		g.learn(at.thread, k)
	}
	for _, l := range sig.lists {
		if a := l.access; a.id == l.id {
			if len(a.fronts) == maxSieveList {
				s.giveUp("many signals of one access")
				return
			}
			a.fronts = append(a.fronts, sieveFront{at.thread, s.n})
		}
	}
}

// sweep forgets the signals that were observed a while ago.
func (m *sieveSignals) sweep(now, window int32) {
	i := 0
	for ; i < len(m.seen) && now-m.seen[i].at >= window; i++ {
		sig := m.seen[i].signal
		delete(m.open, sig.sig)
		m.forgot = true
		clear(sig.lists)
		*sig = sieveSignal{tells: sig.tells[:0], lists: sig.lists[:0], after: sig.after}
		m.spare = append(m.spare, sig)
	}
	m.seen = append(m.seen[:0], m.seen[i:]...)
}
