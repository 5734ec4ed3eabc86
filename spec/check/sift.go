package check

import (
	"cmp"
	"context"

	"conform/spec"
)

// Reader gives all events of a trace to each, in one order, with their sources and
// threads numbered from 0 in the order of their first events, until each says no. It
// is false where it cannot, or where each said no. An event and its texts are valid
// until each returns.
type Reader func(each func(e *spec.Event, source, thread int32) bool) (whole bool, err error)

// Sift judges a trace that can be read several times without ever holding all of it.
// It gives what [Judge] gives, or nil where it cannot tell: of a trace that no reader
// accepts as a whole, in which the given order of the events is not a legal one of
// all but a few, or of which too much depends on each other.
//
// A first pass clears a trace in which nothing is found ([Sieve]). Where it finds
// something, further passes find out what that has to do with: the events of the
// same requests and handoffs, of leases that they share with others, of blocks of
// which the chain is broken. These Judge judges, with what all other events impose on
// their order, and the counts of both parts are put together.
//
// Memory grows with what is open, and with what is judged so. A trace is read at most
// some ten times, twice more than it took to find the core.
func Sift(ctx context.Context, read Reader, opt Options) (*Result, error) {
	res, _, err := siftWith(ctx, read, NewSieve, opt)
	return res, err
}

// siftWith is Sift with a maker of sieves. It gives the last one as well.
func siftWith(ctx context.Context, read Reader, fresh func(Options) *Sieve, opt Options) (*Result, *Sieve, error) {
	core := newSieveCore()
	s := fresh(opt)
	s.core = core
	for range maxPasses {
		whole, err := read(s.Add)
		if err != nil || !whole {
			return nil, s, err
		}
		if s.stopped == "" {
			s.finishUp()
		}
		switch {
		case s.stopped != "" || core.unclean && !core.grown:
			return nil, s, nil
		case core.unclean:
		case !core.any:
			res, _ := s.result()
			return res, s, nil
		default:
			res, more, err := s.judgeCore(ctx, read, opt)
			if err != nil || !more {
				return res, s, err
			}
		}
		core.again()
		s = fresh(opt)
		s.core, s.order = core, newSieveOrder()
	}
	return nil, s, nil
}

// maxPasses bounds how often a trace is read to find the core.
const maxPasses = 10

// judgeCore has Judge judge the core. It says more where the core must grow.
func (s *Sieve) judgeCore(ctx context.Context, read Reader, opt Options) (res *Result, more bool, err error) {
	s.order.close()
	carriers, err := s.order.fetch(read)
	if err != nil || len(carriers) != len(s.order.wants) || len(carriers)+len(s.order.kept) > maxKept {
		return nil, false, err
	}
	tr, slice := s.order.slice(carriers)
	slice.core, slice.zeros = s.core.blocks, map[string]int64{}
	for c, name := range s.times.clocks {
		slice.zeros[name] = s.times.first(c)
	}
	h, err := newHistoryOf(tr, slice)
	if err != nil || h.folded != nil {
		return nil, false, nil //nolint:nilerr // Judge says what is too much, and judges many blocks as one
	}
	c, err := courtOf(ctx, h, false, opt)
	if err != nil {
		return nil, false, nil //nolint:nilerr // as above
	}
	if err := c.judge(); err != nil {
		return nil, false, err
	}
	if slice.unfit {
		return nil, false, nil
	}
	for key, numbers := range slice.needed {
		for _, n := range numbers {
			more = s.core.addBlock(key, n) || more
		}
	}
	if more {
		return nil, true, nil
	}
	return s.together(c), false, nil
}

// fetch reads the carriers.
func (o *sieveOrder) fetch(read Reader) ([]keptEvent, error) {
	var out []keptEvent
	if len(o.wants) == 0 {
		return nil, nil
	}
	n := int32(0)
	_, err := read(func(e *spec.Event, _, _ int32) bool {
		if n++; o.wants[n] {
			out = append(out, keptEvent{at: n, ev: cloned(e)})
		}
		return len(out) < len(o.wants)
	})
	return out, err
}

// together puts together what the sieve counted and what Judge found in the core. It
// is nil where the two leave open what a signal proves.
func (s *Sieve) together(c *court) *Result {
	for kind, held := range c.shownByKind() {
		s.showAlso(c, s.signals.kind(kind), held)
	}
	if s.proved(); s.stopped != "" {
		return nil
	}
	res := &Result{
		Verdict: spec.Unexercised, Signals: s.signalTable(), Stats: s.stats, Clocks: s.times.results(), Settled: c.settlements(),
		Notes: append(append(append(append([]string(nil), c.broken...), c.remarks...), s.notes()...), c.endNotes()...),
	}
	s.addStats(c, &res.Stats)
	counts := s.ruleCounts()
	counts[spec.BLK5] = 0 // Judge saw every idle
	for _, r := range spec.Rules() {
		rr := *c.rules[r.ID]
		for i := range rr.Findings {
			rr.Findings[i].about = nil
		}
		if n := counts[r.ID]; n > 0 {
			rr.Judged += n
			rr.Verdict = max(rr.Verdict, spec.Pass)
		}
		res.Rules = append(res.Rules, rr)
		res.Verdict = spec.Worst(res.Verdict, rr.Verdict)
	}
	if res.Verdict == spec.Unexercised || len(c.h.unknownEnds) > 0 {
		res.Verdict = spec.Worst(res.Verdict, spec.Inconclusive)
	}
	if len(c.broken) > 0 {
		res.Verdict = spec.Error
	}
	return res
}

// showAlso adds what the core shows of a kind of signal. Of counterexamples those count
// that would in the whole trace; whether one that the order of the lines does not show
// does, the sieve cannot tell where it is not sure of others.
func (s *Sieve) showAlso(c *court, k *sieveKind, held *shown) {
	k.accesses, k.past = k.accesses || held.accesses, k.past || held.past
	at := c.h.slice.at
	if l := held.later; l.found {
		mine := against{k.later.emit, k.later.begin, true, k.unstopped}
		if mine.better(l, cmp.Or(cmp.Compare(at[l.begin], mine.begin), cmp.Compare(mine.emit, at[l.emit]))) {
			k.later = sieveAgainst{events: [2]spec.EventID{c.h.ev[l.emit].ID(), c.h.ev[l.begin].ID()}}
		}
		if !l.inLine && !k.unstopped && k.stopUnsure {
			s.stop("a signal of which order alone does not say what it proves")
		}
		k.unstopped = true
	}
	if o := held.open; o.found {
		mine := against{k.amid.emit, k.amid.begin, true, k.unended}
		if mine.better(o, cmp.Or(cmp.Compare(at[o.emit], mine.emit), cmp.Compare(at[o.begin], mine.begin))) {
			k.amid = sieveAgainst{events: [2]spec.EventID{c.h.ev[o.emit].ID(), c.h.ev[o.begin].ID()}}
		}
		if !o.inLine && !k.unended && k.endUnsure {
			s.stop("a signal of which order alone does not say what it proves")
		}
		k.unended = true
	}
}

// addStats adds what the sieve did not count: the leases of the core, and the blocks
// that are wholly in it.
func (s *Sieve) addStats(c *court, stats *Stats) {
	stats.Events = int(s.n)
	stats.Histories, stats.Refused, stats.Undecided = c.stats.Histories, c.stats.Refused, c.stats.Undecided
	for i := range c.chains.blocks {
		b := &c.chains.blocks[i]
		stats.Leases += len(b.leases)
		p := &c.h.pools[b.pool]
		if len(b.leases) > 0 && c.h.slice.core[coreKey{c.h.workers[p.worker], p.name}][b.number] {
			stats.Blocks++
		}
	}
	stats.Reused = stats.Leases - stats.Blocks
}
