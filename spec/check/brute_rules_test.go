package check_test

import (
	"slices"
	"strings"

	"conform/spec"
)

// path reports whether program order and admissible signals lead from one of the
// events to another.
func (b *brute) path(from []int, to int, admissible func(i int) bool) bool {
	seen := map[int]bool{}
	for queue := slices.Clone(from); len(queue) > 0; queue = queue[1:] {
		i := queue[0]
		if i == to {
			return true
		}
		if seen[i] {
			continue
		}
		seen[i] = true
		for j := range b.tr.Events {
			x, y := b.ev(i), b.ev(j)
			if x.Src == y.Src && x.Th == y.Th && x.Seq < y.Seq ||
				x.K == spec.KindEmit && y.K == spec.KindObserve && x.Sig == y.Sig && admissible(i) {
				queue = append(queue, j)
			}
		}
	}
	return false
}

// about restricts to signals that concern the same handoff or request as event
// of, and whose claim is good enough.
func (b *brute) about(of int, claims func(e *spec.Event) bool) func(int) bool {
	mine := b.concern(b.ev(of).Handoff, b.ev(of).Req)
	return func(i int) bool {
		e := b.ev(i)
		return claims(e) && meet(b.concern(e.Handoff, e.Req), mine)
	}
}

func anyClaim(*spec.Event) bool { return true }

// missing is the verdict on a path that is not there.
func (b *brute) missing() spec.Verdict {
	if b.lost {
		return spec.Inconclusive
	}
	return spec.Unproven
}

// questionTwo judges SIG-2.
func (b *brute) questionTwo() {
	touched := map[*bruteLease][]*bruteAccess{}
	for _, a := range b.access {
		switch a.state {
		case "early":
			for _, c := range b.choices(a, b.all, false) {
				for _, k := range c {
					touched[k.lease] = append(touched[k.lease], a)
					b.noEvidence(k.lease, spec.Unproven)
				}
			}
		case "legal":
			b.evidenceOf(a, touched)
		}
	}
	for _, l := range b.leases {
		if l.free >= 0 {
			b.grantees(l, touched[l])
		}
	}
}

func (b *brute) noEvidence(l *bruteLease, v spec.Verdict) {
	b.evidence[l] = max(b.evidence[l], v)
}

// choices lists the choices of one candidate per block that some order allows.
func (b *brute) choices(a *bruteAccess, orders [][]int, ends bool) [][]bruteCandidate {
	all := [][]bruteCandidate{nil}
	for _, cands := range a.cands {
		var next [][]bruteCandidate
		for _, c := range all {
			for _, k := range cands {
				next = append(next, append(slices.Clone(c), k))
			}
		}
		all = next
	}
	return slices.DeleteFunc(all, func(c []bruteCandidate) bool {
		return !some(orders, func(o []int) bool {
			if ends && (!a.pairs(o) || a.turnedAway(o)) {
				return false
			}
			return !slices.ContainsFunc(c, func(k bruteCandidate) bool { return !k.begins(o, a) || ends && !b.ends(&k, o, a) })
		})
	})
}

// evidenceOf judges one access: some choice that is legal must have all paths. If
// none has, which one counts is open.
func (b *brute) evidenceOf(a *bruteAccess, touched map[*bruteLease][]*bruteAccess) {
	choices := b.choices(a, b.legal, true)
	if len(choices) == 0 {
		return
	}
	if len(choices) > 1 { // which leases it touched depends on the choice
		b.reached["several leases fit"] = true
		b.open[spec.SIG2], b.open[spec.REQ2] = true, true
	}
	best := -1
	for i, c := range choices {
		if b.shortfalls(a, c, nil) == 0 {
			best = i
			break
		}
	}
	chosen := choices[max(best, 0)]
	freed := slices.ContainsFunc(chosen, func(k bruteCandidate) bool { return k.lease.free >= 0 })
	for _, k := range chosen {
		touched[k.lease] = append(touched[k.lease], a)
	}
	if freed {
		b.say(spec.SIG2, spec.Pass)
	}
	if best < 0 {
		b.say(spec.SIG2, b.missing())
		b.shortfalls(a, chosen, func(l *bruteLease) { b.noEvidence(l, b.missing()) })
	}
}

// shortfalls counts the paths that are missing for an access; those to a free it
// reports.
func (b *brute) shortfalls(a *bruteAccess, choice []bruteCandidate, report func(*bruteLease)) int {
	n := 0
	over := b.about(a.begin, func(e *spec.Event) bool {
		return e.Claims == spec.ClaimsDrained || e.Claims == spec.ClaimsCompleted && (e.Accesses == nil || slices.Contains(e.Accesses, a.id))
	})
	told := b.about(a.begin, anyClaim)
	for _, k := range choice {
		if k.lower != k.lease.alloc && !b.path([]int{k.lease.alloc}, k.lower, told) || !b.path([]int{k.lower}, a.begin, told) {
			n++
		}
		if k.lease.free < 0 {
			continue
		}
		from := slices.Clone(a.fences)
		if a.end >= 0 {
			from = append(from, a.end)
		}
		if !b.path(from, k.lease.free, over) {
			n++
			if report != nil {
				report(k.lease)
			}
		}
	}
	return n
}

// grantees judges those who were granted a freed lease and of whom no access was
// seen.
func (b *brute) grantees(l *bruteLease, touched []*bruteAccess) {
	owner := b.worker(l.alloc)
	for _, g := range l.grants {
		e := b.ev(g)
		if e.To == owner {
			continue
		}
		b.say(spec.SIG2, spec.Pass)
		if slices.ContainsFunc(touched, func(a *bruteAccess) bool {
			h := b.ev(a.begin).Handoff
			return a.by != owner && (h == "" || h == e.Handoff) && (e.To == "*" || a.by == e.To)
		}) {
			continue
		}
		quiet := b.about(g, func(s *spec.Event) bool {
			return s.Claims == spec.ClaimsDrained || s.Claims == spec.ClaimsStopped || s.Claims == spec.ClaimsCompleted && s.Accesses == nil
		})
		var from []int
		for i := range b.tr.Events {
			switch s := b.ev(i); {
			case s.K == spec.KindEmit && quiet(i) && (b.worker(i) == e.To || e.To == "*" && b.worker(i) != owner):
				from = append(from, i)
			case s.K == spec.KindFence && s.Handoff == e.Handoff && b.worker(i) == owner:
				from = append(from, i)
			}
		}
		if !b.path(from, l.free, quiet) {
			b.say(spec.SIG2, b.missing())
			b.noEvidence(l, b.missing())
		}
	}
}

// sig1 holds what signals claim against what their senders did.
func (b *brute) sig1() {
	for i := range b.tr.Events {
		e := b.ev(i)
		if e.K != spec.KindEmit || e.Claims != spec.ClaimsStopped && e.Claims != spec.ClaimsCompleted && e.Claims != spec.ClaimsDrained {
			continue
		}
		b.say(spec.SIG1, spec.Pass)
		if e.Claims == spec.ClaimsCompleted && e.Accesses != nil {
			for _, id := range e.Accesses {
				j := slices.IndexFunc(b.access, func(a *bruteAccess) bool { return a.id == id })
				if j < 0 {
					b.say(spec.SIG1, spec.Inconclusive)
					continue
				}
				b.claimed(i, b.access[j], func(o []int, a *bruteAccess) bool { return b.overAt(o, a, i) })
			}
			continue
		}
		for _, a := range b.access {
			if a.by != b.worker(i) || !b.speaksOf(e, a) {
				continue
			}
			b.claimed(i, a, func(o []int, a *bruteAccess) bool {
				begun := o[a.begin] < o[i]
				switch e.Claims {
				case spec.ClaimsStopped:
					return begun
				case spec.ClaimsCompleted:
					return !begun || b.overAt(o, a, i)
				}
				return begun && b.overAt(o, a, i)
			})
		}
	}
	for _, a := range b.access {
		if a.state == "harmless" && a.end >= 0 && b.ev(a.end).OK != nil && *b.ev(a.end).OK {
			b.say(spec.SIG1, spec.Fail)
		}
	}
}

func (b *brute) speaksOf(e *spec.Event, a *bruteAccess) bool {
	of := b.ev(a.begin)
	if e.Handoff != "" {
		return of.Handoff == e.Handoff
	}
	return e.Req != "" && slices.Contains(b.requests(of.Handoff, of.Req), e.Req)
}

// overAt reports whether the order has the access begun and over at a signal. An
// end that a sealed source did not see comes after its seal.
func (b *brute) overAt(o []int, a *bruteAccess, i int) bool {
	if o[a.begin] > o[i] {
		return false
	}
	if a.end >= 0 && o[a.end] < o[i] {
		return true
	}
	for _, f := range a.fences {
		if o[f] < o[i] {
			return true
		}
	}
	return false
}

// claimed judges one claim about one access: some order must make it true.
func (b *brute) claimed(i int, a *bruteAccess, holds func([]int, *bruteAccess) bool) {
	if some(b.legal, func(o []int) bool { return holds(o, a) }) {
		return
	}
	e := b.ev(i)
	later := surely(b.legal, i, a.begin)
	unseen := a.end < 0 && len(a.fences) == 0
	if !unseen || later || e.Claims == spec.ClaimsStopped {
		b.say(spec.SIG1, spec.Fail)
		return
	}
	seal := b.src[a.src].seal
	begun := surely(b.legal, a.begin, i)
	switch {
	case b.lost && begun:
		b.say(spec.SIG1, spec.Inconclusive)
	case !b.lost && seal >= 0 && (e.Src == a.src || surely(b.legal, i, seal)): // a seal is its source's last line
		b.say(spec.SIG1, spec.Fail)
	case begun:
		b.say(spec.SIG1, spec.Unproven)
	}
}

// sig3 judges what late, duplicated and replayed signals change.
func (b *brute) sig3() {
	emits := map[string]int{}
	for i := range b.tr.Events {
		if b.ev(i).K == spec.KindEmit {
			emits[b.ev(i).Sig] = i
		}
	}
	for i := range b.tr.Events {
		e := b.ev(i)
		if s, ok := emits[e.Sig]; ok && e.K == spec.KindObserve && e.Handoff != "" && b.ev(s).Handoff != "" {
			b.say(spec.SIG3, spec.Pass)
			if e.Handoff != b.ev(s).Handoff {
				b.say(spec.SIG3, spec.Fail)
			}
		}
		if s, ok := emits[e.By]; ok && e.By != "" {
			b.decision(i, b.ev(s))
		}
	}
}

// decision judges one decision by the signal that it waited for.
func (b *brute) decision(i int, of *spec.Event) {
	e := b.ev(i)
	sides := [][2]string{{e.Handoff, e.Req}}
	if e.K.Mutates() && (e.Handoff == "" || e.Req == "") {
		sides = nil
		for n := range e.Blocks.All {
			sides = append(sides, b.fromLease(i, n))
		}
	}
	for _, side := range sides {
		handoff, req := side[0], side[1]
		other := false
		switch {
		case handoff != "" && of.Handoff != "":
			other = handoff != of.Handoff
		case req != "" && of.Req != "":
			other = req != of.Req
		case of.Handoff == "" && of.Req != "" && handoff != "" && len(b.requests(handoff, "")) > 0:
			other = !slices.Contains(b.requests(handoff, ""), of.Req)
			b.open[spec.SIG3] = b.open[spec.SIG3] || b.lost
		case of.Handoff != "" && handoff == "" && req != "" && len(b.requests(of.Handoff, "")) > 0:
			other = !slices.Contains(b.requests(of.Handoff, ""), req)
			b.open[spec.SIG3] = b.open[spec.SIG3] || b.lost
		default:
			continue
		}
		b.say(spec.SIG3, spec.Pass)
		if other {
			b.say(spec.SIG3, spec.Fail)
		}
	}
}

// fromLease fills in what a mutation does not name from the lease of a block. What
// a lease that several hold, or that is in doubt, names is open.
func (b *brute) fromLease(i int, n int64) [2]string {
	e := b.ev(i)
	out := [2]string{e.Handoff, e.Req}
	for _, l := range b.leases {
		if l.block != n || b.ev(l.alloc).Seq > e.Seq || l.free >= 0 && b.ev(l.free).Seq < e.Seq {
			continue
		}
		a := b.ev(l.alloc)
		_, dead := b.dead[n]
		if len(l.holds) > 1 || dead || b.lost || e.Handoff != "" && a.Handoff != "" && e.Handoff != a.Handoff || e.Req != "" && a.Req != "" && e.Req != a.Req {
			b.open[spec.SIG3] = true
			return [2]string{}
		}
		if out[0] == "" {
			out[0] = a.Handoff
		}
		if out[1] == "" {
			out[1] = a.Req
		}
	}
	return out
}

// sig4 judges that what asks for an answer gets one.
func (b *brute) sig4() {
	for i := range b.tr.Events {
		e := b.ev(i)
		if e.K != spec.KindEmit || e.Asks == "" {
			continue
		}
		b.say(spec.SIG4, spec.Pass)
		var settles []int
		for j := range b.tr.Events {
			if b.worker(j) == b.worker(i) && b.settlesAsk(e, b.ev(j)) {
				settles = append(settles, j)
			}
		}
		by := func(until int) bool {
			return some(b.legal, func(o []int) bool {
				return slices.ContainsFunc(settles, func(j int) bool { return o[i] < o[j] && (until < 0 || o[j] < o[until]) })
			})
		}
		late := slices.ContainsFunc(b.idles(b.worker(i)), func(j int) bool { return surely(b.legal, i, j) && !by(j) })
		switch {
		case !late && by(-1):
		case (late || b.src[e.Src].seal >= 0) && !b.lost:
			b.say(spec.SIG4, spec.Fail)
		default:
			b.say(spec.SIG4, spec.Inconclusive)
		}
	}
}

// settlesAsk reports whether an event of the worker that asked answers, or reports
// that nobody did.
func (b *brute) settlesAsk(ask, e *spec.Event) bool {
	handoff, req, kind := e.Handoff, e.Req, e.Signal
	switch e.K {
	case spec.KindObserve:
		for k := range b.tr.Events {
			if s := b.ev(k); s.K == spec.KindEmit && s.Sig == e.Sig {
				kind = s.Signal
				if s.Handoff != "" || s.Req != "" {
					handoff, req = s.Handoff, s.Req
				}
			}
		}
		if kind, _, _ = strings.Cut(kind, "/"); kind != ask.Asks {
			return false
		}
	case spec.KindExpire:
	case spec.KindFinish:
		if e.Result != spec.OutcomeError {
			return false
		}
	default:
		return false
	}
	return meet(b.concern(handoff, req), b.concern(ask.Handoff, ask.Req))
}

// idles lists the events that say that a worker is idle.
func (b *brute) idles(worker string) []int {
	var out []int
	for i := range b.tr.Events {
		if e := b.ev(i); e.K == spec.KindIdle && slices.Contains(e.Workers, worker) {
			out = append(out, i)
		}
	}
	return out
}

// endedFor lists the events of some kinds for a request.
func (b *brute) endedFor(req string, kinds ...spec.Kind) []int {
	var out []int
	for i := range b.tr.Events {
		if slices.Contains(kinds, b.ev(i).K) && b.forRequest(i, req) {
			out = append(out, i)
		}
	}
	return out
}

func within(o []int, at, from, to int) bool {
	return o[from] < o[at] && (to < 0 || o[at] < o[to])
}

// blk5 judges leaks at each idle, block by block.
func (b *brute) blk5() {
	pool := ""
	for i := range b.tr.Events {
		if b.ev(i).K == spec.KindPool {
			pool = b.worker(i)
		}
	}
	if pool == "" {
		return
	}
	for _, idle := range b.idles(pool) {
		b.say(spec.BLK5, spec.Pass)
		for _, l := range b.leases {
			_, dead := b.dead[l.block]
			if dead || l.lostUntil >= 0 || some(b.legal, func(o []int) bool { return !b.leaks(o, l, idle, pool) }) {
				continue
			}
			if b.lostMayPrecede(idle) {
				b.say(spec.BLK5, spec.Inconclusive)
			} else {
				b.say(spec.BLK5, spec.Fail)
			}
		}
	}
}

// leaks reports whether, in the order, the lease is there at the idle with a
// holder whose request has been seen to end, or with none.
func (b *brute) leaks(o []int, l *bruteLease, idle int, worker string) bool {
	if !within(o, idle, l.alloc, l.free) {
		return false
	}
	held := false
	for _, h := range l.holds {
		if !within(o, idle, h.from, h.to) {
			continue
		}
		held = true
		reqs := b.requests(b.ev(h.by).Handoff, b.ev(h.by).Req)
		over := len(reqs) > 0
		for _, r := range reqs {
			over = over && slices.ContainsFunc(b.endedFor(r, spec.KindFinish, spec.KindReject, spec.KindExpire), func(i int) bool {
				return (b.worker(i) == worker || b.src[b.ev(i).Src].client) && o[i] < o[idle]
			})
		}
		if over {
			return true
		}
	}
	return !held
}

func (b *brute) req1() {
	for i := range b.tr.Events {
		if b.ev(i).K != spec.KindReject {
			continue
		}
		b.say(spec.REQ1, spec.Pass)
		for _, j := range b.endedFor(b.ev(i).Req, spec.KindAccept, spec.KindBegin, spec.KindOutput) {
			if surely(b.legal, i, j) {
				b.say(spec.REQ1, spec.Fail)
			}
		}
	}
}

func (b *brute) req2() {
	for _, l := range b.leases {
		for _, h := range l.holds {
			for _, r := range b.requests(b.ev(h.by).Handoff, b.ev(h.by).Req) {
				if ended := b.endedFor(r, spec.KindReject, spec.KindCancel, spec.KindExpire); len(ended) > 0 {
					b.say(spec.REQ2, spec.Pass)
					b.givenBack(l, h, ended)
				}
			}
		}
	}
}

func (b *brute) givenBack(l *bruteLease, h *bruteHold, ended []int) {
	if _, dead := b.dead[l.block]; dead && l.free < 0 {
		return
	}
	for _, idle := range b.idles(b.worker(l.alloc)) {
		kept := !some(b.legal, func(o []int) bool { return !within(o, idle, h.from, h.to) })
		if !kept || !slices.ContainsFunc(ended, func(i int) bool { return surely(b.legal, i, idle) }) {
			continue
		}
		if b.lostMayPrecede(idle) {
			b.say(spec.REQ2, spec.Inconclusive)
		} else {
			b.say(spec.REQ2, spec.Fail)
		}
		return
	}
	s := b.src[b.ev(l.alloc).Src]
	switch {
	case h.to < 0 && l.lostUntil < 0 && s.seal >= 0 && len(s.losses) == 0:
		b.say(spec.REQ2, spec.Fail)
	case h.to < 0:
		b.say(spec.REQ2, spec.Inconclusive)
	case b.ev(h.to).K == spec.KindFree && b.ev(h.to).Why == "timeout":
		b.say(spec.REQ2, max(spec.Pass, b.evidence[l]))
	}
}

// req3 judges accesses that a worker begins for a request that it was told to
// stop.
func (b *brute) req3() {
	for i := range b.tr.Events {
		if b.ev(i).K != spec.KindCancel {
			continue
		}
		for _, r := range b.requests(b.ev(i).Handoff, b.ev(i).Req) {
			for _, j := range b.endedFor(r, spec.KindBegin) {
				if b.worker(j) != b.worker(i) {
					continue
				}
				switch {
				case b.path([]int{i}, j, func(int) bool { return true }):
					b.say(spec.REQ3, spec.Fail)
				case surely(b.legal, i, j):
					b.say(spec.REQ3, spec.Unproven)
				}
			}
			b.say(spec.REQ3, spec.Pass)
		}
	}
}

func (b *brute) req4() {
	type at struct{ worker, req string }
	finished := map[at]bool{}
	bad := map[string]bool{}
	for i := range b.tr.Events {
		e := b.ev(i)
		client := b.src[e.Src].client
		switch e.K {
		case spec.KindFinish:
			b.say(spec.REQ4, spec.Pass)
			if finished[at{b.worker(i), e.Req}] {
				b.say(spec.REQ4, spec.Fail)
			}
			finished[at{b.worker(i), e.Req}] = true
			bad[e.Req] = bad[e.Req] || !client && (e.Result == spec.OutcomeError || e.Result == spec.OutcomeRejected || e.Result == spec.OutcomeCancelled)
		case spec.KindReject, spec.KindExpire:
			bad[e.Req] = bad[e.Req] || !client && e.Req != ""
		}
	}
	for i := range b.tr.Events {
		e := b.ev(i)
		good := e.Result == spec.OutcomeOK || e.Result == spec.OutcomeLength || e.Status/100 == 2
		if e.K == spec.KindFinish && b.src[e.Src].client && good && bad[e.Req] {
			b.say(spec.REQ4, spec.Fail)
		}
	}
}

func (b *brute) req5() {
	for i := range b.tr.Events {
		e := b.ev(i)
		if e.K != spec.KindAdmit {
			continue
		}
		need, unit := e.Need, e.Unit
		for j := range b.tr.Events {
			if s := b.ev(j); need == nil && s.K == spec.KindSubmit && s.Req == e.Req {
				need, unit = s.Need, s.Unit
			}
		}
		latest := -1
		for j := range i {
			if c := b.ev(j); c.K == spec.KindCapacity && c.Src == e.Src && c.Unit == unit {
				latest = j
			}
		}
		if need == nil || unit == "" || latest < 0 {
			continue
		}
		b.say(spec.REQ5, spec.Pass)
		if *need > b.ev(latest).Limit {
			if b.epoch(latest) != b.epoch(i) {
				b.say(spec.REQ5, spec.Inconclusive)
			} else {
				b.say(spec.REQ5, spec.Fail)
			}
		}
	}
}

func (b *brute) data() {
	for i := range b.tr.Events {
		e := b.ev(i)
		switch {
		case e.K == spec.KindAnswer && e.HasExp:
			b.say(spec.DAT2, spec.Pass)
			if e.Sum != e.Expect {
				b.say(spec.DAT2, spec.Fail)
			}
		case e.K == spec.KindDigest:
			sides, differ := map[string]bool{}, false
			for j := range b.tr.Events {
				if f := b.ev(j); f.K == spec.KindDigest && f.Handoff == e.Handoff && f.Part == e.Part {
					sides[f.Side] = true
					differ = differ || f.Sum != e.Sum
				}
			}
			if len(sides) == 2 {
				b.say(spec.DAT1, spec.Pass)
				if differ {
					b.say(spec.DAT1, spec.Fail)
				}
			}
		}
	}
}
