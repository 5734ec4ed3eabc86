package check_test

import (
	"slices"
	"strings"

	"conform/spec"
)

// brute judges a small trace by trying out everything: it lists each total order
// that TRACE.md allows, and holds each sentence of it against all of them. It
// shares nothing with the judge but the types of the trace.
type brute struct {
	tr     *spec.Trace
	src    map[string]*bruteSource
	all    [][]int // the legal orders of everything but the accesses' chains: the place of each event
	legal  [][]int // those of them that every access which did not fail fits
	links  map[string][]string
	leases []*bruteLease
	dead   map[int64]int // the alloc that broke BLK-1, from which on the block is judged no further
	access []*bruteAccess
	lost   bool
	// evidence is how bad the missing evidence about the end of a lease is.
	evidence map[*bruteLease]spec.Verdict
	verdict  map[spec.RuleID]verdicts
	vague    bool // the text leaves open which accesses are at fault
	// open are rules on which more verdicts than the brute judge works out are
	// right; reached counts what a trace had in it.
	open    map[spec.RuleID]bool
	reached map[string]bool
}

// verdicts are those that the text allows: mostly one.
type verdicts []spec.Verdict

type bruteSource struct {
	worker, clock string
	client        bool
	seal          int
	losses        []uint64 // from which seq on an event is behind one loss more
}

type bruteLease struct {
	block                  int64
	alloc, free, lostUntil int // -1: none
	holds                  []*bruteHold
	grants, revokes        []int
}

type bruteHold struct {
	name     string
	by       int // the event that began it
	from, to int
}

type bruteAccess struct {
	id         string
	begin, end int
	by         string
	src        string
	fences     []int
	blocks     []int64 // that are judged
	cands      [][]bruteCandidate
	state      string // "", unjudged, unknown, stale, early, harmless, legal
}

type bruteCandidate struct {
	lease                *bruteLease
	lower, revoke, until int
}

// maxOrders bounds the orders that are tried.
const maxOrders = 4000

// bruteJudge judges a trace. It is nil where there are too many orders to try;
// the verdicts are nil where there is none.
func bruteJudge(tr *spec.Trace) *brute {
	b := &brute{
		tr: tr, src: map[string]*bruteSource{}, links: map[string][]string{}, dead: map[int64]int{},
		evidence: map[*bruteLease]spec.Verdict{}, verdict: map[spec.RuleID]verdicts{},
		open: map[spec.RuleID]bool{}, reached: map[string]bool{},
	}
	b.index()
	if !b.enumerate() {
		return nil
	}
	if len(b.all) == 0 {
		b.verdict = nil
		return b
	}
	b.chains()
	b.questionOne()
	if b.vague {
		return b
	}
	b.questionTwo()
	b.sig1()
	b.sig3()
	b.sig4()
	b.blk5()
	b.req1()
	b.req2()
	b.req3()
	b.req4()
	b.req5()
	b.data()
	return b
}

func (b *brute) ev(i int) *spec.Event { return &b.tr.Events[i] }

// say notes a verdict on a rule; the worst stands.
func (b *brute) say(rule spec.RuleID, v ...spec.Verdict) {
	was := b.verdict[rule]
	if was == nil {
		was = verdicts{spec.Unexercised}
	}
	var out verdicts
	for _, x := range was {
		for _, y := range v {
			out = append(out, max(x, y))
		}
	}
	slices.Sort(out)
	b.verdict[rule] = slices.Compact(out)
}

func (b *brute) index() {
	last := map[string]uint64{}
	for i := range b.tr.Events {
		e := b.ev(i)
		s := b.src[e.Src]
		if s == nil {
			s = &bruteSource{worker: e.Worker, clock: e.Clock, client: e.Role == spec.RoleClient, seal: -1}
			b.src[e.Src] = s
		} else if e.Seq > last[e.Src]+1 {
			s.losses = append(s.losses, last[e.Src]+1)
		}
		last[e.Src] = e.Seq
		switch e.K {
		case spec.KindSeal:
			s.seal = i
		case spec.KindLost:
			if e.Count > 0 {
				s.losses = append(s.losses, e.Seq)
			}
		}
		b.lost = b.lost || len(s.losses) > 0
		if e.Handoff != "" && e.Req != "" {
			b.links["h"+e.Handoff] = append(b.links["h"+e.Handoff], "r"+e.Req)
			b.links["r"+e.Req] = append(b.links["r"+e.Req], "h"+e.Handoff)
		}
	}
}

func (b *brute) worker(i int) string { return b.src[b.ev(i).Src].worker }

// epoch counts the losses of the event's source before it.
func (b *brute) epoch(i int) int {
	n := 0
	for _, next := range b.src[b.ev(i).Src].losses {
		if next <= b.ev(i).Seq {
			n++
		}
	}
	return n
}

// precedes is what is known without any time.
func (b *brute) precedes(i, j int) bool {
	x, y := b.ev(i), b.ev(j)
	switch {
	case x.Src == y.Src && x.Th == y.Th && x.Seq < y.Seq:
		return true
	case x.K.Mutates() && y.K.Mutates() && x.Pool == y.Pool && x.Src == y.Src && x.Seq < y.Seq: // one worker has the only pool
		return true
	}
	return x.K == spec.KindEmit && y.K == spec.KindObserve && x.Sig == y.Sig
}

// span is when an event takes effect, on a clock of which the offset is known.
type span struct {
	from, till int64
	clock      int
	before     uint64 // the events that come before it, as a set
	declares   bool
}

// enumerate lists the legal orders: for each choice of offsets, each order whose
// events can be given instants that do not decrease. It is false if there are too
// many.
func (b *brute) enumerate() bool {
	clocks := map[string]int{}
	number := func(name string) int {
		if _, ok := clocks[name]; !ok {
			clocks[name] = len(clocks)
		}
		return clocks[name]
	}
	low, high, compared := int64(0), int64(0), int64(0)
	spans := make([]span, len(b.tr.Events))
	for i := range spans {
		e := b.ev(i)
		s := span{from: e.T, till: e.T2, clock: number(b.src[e.Src].clock), declares: e.K == spec.KindSource || e.K == spec.KindPool}
		if e.Clock != "" {
			number(e.Clock)
		}
		for j := range spans {
			if b.precedes(j, i) {
				s.before |= 1 << j
			}
		}
		if e.K == spec.KindClockCmp {
			compared = max(compared, -e.Lo, e.Hi)
		}
		if s.declares { // in its thread it comes first anyway
			s.from, s.till = -1<<40, 1<<40
		} else {
			low, high = min(low, e.T), max(high, e.T2)
		}
		spans[i] = s
	}
	// Further apart than all readings together, clocks are just one after the other.
	most := high - low + 1 + compared
	ahead := make([]int64, len(clocks)) // by how much each clock is ahead of the first
	seen := map[[maxEvents]byte]bool{}
	var choose func(n int) bool
	choose = func(n int) bool {
		if n < len(clocks) {
			for ahead[n] = -most; ahead[n] <= most; ahead[n]++ {
				if !choose(n + 1) {
					return false
				}
			}
			return true
		}
		at := slices.Clone(spans)
		for i := range at {
			if e := b.ev(i); e.K == spec.KindClockCmp {
				if d := ahead[clocks[e.Clock]] - ahead[at[i].clock]; d < e.Lo || d > e.Hi {
					return true
				}
			}
			at[i].from -= ahead[at[i].clock]
			at[i].till -= ahead[at[i].clock]
		}
		return b.extend(at, [maxEvents]byte{}, 0, 0, -1<<40, seen)
	}
	return len(clocks) == 0 || choose(1)
}

// maxEvents bounds the events of a trace that is tried.
const maxEvents = 24

// extend adds to an order each event that can come next.
func (b *brute) extend(spans []span, order [maxEvents]byte, n int, done uint64, now int64, seen map[[maxEvents]byte]bool) bool {
	if n == len(spans) {
		if !seen[order] {
			seen[order] = true
			at := make([]int, n)
			for p, e := range order[:n] {
				at[e] = p
			}
			b.all = append(b.all, at)
		}
		return len(b.all) <= maxOrders
	}
	for i := range spans {
		if s := &spans[i]; done&(1<<i) == 0 && s.before&^done == 0 && s.till < now {
			return true // this one comes too late in any case
		}
	}
	for i := range spans {
		s := &spans[i]
		if done&(1<<i) != 0 || s.before&^done != 0 {
			continue
		}
		order[n] = byte(i)
		if !b.extend(spans, order, n+1, done|1<<i, max(now, s.from), seen) {
			return false
		}
		if s.declares {
			return true // what declares orders nothing; it comes first, as it stands
		}
	}
	return true
}

func some(orders [][]int, ok func([]int) bool) bool { return slices.ContainsFunc(orders, ok) }

// surely reports whether i comes before j in every order.
func surely(orders [][]int, i, j int) bool {
	return !some(orders, func(o []int) bool { return o[i] > o[j] })
}

// concern lists what an event of these names concerns.
func (b *brute) concern(handoff, req string) []string {
	var out []string
	for _, n := range []string{"h" + handoff, "r" + req} {
		if len(n) > 1 {
			out = append(append(out, n), b.links[n]...)
		}
	}
	return out
}

// requests lists the requests that an event of these names is for.
func (b *brute) requests(handoff, req string) []string {
	if req != "" {
		return []string{req}
	}
	var out []string
	if handoff != "" {
		for _, l := range b.links["h"+handoff] {
			out = append(out, l[1:])
		}
	}
	return out
}

func (b *brute) forRequest(i int, req string) bool {
	return slices.Contains(b.requests(b.ev(i).Handoff, b.ev(i).Req), req)
}

func meet(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// known is a block as far as what was recorded tells: after a loss, what may have
// happened is not known.
type known struct {
	lease   *bruteLease // of what was recorded
	sure    bool        // whether it is leased or free is known
	holder  map[string]bool
	settled map[string]bool // of whom it is known whether they hold
	others  bool            // that no others hold is known
	epoch   int
}

// chains replays the pool's order: BLK-1 and BLK-4.
func (b *brute) chains() {
	state := map[int64]*known{}
	for i := range b.tr.Events {
		e := b.ev(i)
		if !e.K.Mutates() {
			continue
		}
		for n := range e.Blocks.All {
			if _, dead := b.dead[n]; dead {
				continue
			}
			k := state[n]
			if k == nil {
				k = &known{sure: true, others: true, holder: map[string]bool{}, settled: map[string]bool{}}
				state[n] = k
			}
			if now := b.epoch(i); now != k.epoch {
				k.epoch, k.sure, k.others, k.settled = now, false, false, map[string]bool{}
			}
			b.mutate(k, n, i)
		}
	}
}

// mutate applies one mutation to one block.
func (b *brute) mutate(k *known, n int64, i int) {
	e := b.ev(i)
	broken := func(rule spec.RuleID, sure bool) {
		if sure {
			b.say(rule, spec.Fail)
		} else {
			b.say(rule, spec.Inconclusive)
		}
	}
	settledHolder := func(name string) bool { return k.settled[name] || k.others }
	l := k.lease
	switch e.K {
	case spec.KindAlloc:
		b.say(spec.BLK1, spec.Pass)
		if l != nil {
			broken(spec.BLK1, k.sure)
			if k.sure {
				b.dead[n] = i
			} else {
				l.lostUntil = i
			}
		}
		k.lease = &bruteLease{block: n, alloc: i, free: -1, lostUntil: -1}
		b.leases = append(b.leases, k.lease)
		k.sure, k.others, k.holder, k.settled = true, true, map[string]bool{e.Holder: true}, map[string]bool{}
		k.lease.hold(e.Holder, i)
		return
	case spec.KindFree:
		b.say(spec.BLK4, spec.Pass)
		if l == nil {
			broken(spec.BLK4, k.sure)
		} else {
			b.freed(k, e.Holder, broken, settledHolder)
			l.free = i
			l.leave("", i)
		}
		k.lease, k.sure, k.others, k.holder, k.settled = nil, true, true, map[string]bool{}, map[string]bool{}
		return
	case spec.KindDrop:
		b.say(spec.BLK4, spec.Pass)
	}
	if l == nil {
		if e.K != spec.KindRevoke {
			broken(spec.BLK4, k.sure)
		}
		return
	}
	switch e.K {
	case spec.KindHold:
		if k.holder[e.Holder] {
			broken(spec.BLK4, settledHolder(e.Holder))
		} else {
			l.hold(e.Holder, i)
		}
		k.holder[e.Holder], k.settled[e.Holder] = true, true
	case spec.KindDrop:
		if !k.holder[e.Holder] {
			broken(spec.BLK4, settledHolder(e.Holder))
		}
		l.leave(e.Holder, i)
		delete(k.holder, e.Holder)
		k.settled[e.Holder] = true
	case spec.KindGrant:
		l.grants = append(l.grants, i)
	case spec.KindRevoke:
		l.revokes = append(l.revokes, i)
	}
}

func (l *bruteLease) hold(name string, i int) {
	l.holds = append(l.holds, &bruteHold{name: name, by: i, from: i, to: -1})
}

// leave ends the stay of a holder, of all if the name is empty.
func (l *bruteLease) leave(name string, i int) {
	for _, h := range l.holds {
		if h.to < 0 && (name == "" || h.name == name) {
			h.to = i
		}
	}
}

// freed judges the free of a lease: no other holder may be left, and the one that
// it drops must be one. Without a name it drops the only one left.
func (b *brute) freed(k *known, holder string, broken func(spec.RuleID, bool), settled func(string) bool) {
	others, surelyOthers := 0, 0
	for name := range k.holder {
		if name != holder {
			others++
			if settled(name) {
				surelyOthers++
			}
		}
	}
	most := 0
	if holder == "" {
		most = 1
	}
	if others > most {
		broken(spec.BLK4, surelyOthers > most)
	} else if holder != "" && !k.holder[holder] {
		broken(spec.BLK4, settled(holder))
	}
}

// lostMayPrecede reports whether a mutation that was lost may come before the
// event: after the last one before the loss.
func (b *brute) lostMayPrecede(i int) bool {
	last, lost := -1, false
	for j := range b.tr.Events {
		e := b.ev(j)
		if e.K == spec.KindPool || e.K.Mutates() {
			lost = lost || len(b.src[e.Src].losses) > 0
		}
		if e.K.Mutates() && b.epoch(j) == 0 {
			last = j
		}
	}
	return lost && (last < 0 || last == i || some(b.all, func(o []int) bool { return o[last] < o[i] }))
}

// accesses finds out what each access may belong to.
func (b *brute) accesses() {
	pools := map[string]bool{}
	for i := range b.tr.Events {
		if e := b.ev(i); e.K == spec.KindPool {
			pools[b.worker(i)] = true
		}
	}
	for i := range b.tr.Events {
		e := b.ev(i)
		if e.K != spec.KindBegin {
			continue
		}
		a := &bruteAccess{id: e.Access, begin: i, end: -1, by: b.worker(i), src: e.Src}
		b.access = append(b.access, a)
		for j := range b.tr.Events {
			switch f := b.ev(j); {
			case f.K == spec.KindEnd && f.Access == e.Access:
				a.end = j
			case f.K == spec.KindFence && f.Handoff == e.Handoff && e.Handoff != "" && b.worker(j) == e.Target && a.by != e.Target:
				a.fences = append(a.fences, j)
			}
		}
		if !pools[e.Target] {
			a.state = "unknown"
			continue
		}
		for n := range e.Blocks.All {
			if d, dead := b.dead[n]; slices.Contains(a.blocks, n) || dead && some(b.all, func(o []int) bool { return o[d] < o[i] }) {
				continue
			}
			a.blocks = append(a.blocks, n)
			a.cands = append(a.cands, b.candidates(a, n))
		}
		if len(a.blocks) == 0 {
			a.state = "unjudged"
		}
	}
}

func (b *brute) candidates(a *bruteAccess, n int64) []bruteCandidate {
	e := b.ev(a.begin)
	var granted, held []bruteCandidate
	exposed := false
	for _, l := range b.leases {
		if l.block != n {
			continue
		}
		c := bruteCandidate{lease: l, lower: l.alloc, revoke: -1, until: l.free}
		if l.free < 0 {
			c.until = l.lostUntil
		}
		for _, g := range l.grants {
			f := b.ev(g)
			if f.Handoff != e.Handoff || e.Handoff == "" || a.by == e.Target {
				continue
			}
			exposed = true
			if f.To != a.by && f.To != "*" || !strings.Contains(f.Mode, e.Mode) {
				continue
			}
			c := c
			c.lower = g
			for _, r := range l.revokes {
				if v := b.ev(r); c.revoke < 0 && r > g && v.Handoff == f.Handoff && (v.To == "*" || v.To == a.by) && strings.Contains(v.Mode, e.Mode) {
					c.revoke = r
				}
			}
			granted = append(granted, c)
		}
		if slices.ContainsFunc(l.holds, func(h *bruteHold) bool {
			names := []string{"h" + b.ev(h.by).Handoff, "r" + b.ev(h.by).Req}
			names = slices.DeleteFunc(names, func(s string) bool { return len(s) == 1 })
			return meet(names, b.concern(e.Handoff, e.Req))
		}) {
			held = append(held, c)
		}
	}
	if exposed {
		return granted
	}
	return held
}

// begins reports whether the access begins, in the order, under the candidate.
func (c *bruteCandidate) begins(o []int, a *bruteAccess) bool {
	at := o[a.begin]
	return o[c.lower] < at && (c.revoke < 0 || at < o[c.revoke]) && (c.until < 0 || at < o[c.until])
}

// turnedAway reports whether the order has the access begin after a fence.
func (a *bruteAccess) turnedAway(o []int) bool {
	return slices.ContainsFunc(a.fences, func(f int) bool { return o[f] < o[a.begin] })
}

// over is where the access is over in the order: at its end or at a fence. It is
// -1 if nothing says so.
func (a *bruteAccess) over(o []int) int {
	at := -1
	if a.end >= 0 {
		at = o[a.end]
	}
	for _, f := range a.fences {
		if o[f] > o[a.begin] && (at < 0 || o[f] < at) {
			at = o[f]
		}
	}
	return at
}

// ends reports whether the access is over before the candidate's lease is.
func (b *brute) ends(c *bruteCandidate, o []int, a *bruteAccess) bool {
	if c.until < 0 {
		return true
	}
	if at := a.over(o); at >= 0 {
		return at < o[c.until]
	}
	seal := b.src[a.src].seal
	return seal < 0 || b.lost || o[seal] < o[c.until]
}

func (a *bruteAccess) pairs(o []int) bool { return a.end < 0 || o[a.begin] < o[a.end] }

// fits reports whether the order is one in which the access keeps its chain;
// without ends, only as far as its begin goes.
func (b *brute) fits(o []int, a *bruteAccess, ends bool) bool {
	if ends && !a.pairs(o) {
		return false
	}
	if a.turnedAway(o) {
		return true
	}
	for _, cands := range a.cands {
		if !slices.ContainsFunc(cands, func(c bruteCandidate) bool {
			return c.begins(o, a) && (!ends || b.ends(&c, o, a))
		}) {
			return false
		}
	}
	return true
}

// freed reports whether the access may belong to a lease that was freed.
func (b *brute) mayBeFreed(a *bruteAccess, orders [][]int) bool {
	return some(orders, func(o []int) bool {
		if a.turnedAway(o) || !b.fits(o, a, true) {
			return false
		}
		for _, cands := range a.cands {
			for _, c := range cands {
				if c.begins(o, a) && b.ends(&c, o, a) && c.lease.free >= 0 {
					return true
				}
			}
		}
		return false
	})
}

func (b *brute) questionOne() {
	b.accesses()
	for _, a := range b.access {
		b.alone(a)
	}
	b.together()
}

func (b *brute) alone(a *bruteAccess) {
	switch a.state {
	case "unknown":
		b.say(spec.BLK3, spec.Inconclusive)
		return
	case "unjudged":
		return
	}
	if slices.ContainsFunc(a.fences, func(f int) bool { return surely(b.all, f, a.begin) }) {
		a.state = "harmless"
		return
	}
	b.say(spec.BLK3, spec.Pass)
	if !some(b.all, func(o []int) bool { return b.fits(o, a, false) }) {
		a.state = "stale"
		if b.lostMayPrecede(a.begin) {
			a.state = "unknown"
			b.say(spec.BLK3, spec.Inconclusive)
			return
		}
		b.say(spec.BLK3, spec.Fail)
		return
	}
	if !some(b.all, func(o []int) bool { return b.fits(o, a, true) }) {
		a.state = "early"
		b.say(spec.BLK2, spec.Fail)
		return
	}
	a.state = "legal"
	b.outlived(a)
}

// outlived notes that an access whose lease was freed exercises BLK-2; an unseen
// end that only a loss keeps from being a violation leaves it open.
func (b *brute) outlived(a *bruteAccess) {
	if b.mayBeFreed(a, b.all) {
		b.say(spec.BLK2, spec.Pass)
	}
	if seal := b.src[a.src].seal; a.end < 0 && b.lost && seal >= 0 && len(a.fences) == 0 {
		if !some(b.all, func(o []int) bool {
			for _, cands := range a.cands {
				if !slices.ContainsFunc(cands, func(c bruteCandidate) bool { return c.begins(o, a) && (c.until < 0 || o[seal] < o[c.until]) }) {
					return false
				}
			}
			return true
		}) {
			b.say(spec.BLK2, spec.Inconclusive)
		}
	}
}

// together finds the orders that all accesses fit which fit alone. Where there
// are none, the smallest sets of accesses that do not fit together are at fault,
// each as one.
func (b *brute) together() {
	for {
		var legal []*bruteAccess
		for _, a := range b.access {
			if a.state == "legal" {
				legal = append(legal, a)
			}
		}
		b.legal = nil
		for _, o := range b.all {
			if !slices.ContainsFunc(legal, func(a *bruteAccess) bool { return !b.fits(o, a, true) }) {
				b.legal = append(b.legal, o)
			}
		}
		if len(b.legal) > 0 {
			break
		}
		b.blame(legal)
		if b.vague {
			return
		}
	}
	for _, a := range b.access {
		if a.state == "legal" && slices.ContainsFunc(a.fences, func(f int) bool { return surely(b.legal, f, a.begin) }) {
			a.state = "harmless"
			b.reached["turned away, given the others"] = true
			b.open[spec.BLK2], b.open[spec.BLK3] = true, true // whether it exercised them before is not said
		}
	}
}

func (b *brute) blame(legal []*bruteAccess) {
	var least [][]*bruteAccess
	for size := 2; size <= len(legal) && least == nil; size++ {
		for set := range 1 << len(legal) {
			var group []*bruteAccess
			for i, a := range legal {
				if set&(1<<i) != 0 {
					group = append(group, a)
				}
			}
			if len(group) == size && !some(b.all, func(o []int) bool {
				return !slices.ContainsFunc(group, func(a *bruteAccess) bool { return !b.fits(o, a, true) })
			}) {
				least = append(least, group)
			}
		}
	}
	if len(least) != 1 {
		b.vague = true
		return
	}
	rule, state := spec.BLK2, "early"
	if !some(b.all, func(o []int) bool {
		return !slices.ContainsFunc(least[0], func(a *bruteAccess) bool { return !b.fits(o, a, false) })
	}) {
		rule, state = spec.BLK3, "stale"
		b.open[spec.BLK2] = true // which of them exercised it before is not said
	}
	b.reached["together not, by "+string(rule)] = true
	b.say(rule, spec.Fail)
	for _, a := range least[0] {
		a.state = state
	}
}
