package check_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
)

// near makes small traces that are nearly right: the story of a lease or two, of
// which some events are missing, early, late, repeated, under another name or on
// another clock.
type near struct {
	r      *rand.Rand
	events []nearEvent
	clocks int
}

type nearEvent struct {
	src, th string
	at      int
	e       spec.Event
}

// odds is true once in n times.
func (n *near) odds(of int) bool { return n.r.IntN(of) == 0 }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (n *near) add(src string, at int, e spec.Event) {
	th := "main"
	if n.odds(4) {
		th = "io"
	}
	n.events = append(n.events, nearEvent{src, th, at + pick(n.r, 0, 0, 0, 0, 0, 0, 1, -1, 2, -2, 4), e})
}

// names gives the events of room i, mostly, its names.
func (n *near) names(i int, e spec.Event) spec.Event {
	if n.odds(20) {
		i = 1 - i
	}
	e.Handoff = []string{"h0", "h1"}[i]
	e.Req = []string{"r0", "r1"}[i]
	switch n.r.IntN(6) {
	case 0:
		e.Req = ""
	case 1:
		if e.K != spec.KindGrant && e.K != spec.KindFence && e.K != spec.KindAccept {
			e.Handoff = ""
		}
	}
	return e
}

func (n *near) blocks() spec.Blocks {
	switch n.r.IntN(8) {
	case 0:
		return spec.MakeBlocks(3, 4)
	case 1:
		return spec.MakeBlocks(4)
	}
	return spec.MakeBlocks(3)
}

// lease tells of one lease, an access to it and the signals about both.
func (n *near) lease(i, at int) int {
	blocks := n.blocks()
	on := func(e spec.Event) spec.Event {
		e.Pool, e.Blocks = "kv", blocks
		if n.odds(20) {
			e.Blocks = n.blocks()
		}
		return n.names(i, e)
	}
	mode := pick(n.r, "w", "w", "w", "r")
	who := pick(n.r, "P", "P", "P", "D")
	id := fmt.Sprintf("a%d", i)
	n.add("D", at, on(spec.Event{K: spec.KindAlloc, Holder: "x"}))
	if !n.odds(4) {
		n.add("D", at+1, on(spec.Event{K: spec.KindGrant, To: pick(n.r, "p0", "p0", "*", "c0"), Mode: pick(n.r, "w", "rw", "r", "w")}))
	}
	if !n.odds(3) {
		n.add("D", at+1, n.names(i, spec.Event{K: spec.KindEmit, Sig: "m" + id, Signal: "METADATA"}))
		n.add(who, at+2, n.observe(i, "m"+id))
	}
	if !n.odds(5) {
		b := on(spec.Event{K: spec.KindBegin, Access: id, Mode: mode, Target: "d0"})
		if b.Handoff == "" && b.Req == "" {
			b.Req = "r0"
		}
		n.add(who, at+3, b)
		if !n.odds(4) {
			n.add(who, at+4, spec.Event{K: spec.KindEnd, Access: id, OK: pick(n.r, nil, new(true), new(false))})
		}
	}
	if !n.odds(3) {
		s := n.names(i, spec.Event{K: spec.KindEmit, Sig: "s" + id, Signal: "STATUS/1", Claims: n.claims()})
		if n.odds(4) && s.Claims == spec.ClaimsCompleted {
			s.Accesses = []string{pick(n.r, "a0", "a1", "never")}
		}
		n.add(who, at+5, s)
		n.add("D", at+6, n.observe(i, "s"+id))
	}
	if !n.odds(5) {
		f := on(spec.Event{K: spec.KindFree, Why: pick(n.r, "", "timeout")})
		if n.odds(2) {
			f.Holder = "x"
		}
		if n.odds(3) {
			f.By = pick(n.r, "s"+id, "s"+id, "m"+id, "sa0")
		}
		if n.odds(6) {
			f.Handoff, f.Req = "", pick(n.r, "", f.Req) // told by its lease
		}
		n.add("D", at+7, f)
	}
	return at + 8
}

// observe takes a signal in, now and then as one of another handoff.
func (n *near) observe(i int, sig string) spec.Event {
	e := spec.Event{K: spec.KindObserve, Sig: sig}
	if n.odds(5) {
		e.Handoff = []string{"h0", "h1"}[i]
		if n.odds(4) {
			e.Handoff = "h1"
		}
	}
	return e
}

func (n *near) claims() spec.Predicate {
	return pick(n.r, spec.ClaimsDrained, spec.ClaimsCompleted, spec.ClaimsStopped, spec.ClaimsReceived, spec.ClaimsCompleted, spec.ClaimsNothing)
}

// more adds events of all other kinds.
func (n *near) more(last int) {
	at := func() int { return n.r.IntN(last + 1) }
	i := n.r.IntN(2)
	who := pick(n.r, "D", "P", "C")
	req := pick(n.r, "r0", "r1")
	switch n.r.IntN(22) {
	case 0:
		n.add("D", at(), n.names(i, spec.Event{K: spec.KindFence}))
	case 1:
		n.add("D", at(), n.names(i, spec.Event{K: spec.KindRevoke, Pool: "kv", Blocks: n.blocks(), To: pick(n.r, "p0", "*"), Mode: pick(n.r, "w", "r", "rw")}))
	case 2:
		n.add("D", at(), n.names(i, spec.Event{K: spec.KindHold, Pool: "kv", Blocks: n.blocks(), Holder: pick(n.r, "x", "y")}))
	case 3:
		n.add("D", at(), n.names(i, spec.Event{K: spec.KindDrop, Pool: "kv", Blocks: n.blocks(), Holder: pick(n.r, "x", "y"), By: pick(n.r, "", "", "sa0", "sa1")}))
	case 4:
		n.add(who, at(), n.names(i, spec.Event{K: spec.KindCancel}))
	case 5:
		n.add(who, at(), spec.Event{K: spec.KindReject, Req: req})
	case 6:
		n.add(who, at(), n.names(i, spec.Event{K: spec.KindExpire}))
	case 7, 8:
		n.add(who, at(), spec.Event{K: spec.KindFinish, Req: req, Result: pick(n.r, spec.OutcomeOK, spec.OutcomeError, spec.OutcomeLength), Status: pick(n.r, int64(0), 200, 500)})
	case 9:
		n.add(who, at(), spec.Event{K: spec.KindAccept, Req: req, Handoff: []string{"h0", "h1"}[i], By: pick(n.r, "", "sa0", "ma0")})
	case 10:
		n.add(who, at(), spec.Event{K: spec.KindOutput, Req: req})
	case 11, 12:
		n.add("H", pick(n.r, last, last, last, at()), spec.Event{K: spec.KindIdle, Workers: []string{pick(n.r, "d0", "d0", "p0")}})
	case 13:
		n.add(who, at(), spec.Event{K: spec.KindLost, Count: int64(n.r.IntN(2))})
	case 14:
		id := "extra"
		n.add(pick(n.r, "D", "P"), at(), spec.Event{K: spec.KindBegin, Access: id, Mode: "w", Target: pick(n.r, "d0", "d0", "d0", "d9"), Pool: "kv", Blocks: n.blocks(), Req: req, Handoff: pick(n.r, "", "h0", "h1")})
		n.add(pick(n.r, "D", "P"), last, spec.Event{K: spec.KindEnd, Access: id})
	case 15:
		n.add("D", at(), spec.Event{K: spec.KindCapacity, Stage: "x", Limit: 10, Unit: "token"})
		n.add(pick(n.r, "D", "D", "P"), at(), spec.Event{K: spec.KindAdmit, Req: req, Need: new(int64(9 + n.r.IntN(3))), Unit: pick(n.r, "token", "token", "")})
	case 16:
		n.add("D", at(), spec.Event{K: spec.KindDigest, Handoff: "h0", Side: "source", Sum: pick(n.r, "1", "2")})
		n.add("P", at(), spec.Event{K: spec.KindDigest, Handoff: "h0", Side: pick(n.r, "target", "source"), Sum: pick(n.r, "1", "2")})
	case 17:
		n.add("C", at(), spec.Event{K: spec.KindAnswer, Req: req, Sum: "1", Expect: pick(n.r, "1", "2"), HasExp: !n.odds(3)})
	case 18:
		if n.odds(4) { // a word of somebody who was not recorded
			n.add("D", at(), n.names(i, spec.Event{K: spec.KindObserve, Sig: "unseen", Signal: pick(n.r, "STATUS/4", "STATUS", "")}))
		}
		n.add(pick(n.r, "D", "D", "P"), at(), n.names(i, spec.Event{K: spec.KindEmit, Sig: "ask", Signal: "ABORT", Asks: pick(n.r, "STATUS", "STATUS", "METADATA")}))
	case 19: // told to stop, right where accesses begin
		n.add(pick(n.r, "P", "P", "D"), pick(n.r, 2, 3, 3, 4, 10, 11), n.names(i, spec.Event{K: spec.KindCancel}))
	case 20:
		n.add(who, at(), n.names(i, spec.Event{K: spec.KindExpire, By: pick(n.r, "sa0", "ma0", "sa1")}))
	case 21:
		lo := int64(n.r.IntN(7) - 5)
		n.add(pick(n.r, "D", "P"), at(), spec.Event{K: spec.KindClockCmp, Clock: "c1", Lo: lo, Hi: lo + int64(n.r.IntN(5))})
	}
}

// maxNear bounds the events of a trace besides its declarations and seals.
const maxNear = 10

func nearTrace(r *rand.Rand) *spec.Trace {
	n := &near{r: r, clocks: pick(r, 1, 1, 1, 1, 2, 2, 2, 3)}
	last := n.lease(0, 1)
	if n.odds(2) {
		last = n.lease(pick(r, 0, 1, 1), pick(r, last, last, last-3))
	}
	for range r.IntN(4) {
		n.more(last)
	}
	unique := map[string]bool{}
	n.events = slices.DeleteFunc(n.events, func(e nearEvent) bool {
		var id string
		switch e.e.K {
		case spec.KindBegin, spec.KindEnd:
			id = string(e.e.K) + e.e.Access
		case spec.KindEmit:
			id = "emit" + e.e.Sig
		default:
			return false
		}
		twice := unique[id]
		unique[id] = true
		return twice
	})
	for len(n.events) > maxNear {
		i := r.IntN(len(n.events))
		if k := n.events[i].e.K; (k == spec.KindAlloc || k == spec.KindBegin) && !n.odds(6) {
			continue // what all the others are about
		}
		n.events = slices.Delete(n.events, i, i+1)
	}
	slices.SortStableFunc(n.events, func(a, b nearEvent) int { return a.at - b.at })
	return n.trace()
}

// trace numbers the events, skews their clocks, and adds declarations and seals.
func (n *near) trace() *spec.Trace {
	tr := &spec.Trace{}
	seq := map[string]uint64{}
	put := func(src, th string, t, t2 int64, e spec.Event) {
		e.Src, e.Th, e.T, e.T2, e.Seq = src, th, t, t2, seq[src]
		seq[src]++
		e.Pos = spec.Position{File: "near", Line: len(tr.Events) + 1}
		tr.Events = append(tr.Events, e)
	}
	clockOf := map[string]int{"D": 0, "P": min(1, n.clocks-1), "C": n.clocks - 1, "H": n.r.IntN(n.clocks)}
	workers := map[string]string{"D": "d0", "P": "p0", "C": "c0", "H": "harness"}
	roles := map[string]spec.Role{"D": spec.RoleDecode, "P": spec.RolePrefill, "C": spec.RoleClient, "H": spec.RoleHarness}
	for _, src := range []string{"D", "P", "C", "H"} {
		if src == "D" || slices.ContainsFunc(n.events, func(e nearEvent) bool { return e.src == src }) {
			put(src, "decl", -1000, 1000, spec.Event{K: spec.KindSource, Worker: workers[src], Role: roles[src], Host: "h", Clock: fmt.Sprintf("c%d", clockOf[src])})
		}
	}
	put("D", "decl", -1000, 1000, spec.Event{K: spec.KindPool, Pool: "kv", Count: 8})
	skew := []int64{0, int64(n.r.IntN(7) - 3), int64(n.r.IntN(7) - 3)}
	last := map[spec.Thread]int64{}
	for _, x := range n.events {
		th := spec.Thread{Src: x.src, Th: x.th}
		t := int64(x.at) + skew[clockOf[x.src]]
		if was, ok := last[th]; ok {
			t = max(t, was)
		}
		last[th] = t
		if n.odds(60) {
			seq[x.src]++ // a gap
		}
		put(x.src, x.th, t, t+int64(pick(n.r, 0, 0, 0, 0, 1, 2, 4)), x.e)
	}
	for _, src := range []string{"D", "P"} {
		if seq[src] > 0 && n.odds(3) {
			t := int64(-10)
			for i := range tr.Events {
				if e := &tr.Events[i]; e.Src == src && e.Th != "decl" {
					t = max(t, e.T2)
				}
			}
			put(src, "main", t, t+int64(n.r.IntN(2)), spec.Event{K: spec.KindSeal})
		}
	}
	return tr
}

func text(tr *spec.Trace) string {
	var b strings.Builder
	for i := range tr.Events {
		b.Write(tr.Events[i].AppendJSON(nil))
		b.WriteByte('\n')
	}
	return b.String()
}

// disagree says how the judge and the brute judge differ about a trace, "" if
// they do not. What was compared is counted.
func disagree(tr *spec.Trace, seen map[string]int) string {
	want := bruteJudge(tr)
	if want == nil {
		seen["too many orders"]++
		return ""
	}
	got, err := check.Judge(context.Background(), tr, check.Options{Parallel: 1, Checker: check.CheckerBoth})
	if want.verdict == nil {
		seen["no order"]++
		if bad := (*check.BadTrace)(nil); !errors.As(err, &bad) {
			return fmt.Sprintf("no order is legal at all, and the judge says %v", err)
		}
		return ""
	}
	if err != nil {
		return fmt.Sprintf("%d orders are legal, and the judge says %v", len(want.all), err)
	}
	if got.Verdict == spec.Error {
		return strings.Join(got.Notes, "\n")
	}
	for what := range want.reached {
		seen[what]++
	}
	if want.vague {
		seen["vague"]++
		return ""
	}
	seen["compared"]++
	var out []string
	for _, r := range got.Rules {
		allowed := want.verdict[r.ID]
		if allowed == nil {
			allowed = verdicts{spec.Unexercised}
		}
		if want.open[r.ID] {
			continue
		}
		seen[string(r.ID)+" "+r.Verdict.String()]++
		if !slices.Contains(allowed, r.Verdict) {
			line := fmt.Sprintf("%s: the judge says %s, by the text it is %v", r.ID, r.Verdict, allowed)
			for _, f := range r.Findings {
				line += "\n\t" + f.Text
			}
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// least takes out of a trace whatever the disagreement does not need.
func least(tr *spec.Trace) *spec.Trace {
	for again := true; again; {
		again = false
		for i := range tr.Events {
			e := tr.Events[i]
			if e.K == spec.KindSource || e.K == spec.KindPool {
				continue
			}
			less := &spec.Trace{Losses: tr.Losses}
			for j, f := range tr.Events {
				if j != i {
					if f.Src == e.Src && f.Seq > e.Seq {
						f.Seq--
					}
					less.Events = append(less.Events, f)
				}
			}
			if disagree(less, map[string]int{}) != "" {
				tr, again = less, true
				break
			}
		}
	}
	return tr
}

// holdAgainst compares the judges on so many traces.
func holdAgainst(t *testing.T, seed uint64, traces int) map[string]int {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 16))
	seen := map[string]int{}
	for i := range traces {
		tr := nearTrace(r)
		if disagree(tr, seen) != "" {
			tr = least(tr)
			require.Fail(t, "the judges disagree", "seed %d, trace %d\n%s\n%s", seed, i, text(tr), disagree(tr, map[string]int{}))
		}
	}
	return seen
}

// TestBruteForce holds the judge against trying out every order, on traces that
// reach every verdict of the rules that orders decide.
func TestBruteForce(t *testing.T) {
	seen := holdAgainst(t, 1, 20_000)
	t.Log(seen)
	for _, must := range []string{
		"compared", "no order", "several leases fit", "together not, by BLK-2", "together not, by BLK-3", "turned away, given the others",
		"BLK-1 pass", "BLK-1 inconclusive", "BLK-1 fail", "BLK-2 pass", "BLK-2 inconclusive", "BLK-2 fail", "BLK-3 pass", "BLK-3 inconclusive", "BLK-3 fail",
		"BLK-4 pass", "BLK-4 inconclusive", "BLK-4 fail", "BLK-5 pass", "BLK-5 fail", "REQ-1 pass", "REQ-1 fail", "REQ-2 pass", "REQ-2 inconclusive",
		"REQ-2 unproven", "REQ-2 fail", "REQ-3 pass", "REQ-3 unproven", "REQ-3 fail", "REQ-4 pass", "REQ-4 fail", "REQ-5 pass", "REQ-5 fail", "SIG-1 pass", "SIG-1 inconclusive", "SIG-1 unproven",
		"SIG-1 fail", "SIG-2 pass", "SIG-2 inconclusive", "SIG-2 unproven",
		"SIG-3 pass", "SIG-3 fail", "SIG-4 pass", "SIG-4 inconclusive", "SIG-4 fail", "DAT-1 pass", "DAT-1 fail", "DAT-2 pass", "DAT-2 fail",
	} {
		require.NotZero(t, seen[must], must)
	}
	require.Greater(t, seen["compared"], 15_000)
}

// TestDisagreed judges again the least traces on which the judges once disagreed.
func TestDisagreed(t *testing.T) {
	files, err := filepath.Glob("testdata/disagreed/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		seen := map[string]int{}
		require.Empty(t, disagree(parse(t, file, data), seen), file)
		require.Equal(t, 1, seen["compared"], file)
	}
}

// TestBruteForceKnows holds the brute judge against the minimal traces of the
// registry: it finds what each bad one shows, and nothing in the good ones. A
// brute judge that agreed to everything would find nothing in the judge either.
func TestBruteForceKnows(t *testing.T) {
	for _, rule := range spec.Rules() {
		data, err := rule.Bad()
		require.NoError(t, err)
		bad := bruteJudge(parse(t, string(rule.ID), data))
		require.NotNil(t, bad, rule.ID)
		want := verdicts{spec.Fail}
		if rule.ID == spec.SIG2 {
			want = verdicts{spec.Unproven}
		}
		require.Equal(t, want, bad.verdict[rule.ID], rule.ID)
		data, err = rule.Good()
		require.NoError(t, err)
		good := bruteJudge(parse(t, string(rule.ID), data))
		require.NotNil(t, good, rule.ID)
		require.Equal(t, verdicts{spec.Pass}, good.verdict[rule.ID], rule.ID)
		for id, v := range good.verdict {
			require.LessOrEqual(t, v[0], spec.Pass, "%s: %s", rule.ID, id)
		}
	}
}
