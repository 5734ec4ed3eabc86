package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// stage is a writer with the usual sources: a decode worker d0 with a pool, two
// prefill workers, a client and the harness, all on one clock.
func stage() *writer {
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "m")
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 64})
	w.source("P", "p0", spec.RolePrefill, "m")
	w.source("Q", "p1", spec.RolePrefill, "m")
	w.source("C", "c0", spec.RoleClient, "m")
	w.source("H", "h", spec.RoleHarness, "m")
	return w
}

// at adds an event of a source's main thread. Blocks and times are in the event's
// own fields; the defaults are pool kv, block 3, handoff room-1 of request r1.
func (w *writer) at(src string, t int64, e spec.Event) *writer { return w.on(src, "main", t, e) }

func (w *writer) on(src, th string, t int64, e spec.Event) *writer {
	width := e.T2
	e.T2 = 0
	switch e.K {
	case spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree, spec.KindGrant, spec.KindRevoke, spec.KindBegin:
		if e.Pool == "" {
			e.Pool = "kv"
		}
		if e.Blocks == nil {
			e.Blocks = spec.MakeBlocks(3)
		}
	}
	switch e.K {
	case spec.KindBegin:
		if e.Target == "" {
			e.Target = "d0"
		}
		if e.Mode == "" {
			e.Mode = "w"
		}
	case spec.KindGrant, spec.KindRevoke:
		if e.To == "" {
			e.To = "p0"
		}
		if e.Mode == "" {
			e.Mode = "w"
		}
	}
	w.add(src, th, t, width, e)
	return w
}

// room names handoff room-1 and request r1 in an event.
func room(k spec.Kind, more ...func(*spec.Event)) spec.Event {
	e := spec.Event{K: k, Handoff: "room-1", Req: "r1"}
	for _, f := range more {
		f(&e)
	}
	return e
}

func holder(name string) func(*spec.Event) { return func(e *spec.Event) { e.Holder = name } }
func acc(id string) func(*spec.Event)      { return func(e *spec.Event) { e.Access = id } }
func blocks(n ...int64) func(*spec.Event) {
	return func(e *spec.Event) { e.Blocks = spec.MakeBlocks(n...) }
}
func mode(m string) func(*spec.Event) { return func(e *spec.Event) { e.Mode = m } }
func to(who string) func(*spec.Event) { return func(e *spec.Event) { e.To = who } }
func why(s string) func(*spec.Event)  { return func(e *spec.Event) { e.Why = s } }
func sig(id, kind string) func(*spec.Event) {
	return func(e *spec.Event) { e.Sig, e.Signal = id, kind }
}
func claims(p spec.Predicate) func(*spec.Event) { return func(e *spec.Event) { e.Claims = p } }
func listing(ids ...string) func(*spec.Event)   { return func(e *spec.Event) { e.Accesses = ids } }
func outcome(o spec.Outcome) func(*spec.Event)  { return func(e *spec.Event) { e.Result = o } }
func under(handoff, r string) func(*spec.Event) {
	return func(e *spec.Event) { e.Handoff, e.Req = handoff, r }
}
func wide(width int64) func(*spec.Event) { return func(e *spec.Event) { e.T2 = width } }
func lostEvents(n int64) spec.Event      { return spec.Event{K: spec.KindLost, Count: n} }
func end(id string) spec.Event           { return spec.Event{K: spec.KindEnd, Access: id} }
func observe(id string) spec.Event       { return spec.Event{K: spec.KindObserve, Sig: id} }

func status(id string, c spec.Predicate) spec.Event {
	return room(spec.KindEmit, sig(id, "STATUS"), claims(c))
}

// offered is an alloc of block 3, its grant to p0 and the signal that tells p0.
func offered(more ...func(*spec.Event)) *writer {
	return stage().
		at("D", 10, room(spec.KindAlloc, append([]func(*spec.Event){holder("r1")}, more...)...)).
		at("D", 11, room(spec.KindGrant, more...)).
		at("D", 12, room(spec.KindEmit, sig("m", "METADATA"))).
		at("P", 13, observe("m"))
}

type variant struct {
	w       *writer
	want    map[spec.RuleID]spec.Verdict
	verdict spec.Verdict
}

func check(t *testing.T, v variant) *Result {
	t.Helper()
	res, err := Judge(context.Background(), &v.w.tr, Options{Checker: CheckerBoth})
	require.NoError(t, err)
	for id, want := range v.want {
		got := ruleResult(res, id)
		require.Equal(t, want, got.Verdict, "%s %v\n%s", id, got.Findings, v.w)
	}
	require.Equal(t, v.verdict, res.Verdict, "%v\n%s", res.Notes, v.w)
	return res
}

// gap makes the source lose an event.
func (w *writer) gap(src string) *writer {
	w.seq[src]++
	return w
}

func TestLostSources(t *testing.T) {
	const inconclusive, fail, pass = spec.Inconclusive, spec.Fail, spec.Pass
	for name, v := range map[string]variant{
		"no path, with a loss": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")).at("P", 35, lostEvents(2)).
				at("D", 40, room(spec.KindFree)), map[spec.RuleID]spec.Verdict{spec.SIG2: inconclusive, spec.BLK2: pass}, inconclusive,
		},
		"a pass, with a loss at the end": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).at("D", 20, lostEvents(1)),
			map[spec.RuleID]spec.Verdict{spec.BLK1: pass},
			inconclusive,
		},
		"a lost line that lost nothing": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).at("D", 20, lostEvents(0)),
			map[spec.RuleID]spec.Verdict{spec.BLK1: pass},
			pass,
		},
		"a second alloc with a loss between": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).gap("D").at("D", 20, room(spec.KindAlloc, holder("r2"))),
			map[spec.RuleID]spec.Verdict{spec.BLK1: inconclusive},
			inconclusive,
		},
		"a second alloc after a loss before both": {
			stage().gap("D").at("D", 10, room(spec.KindAlloc, holder("r1"))).at("D", 20, room(spec.KindAlloc, holder("r2"))),
			map[spec.RuleID]spec.Verdict{spec.BLK1: fail},
			fail,
		},
		"a loss of another source explains no second alloc": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).gap("P").at("P", 15, spec.Event{K: spec.KindNote}).at("D", 20, room(spec.KindAlloc, holder("r2"))),
			map[spec.RuleID]spec.Verdict{spec.BLK1: fail},
			fail,
		},
		"a second free with a loss between": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).at("D", 12, room(spec.KindFree)).gap("D").at("D", 20, room(spec.KindFree)),
			map[spec.RuleID]spec.Verdict{spec.BLK4: inconclusive},
			inconclusive,
		},
		"a drop of one whose hold may be lost": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).gap("D").at("D", 20, room(spec.KindDrop, holder("x"))),
			map[spec.RuleID]spec.Verdict{spec.BLK4: inconclusive},
			inconclusive,
		},
		"dropped twice after a loss": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).gap("D").at("D", 20, room(spec.KindDrop, holder("r1"))).at("D", 21, room(spec.KindDrop, holder("r1"))),
			map[spec.RuleID]spec.Verdict{spec.BLK4: fail},
			fail,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, v) })
	}
}

func TestLostAbsence(t *testing.T) {
	const inconclusive, fail, pass = spec.Inconclusive, spec.Fail, spec.Pass
	for name, v := range map[string]variant{
		"no lease, where the pool's source lost events": {
			stage().at("D", 5, lostEvents(3)).at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: inconclusive},
			inconclusive,
		},
		"no lease, where only the accessor's source lost events": {
			stage().at("P", 5, lostEvents(3)).at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: fail},
			fail,
		},
		"no lease before what was lost": {
			stage().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")).
				at("D", 50, room(spec.KindAlloc, holder("r9"), under("room-9", "r9"))).at("D", 60, lostEvents(3)),
			map[spec.RuleID]spec.Verdict{spec.BLK3: fail},
			fail,
		},
		"an end that a sealed source did not see, with a loss elsewhere": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 60, spec.Event{K: spec.KindSeal}).at("D", 40, room(spec.KindFree)).at("D", 50, lostEvents(1)),
			map[spec.RuleID]spec.Verdict{spec.BLK2: inconclusive, spec.SIG2: inconclusive},
			inconclusive,
		},
		"a lease that may have been freed before the idle": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).at("D", 12, room(spec.KindFinish, outcome(spec.OutcomeOK))).at("D", 20, lostEvents(1)).
				at("H", 100, spec.Event{K: spec.KindIdle, Workers: []string{"d0"}}),
			map[spec.RuleID]spec.Verdict{spec.BLK5: inconclusive},
			inconclusive,
		},
		"a hold that may have been given back": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).at("D", 12, room(spec.KindCancel)).at("D", 20, lostEvents(1)).
				at("H", 100, spec.Event{K: spec.KindIdle, Workers: []string{"d0"}}).at("D", 120, spec.Event{K: spec.KindSeal}),
			map[spec.RuleID]spec.Verdict{spec.REQ2: inconclusive},
			inconclusive,
		},
		"the end of an unknown access": {
			stage().at("D", 10, room(spec.KindAlloc, holder("r1"))).at("P", 20, end("never")),
			map[spec.RuleID]spec.Verdict{spec.BLK1: pass},
			inconclusive,
		},
		"a target that recorded nothing": {
			stage().at("P", 20, room(spec.KindBegin, acc("a"), func(e *spec.Event) { e.Target = "d9" })).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: inconclusive, spec.BLK2: spec.Unexercised, spec.SIG2: spec.Unexercised},
			inconclusive,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, v) })
	}
}

func TestLossIsNoted(t *testing.T) {
	w := stage().at("D", 10, room(spec.KindAlloc, holder("r1")))
	w.tr.Losses = []spec.Loss{{Src: "D", Next: 3, Why: "a torn line", Pos: spec.Position{File: "D.jsonl", Line: 4}}, {Src: "unheard of"}}
	res := check(t, variant{w, map[spec.RuleID]spec.Verdict{spec.BLK1: spec.Pass}, spec.Inconclusive})
	require.Contains(t, strings.Join(res.Notes, "\n"), "source D of d0 is lost from seq 3 on (a torn line, D.jsonl line 4): its last event is D#2 (alloc at 10)")
	require.Contains(t, strings.Join(res.Notes, "\n"), "source P of p0 ends without a seal")
}

func TestAccesses(t *testing.T) {
	const unproven, fail, pass = spec.Unproven, spec.Fail, spec.Pass
	two := []int64{3, 4}
	for name, v := range map[string]variant{
		"half of a grant, the rest quiet by a completed": {
			offered(blocks(two...)).at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")).
				at("P", 31, status("s", spec.ClaimsCompleted)).at("D", 35, observe("s")).at("D", 40, room(spec.KindFree, blocks(two...))),
			map[spec.RuleID]spec.Verdict{spec.SIG2: pass, spec.BLK2: pass},
			pass,
		},
		"half of a grant, the rest not spoken of": {
			offered(blocks(two...)).at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")).
				at("P", 31, room(spec.KindEmit, sig("s", "CHUNK"), claims(spec.ClaimsCompleted), listing("a"))).
				at("D", 35, observe("s")).at("D", 40, room(spec.KindFree, blocks(two...))),
			map[spec.RuleID]spec.Verdict{spec.SIG2: unproven, spec.SIG1: pass, spec.BLK2: pass},
			unproven,
		},
		"a completed of another access": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")).
				at("P", 31, room(spec.KindBegin, acc("b"))).at("P", 32, end("b")).
				at("P", 33, room(spec.KindEmit, sig("s", "CHUNK"), claims(spec.ClaimsCompleted), listing("b"))).
				at("D", 35, observe("s")).at("D", 40, room(spec.KindFree)),
			map[spec.RuleID]spec.Verdict{spec.SIG2: unproven, spec.SIG1: pass},
			unproven,
		},
		"a read under a grant of both": {
			offered(mode("rw")).at("P", 20, room(spec.KindBegin, acc("a"), mode("r"))).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: pass},
			pass,
		},
		"a write after its half of the grant was taken back": {
			offered(mode("rw")).at("D", 15, room(spec.KindRevoke)).at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: fail},
			fail,
		},
		"a read after the other half was taken back": {
			offered(mode("rw")).at("D", 15, room(spec.KindRevoke)).at("P", 20, room(spec.KindBegin, acc("a"), mode("r"))).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: pass},
			pass,
		},
		"begun before the revoke, open after it": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("D", 25, room(spec.KindRevoke)).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: pass},
			pass,
		},
		"granted to all, touched by one": {
			offered(to("*")).at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")).
				at("P", 31, status("s", spec.ClaimsDrained)).at("D", 35, observe("s")).at("D", 40, room(spec.KindFree)),
			map[spec.RuleID]spec.Verdict{spec.SIG2: pass},
			pass,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, v) })
	}
}

func TestLeasesOfAccesses(t *testing.T) {
	const fail, pass = spec.Fail, spec.Pass
	for name, v := range map[string]variant{
		"held by another name of its request": {
			stage().at("D", 5, spec.Event{K: spec.KindOffer, Req: "r1", Handoff: "room-1"}).
				at("D", 10, spec.Event{K: spec.KindAlloc, Holder: "x", Handoff: "room-1"}).
				at("D", 20, spec.Event{K: spec.KindBegin, Access: "f", Req: "r1"}).at("D", 30, end("f")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: pass},
			pass,
		},
		"held by another request": {
			stage().at("D", 10, spec.Event{K: spec.KindAlloc, Holder: "x", Req: "r2"}).
				at("D", 20, spec.Event{K: spec.KindBegin, Access: "f", Req: "r1"}).at("D", 30, end("f")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: fail},
			fail,
		},
		"held later by its request": {
			stage().at("D", 10, spec.Event{K: spec.KindAlloc, Holder: "x", Req: "r2"}).
				at("D", 20, spec.Event{K: spec.KindBegin, Access: "f", Req: "r1"}).at("D", 30, end("f")).
				at("D", 35, spec.Event{K: spec.KindHold, Holder: "y", Req: "r1"}),
			map[spec.RuleID]spec.Verdict{spec.BLK3: pass},
			pass,
		},
		"two leases of one handoff, the second fits": {
			offered().at("P", 14, status("s", spec.ClaimsCompleted)).at("D", 15, observe("s")).at("D", 16, room(spec.KindFree)).
				at("D", 20, room(spec.KindAlloc, holder("r1"))).at("D", 21, room(spec.KindGrant)).
				at("D", 22, room(spec.KindEmit, sig("m2", "METADATA"))).at("P", 23, observe("m2")).
				at("P", 30, room(spec.KindBegin, acc("a"))).at("P", 40, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK3: pass, spec.SIG2: pass},
			pass,
		},
		"in between two leases of one handoff": {
			offered().at("P", 14, status("s", spec.ClaimsCompleted)).at("D", 15, observe("s")).at("D", 16, room(spec.KindFree)).
				at("P", 18, room(spec.KindBegin, acc("a"))).at("P", 40, end("a")).
				at("D", 20, room(spec.KindAlloc, holder("r1"))).at("D", 21, room(spec.KindGrant)),
			map[spec.RuleID]spec.Verdict{spec.BLK3: fail},
			fail,
		},
		"two blocks whose leases never were at once": {
			stage().at("D", 10, spec.Event{K: spec.KindAlloc, Holder: "r1", Req: "r1"}).at("D", 20, spec.Event{K: spec.KindFree}).
				at("D", 30, spec.Event{K: spec.KindAlloc, Holder: "r1", Req: "r1", Blocks: spec.MakeBlocks(4)}).
				on("D", "g", 5, spec.Event{K: spec.KindBegin, Access: "f", Req: "r1", Blocks: spec.MakeBlocks(3, 4), T2: 100}).
				on("D", "g", 6, spec.Event{K: spec.KindEnd, Access: "f", T2: 100}),
			map[spec.RuleID]spec.Verdict{spec.BLK3: fail},
			fail,
		},
		"of a block that is judged no further": {
			stage().at("D", 10, spec.Event{K: spec.KindAlloc, Holder: "r1", Req: "r1"}).at("D", 20, spec.Event{K: spec.KindAlloc, Holder: "r2", Req: "r2"}).
				at("D", 30, spec.Event{K: spec.KindBegin, Access: "f", Req: "r1"}).at("D", 31, end("f")),
			map[spec.RuleID]spec.Verdict{spec.BLK1: fail, spec.BLK3: spec.Unexercised},
			fail,
		},
		"an end before its begin": {
			offered().on("P", "b", 25, room(spec.KindBegin, acc("a"))).on("P", "e", 20, end("a")),
			map[spec.RuleID]spec.Verdict{spec.BLK2: fail, spec.BLK3: pass},
			fail,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, v) })
	}
}

func TestSignals(t *testing.T) {
	const inconclusive, unproven, fail, pass = spec.Inconclusive, spec.Unproven, spec.Fail, spec.Pass
	listed := func(ids ...string) spec.Event {
		return room(spec.KindEmit, sig("s", "CHUNK"), claims(spec.ClaimsCompleted), listing(ids...))
	}
	for name, v := range map[string]variant{
		"a listed access has ended":   {offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 30, end("a")).at("P", 31, listed("a")), map[spec.RuleID]spec.Verdict{spec.SIG1: pass}, pass},
		"a listed access is open":     {offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 25, listed("a")).at("P", 30, end("a")), map[spec.RuleID]spec.Verdict{spec.SIG1: fail}, fail},
		"a listed access comes later": {offered().at("P", 15, listed("a")).at("P", 20, room(spec.KindBegin, acc("a"))), map[spec.RuleID]spec.Verdict{spec.SIG1: fail}, fail},
		"a listed access is unknown":  {offered().at("P", 15, listed("x")), map[spec.RuleID]spec.Verdict{spec.SIG1: inconclusive}, inconclusive},
		"a listed access, unlisted ones open": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 21, room(spec.KindBegin, acc("b"))).at("P", 30, end("a")).at("P", 31, listed("a")),
			map[spec.RuleID]spec.Verdict{spec.SIG1: pass},
			pass,
		},
		"an end not seen": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 25, status("s", spec.ClaimsDrained)),
			map[spec.RuleID]spec.Verdict{spec.SIG1: unproven},
			unproven,
		},
		"an end not seen, with a loss": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 25, status("s", spec.ClaimsDrained)).at("P", 30, lostEvents(1)),
			map[spec.RuleID]spec.Verdict{spec.SIG1: inconclusive},
			inconclusive,
		},
		"completed before an access begins": {
			offered().at("P", 15, status("s", spec.ClaimsCompleted)).at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 25, end("a")),
			map[spec.RuleID]spec.Verdict{spec.SIG1: pass},
			pass,
		},
		"another worker's access is open": {
			offered(to("*")).at("P", 20, room(spec.KindBegin, acc("a"))).at("Q", 25, status("s", spec.ClaimsDrained)).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.SIG1: pass},
			pass,
		},
		"another handoff's access is open": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).
				at("P", 25, room(spec.KindEmit, under("room-2", "r2"), sig("s", "STATUS"), claims(spec.ClaimsDrained))).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.SIG1: pass},
			pass,
		},
		"what a fence turned away is reported as done": {
			offered().at("D", 20, room(spec.KindFence)).at("P", 30, room(spec.KindBegin, acc("a"))).
				at("P", 40, spec.Event{K: spec.KindEnd, Access: "a", OK: ptr(true)}),
			map[spec.RuleID]spec.Verdict{spec.SIG1: fail, spec.BLK3: spec.Unexercised},
			fail,
		},
		"what a fence turned away, and said so": {
			offered().at("D", 20, room(spec.KindFence)).at("P", 30, room(spec.KindBegin, acc("a"))).
				at("P", 40, spec.Event{K: spec.KindEnd, Access: "a", OK: ptr(false)}),
			map[spec.RuleID]spec.Verdict{spec.SIG1: spec.Unexercised, spec.BLK3: spec.Unexercised},
			pass,
		},
		"a fence cut it off before the claim": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("D", 25, room(spec.KindFence)).
				at("P", 30, status("s", spec.ClaimsDrained)).at("P", 40, end("a")),
			map[spec.RuleID]spec.Verdict{spec.SIG1: pass},
			pass,
		},
		"a claim that names nothing": {
			offered().at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 25, room(spec.KindEmit, under("", ""), sig("s", "STATUS"), claims(spec.ClaimsDrained))).at("P", 30, end("a")),
			map[spec.RuleID]spec.Verdict{spec.SIG1: pass},
			pass,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, v) })
	}
}

func ptr[T any](v T) *T { return &v }

func finish(o spec.Outcome, status int64) spec.Event {
	return spec.Event{K: spec.KindFinish, Req: "r1", Result: o, Status: status}
}

// TestSettled is about REQ-1, REQ-2 and BLK-5.
func TestSettled(t *testing.T) {
	const inconclusive, unproven, fail, pass = spec.Inconclusive, spec.Unproven, spec.Fail, spec.Pass
	idle := spec.Event{K: spec.KindIdle, Workers: []string{"d0"}}
	held := func() *writer { return stage().at("D", 10, room(spec.KindAlloc, holder("r1"))) }
	for name, v := range map[string]variant{
		"a begin by the handoff's name after a reject": {
			offered().at("P", 15, spec.Event{K: spec.KindReject, Req: "r1"}).at("P", 20, spec.Event{K: spec.KindBegin, Access: "a", Handoff: "room-1"}).at("P", 21, end("a")),
			map[spec.RuleID]spec.Verdict{spec.REQ1: fail},
			fail,
		},
		"a begin of another request of a reused key": {
			offered().at("P", 15, spec.Event{K: spec.KindReject, Req: "r0", Handoff: "room-1"}).at("P", 20, room(spec.KindBegin, acc("a"))).at("P", 21, end("a")),
			map[spec.RuleID]spec.Verdict{spec.REQ1: pass},
			pass,
		},
		"given back at the seal only of another source": {
			held().at("D", 20, room(spec.KindCancel)).at("P", 30, spec.Event{K: spec.KindSeal}),
			map[spec.RuleID]spec.Verdict{spec.REQ2: inconclusive},
			inconclusive,
		},
		"not given back at the seal": {
			held().at("D", 20, room(spec.KindCancel)).at("D", 30, spec.Event{K: spec.KindSeal}),
			map[spec.RuleID]spec.Verdict{spec.REQ2: fail},
			fail,
		},
		"an idle before the cancel says nothing": {
			held().at("H", 15, idle).at("D", 20, room(spec.KindCancel)).at("D", 25, room(spec.KindFree)).at("H", 30, idle),
			map[spec.RuleID]spec.Verdict{spec.REQ2: pass},
			pass,
		},
		"an expire by the handoff's name": {
			held().at("D", 20, spec.Event{K: spec.KindExpire, Handoff: "room-1"}).at("H", 100, idle),
			map[spec.RuleID]spec.Verdict{spec.REQ2: fail, spec.BLK5: fail},
			fail,
		},
		"a timeout with nobody to ask": {
			held().at("D", 20, room(spec.KindCancel)).at("D", 90, room(spec.KindFree, why("timeout"))),
			map[spec.RuleID]spec.Verdict{spec.REQ2: pass},
			pass,
		},
		"a timeout of one of whom nothing was heard": {
			offered().at("D", 20, room(spec.KindCancel)).at("D", 90, room(spec.KindFree, why("timeout"))),
			map[spec.RuleID]spec.Verdict{spec.REQ2: unproven, spec.SIG2: unproven},
			unproven,
		},
		"a live request at the idle": {
			held().at("H", 100, idle), map[spec.RuleID]spec.Verdict{spec.BLK5: pass}, pass,
		},
		"a cache at the idle": {
			stage().at("D", 10, spec.Event{K: spec.KindAlloc, Holder: "radix"}).at("H", 100, idle), map[spec.RuleID]spec.Verdict{spec.BLK5: pass}, pass,
		},
		"the client saw it end": {
			held().at("C", 20, finish(spec.OutcomeOK, 200)).at("H", 100, idle), map[spec.RuleID]spec.Verdict{spec.BLK5: fail}, fail,
		},
		"a second holder, whose request had ended": {
			held().at("D", 11, spec.Event{K: spec.KindHold, Holder: "r2", Req: "r2"}).at("D", 20, spec.Event{K: spec.KindFinish, Req: "r2", Result: spec.OutcomeOK}).at("H", 100, idle),
			map[spec.RuleID]spec.Verdict{spec.BLK5: fail},
			fail,
		},
		"a lease that may begin after the idle": {
			stage().on("D", "a", 95, room(spec.KindAlloc, holder("r1"), wide(20))).at("D", 95, room(spec.KindFinish, outcome(spec.OutcomeOK))).at("H", 100, idle),
			map[spec.RuleID]spec.Verdict{spec.BLK5: pass},
			pass,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, v) })
	}
}

// TestOutcomes is about REQ-4 and REQ-5.
func TestOutcomes(t *testing.T) {
	const inconclusive, fail, pass = spec.Inconclusive, spec.Fail, spec.Pass
	admit := func(need int64, unit string) spec.Event {
		return spec.Event{K: spec.KindAdmit, Req: "r1", Need: &need, Unit: unit}
	}
	capacity := spec.Event{K: spec.KindCapacity, Stage: "x", Limit: 100, Unit: "token"}
	for name, v := range map[string]variant{
		"two outcomes at one worker":         {stage().at("P", 10, finish(spec.OutcomeOK, 0)).at("P", 11, finish(spec.OutcomeError, 0)), map[spec.RuleID]spec.Verdict{spec.REQ4: fail}, fail},
		"one outcome at each of two workers": {stage().at("P", 10, finish(spec.OutcomeOK, 0)).at("Q", 11, finish(spec.OutcomeOK, 0)), map[spec.RuleID]spec.Verdict{spec.REQ4: pass}, pass},
		"200 for an expired one":             {stage().at("D", 10, spec.Event{K: spec.KindExpire, Req: "r1"}).at("C", 20, finish(spec.OutcomeError, 204)), map[spec.RuleID]spec.Verdict{spec.REQ4: fail}, fail},
		"ok for an expired handoff":          {stage().at("D", 10, spec.Event{K: spec.KindExpire, Handoff: "room-1"}).at("D", 11, room(spec.KindOffer)).at("C", 20, finish(spec.OutcomeOK, 200)), map[spec.RuleID]spec.Verdict{spec.REQ4: pass}, pass},
		"an error told as an error":          {stage().at("D", 10, finish(spec.OutcomeError, 0)).at("C", 20, finish(spec.OutcomeError, 500)), map[spec.RuleID]spec.Verdict{spec.REQ4: pass}, pass},
		"admitted at capacity":               {stage().at("D", 5, capacity).at("D", 10, admit(100, "token")), map[spec.RuleID]spec.Verdict{spec.REQ5: pass}, pass},
		"admitted above capacity":            {stage().at("D", 5, capacity).at("D", 10, admit(101, "token")), map[spec.RuleID]spec.Verdict{spec.REQ5: fail}, fail},
		"admitted before the capacity":       {stage().at("D", 5, admit(101, "token")).at("D", 10, capacity), map[spec.RuleID]spec.Verdict{spec.REQ5: spec.Unexercised}, inconclusive},
		"admitted by another source":         {stage().at("D", 5, capacity).at("P", 10, admit(101, "token")), map[spec.RuleID]spec.Verdict{spec.REQ5: spec.Unexercised}, inconclusive},
		"admitted without a unit":            {stage().at("D", 5, capacity).at("D", 10, admit(101, "")), map[spec.RuleID]spec.Verdict{spec.REQ5: spec.Unexercised}, inconclusive},
		"the need of the submit": {
			stage().at("C", 1, spec.Event{K: spec.KindSubmit, Req: "r1", Need: ptr(int64(101)), Unit: "token"}).at("D", 5, capacity).at("D", 10, spec.Event{K: spec.KindAdmit, Req: "r1"}),
			map[spec.RuleID]spec.Verdict{spec.REQ5: fail},
			fail,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, v) })
	}
}

// TestFenceWithoutPath holds that a finding names the fence that ended an access
// and proved nothing.
func TestFenceWithoutPath(t *testing.T) {
	w := offered().at("P", 20, room(spec.KindBegin, acc("a"))).on("D", "nic", 50, room(spec.KindFence)).
		at("D", 70, room(spec.KindFree)).at("P", 90, end("a"))
	res := check(t, variant{w, map[spec.RuleID]spec.Verdict{spec.BLK2: spec.Pass, spec.SIG2: spec.Unproven}, spec.Unproven})
	f := ruleResult(res, spec.SIG2).Findings[0]
	require.Contains(t, f.Text, "the fence D#5 (fence at 50) ends it")
	require.Equal(t, []spec.EventID{{Src: "D", Seq: 5}, {Src: "D", Seq: 6}}, f.Events)
}

func TestBadTrace(t *testing.T) {
	emit, observed := room(spec.KindEmit, sig("s", "X")), observe("s")
	far := newWriter()
	far.source("D", "d0", spec.RoleDecode, "m")
	far.source("P", "p0", spec.RolePrefill, "p")
	far.at("D", 1, spec.Event{K: spec.KindClockCmp, Clock: "p", Lo: 5, Hi: 6}).at("P", 1, spec.Event{K: spec.KindClockCmp, Clock: "m", Lo: 5, Hi: 6})
	third := newWriter()
	third.source("D", "d0", spec.RoleDecode, "m")
	third.source("P", "p0", spec.RolePrefill, "p")
	third.at("D", 1, spec.Event{K: spec.KindClockCmp, Clock: "x", Lo: 0, Hi: 0}).at("P", 1, spec.Event{K: spec.KindClockCmp, Clock: "x", Lo: 0, Hi: 0}).
		at("D", 100, emit).at("P", 50, observed)
	for name, w := range map[string]*writer{
		"observed before emitted by seq":       stage().at("D", 10, observed).at("D", 10, emit),
		"observed before emitted by time":      stage().at("D", 10, emit).at("P", 5, observed),
		"a circle of signals":                  stage().at("D", 10, observe("r")).at("D", 10, emit).at("P", 10, observed).at("P", 10, room(spec.KindEmit, sig("r", "X"))),
		"a pool's order against time":          stage().on("D", "a", 50, room(spec.KindAlloc, holder("r1"))).on("D", "b", 10, room(spec.KindFree)),
		"a clock compared with itself":         stage().at("D", 10, spec.Event{K: spec.KindClockCmp, Clock: "m", Lo: 1, Hi: 2}),
		"comparisons that contradict":          far,
		"comparisons with a clock of no event": third,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Judge(context.Background(), &w.tr, Options{})
			var bad *BadTrace
			require.ErrorAs(t, err, &bad, "%s", w)
			require.Equal(t, "test", bad.Pos.File)
			require.NotZero(t, bad.Pos.Line)
			require.Contains(t, bad.Error(), "#")
		})
	}
}

func TestLimits(t *testing.T) {
	var limit *LimitError
	w := stage().at("D", 10, spec.Event{K: spec.KindAlloc, Holder: "x", Blocks: spec.Blocks{{First: 0, Last: 1 << 62}}})
	_, err := Judge(context.Background(), &w.tr, Options{})
	require.ErrorAs(t, err, &limit)
	require.NotEmpty(t, limit.Error())
	w = stage().at("D", 10, spec.Event{K: spec.KindAlloc, Holder: "x", Blocks: spec.Blocks{{First: 0, Last: 10_000_000}}})
	_, err = Judge(context.Background(), &w.tr, Options{})
	require.ErrorAs(t, err, &limit, "few lines may not ask for gigabytes")

	w = stage()
	for i := range maxClocks {
		w.source(fmt.Sprintf("S%d", i), "w", spec.RoleStore, fmt.Sprintf("c%d", i))
	}
	_, err = Judge(context.Background(), &w.tr, Options{})
	require.ErrorAs(t, err, &limit)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Judge(ctx, &offered().tr, Options{})
	require.True(t, errors.Is(err, context.Canceled), "%v", err)

	w = stage()
	for i := range int64(20) {
		w.at("D", 10+i, spec.Event{K: spec.KindAlloc, Holder: "x"}).at("D", 10+i, spec.Event{K: spec.KindDrop, Holder: "x"}).
			at("D", 10+i, spec.Event{K: spec.KindDrop, Holder: "x"}).at("D", 10+i, spec.Event{K: spec.KindFree})
	}
	res, err := Judge(context.Background(), &w.tr, Options{MaxFindings: 3})
	require.NoError(t, err)
	require.Len(t, ruleResult(res, spec.BLK4).Findings, 3)
	require.Equal(t, 20, ruleResult(res, spec.BLK4).Found)
}

// TestUndecided gives Porcupine more orders than it can try, and holds that the
// solver's verdict stands and the block is said to be undecided.
func TestUndecided(t *testing.T) {
	w := offered(to("*"))
	for i := range 14 {
		id := fmt.Sprintf("a%d", i)
		w.on("P", id, 20, room(spec.KindBegin, acc(id), wide(100))).on("P", id, 20, spec.Event{K: spec.KindEnd, Access: id, T2: 100})
	}
	w.on("P", "late", 130, room(spec.KindBegin, acc("late"))).on("P", "late", 160, end("late")).at("D", 150, room(spec.KindFree))
	res, err := Judge(context.Background(), &w.tr, Options{Checker: CheckerBoth, BlockTimeout: 20 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, spec.Fail, ruleResult(res, spec.BLK2).Verdict)
	require.Equal(t, spec.Fail, res.Verdict)
	require.Equal(t, 1, res.Stats.Undecided)
	require.Equal(t, 1, res.Stats.Refused) // what fails, cut down
}
