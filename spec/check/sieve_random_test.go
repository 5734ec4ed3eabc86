package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// play draws runs of a stack that mostly does what it should, in which much goes
// on at a time, and then spoils some of them.
type play struct {
	r     *rand.Rand
	lines []playLine
	now   int64
	ids   int
	free  map[string][]int64 // of each worker's pool
	cache []int64            // blocks of d0 that the cache holds
	skew  int64
	apart bool // the client and the harness have clocks of their own
}

type playLine struct {
	src, th  string
	t, width int64
	e        spec.Event
}

func newPlay(r *rand.Rand) *play {
	p := &play{r: r, free: map[string][]int64{}, skew: int64(r.IntN(3)) * 17}
	for b := range int64(12) {
		p.free["D"], p.free["P"] = append(p.free["D"], b), append(p.free["P"], b)
	}
	return p
}

func (p *play) id(prefix string) string {
	p.ids++
	return fmt.Sprintf("%s%d", prefix, p.ids)
}

func (p *play) chance(n int) bool { return p.r.IntN(n) == 0 }

func (p *play) add(src, th string, e spec.Event) {
	p.now += int64(p.r.IntN(3))
	t := p.now
	if src == "P" {
		t += p.skew
	}
	width := int64(0)
	if p.chance(6) {
		width = int64(p.r.IntN(4))
	}
	p.lines = append(p.lines, playLine{src, th, t, width, e})
}

// take takes blocks from a pool.
func (p *play) take(src string, n int) spec.Blocks {
	f := p.free[src]
	n = min(n, len(f))
	if n == 0 {
		return nil
	}
	p.r.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
	p.free[src] = f[n:]
	return spec.MakeBlocks(f[:n]...)
}

func (p *play) give(src string, b spec.Blocks) {
	for n := range b.All {
		p.free[src] = append(p.free[src], n)
	}
}

// request is the life of one request as steps that others come between.
func (p *play) request() []func() {
	r := p.id("r")
	h := p.id("h")
	named := func(k spec.Kind) spec.Event { return spec.Event{K: k, Handoff: h, Req: r, Pool: "kv"} }
	half := func(k spec.Kind) spec.Event {
		e := named(k)
		if p.chance(2) {
			e.Req = ""
		}
		return e
	}
	th := func() string { return []string{"main", "main", "io"}[p.r.IntN(3)] }
	var steps []func()
	do := func(f func()) { steps = append(steps, f) }
	var blocks, mine spec.Blocks
	need := int64(5)
	do(func() { p.add("C", "main", spec.Event{K: spec.KindSubmit, Req: r, Need: &need, Unit: "tokens"}) })
	do(func() {
		e := named(spec.KindAlloc)
		if blocks = p.take("D", 1+p.r.IntN(4)); blocks == nil {
			return
		}
		e.Blocks, e.Holder = blocks, r
		p.add("D", "main", e)
		if p.chance(3) {
			p.add("D", "main", spec.Event{K: spec.KindAdmit, Req: r})
		}
	})
	to := "p0"
	if p.chance(4) {
		to = "*"
	}
	do(func() {
		if blocks == nil {
			return
		}
		e := half(spec.KindGrant)
		e.Blocks, e.To, e.Mode = blocks, to, "w"
		p.add("D", "main", e)
	})
	meta := p.id("s")
	do(func() {
		e := half(spec.KindEmit)
		e.Sig, e.Signal = meta, "METADATA/2"
		if p.chance(4) {
			e.Asks = []string{"STATUS", "STATUS", "RELAY", "DONE"}[p.r.IntN(4)]
		}
		p.add("D", "main", e)
	})
	worker := th()
	do(func() {
		e := spec.Event{K: spec.KindObserve, Sig: meta}
		if p.chance(2) {
			e.Handoff = h
		}
		p.add("P", worker, e)
	})
	if p.chance(3) {
		do(func() {
			if mine = p.take("P", 2); mine != nil {
				e := half(spec.KindAlloc)
				e.Blocks, e.Holder = mine, h
				p.add("P", worker, e)
				a := p.id("a")
				b := half(spec.KindBegin)
				b.Access, b.Mode, b.Target, b.Blocks = a, "w", "p0", mine
				p.add("P", worker, b)
				p.add("P", worker, spec.Event{K: spec.KindEnd, Access: a})
				f := half(spec.KindFree)
				f.Blocks, f.Holder = mine, h
				p.add("P", worker, f)
				p.give("P", mine)
			}
		})
	}
	var list []string
	for range p.r.IntN(3) {
		a := p.id("a")
		list = append(list, a)
		do(func() {
			if blocks == nil {
				return
			}
			e := half(spec.KindBegin)
			e.Access, e.Mode, e.Target, e.Blocks = a, "w", "d0", blocks
			if len(blocks) > 1 && p.chance(2) {
				e.Blocks = blocks[:1]
			}
			p.add("P", worker, e)
		})
		do(func() {
			if blocks != nil && !p.chance(40) {
				p.add("P", worker, spec.Event{K: spec.KindEnd, Access: a})
			}
		})
	}
	done := p.id("s")
	do(func() {
		if p.chance(3) {
			e := spec.Event{K: spec.KindEmit, Req: r, Sig: p.id("s"), Signal: "NOTE"}
			p.add([]string{"P", "D", "C"}[p.r.IntN(3)], th(), e)
		}
	})
	do(func() {
		e := half(spec.KindEmit)
		e.Sig, e.Signal, e.Claims = done, "STATUS", []spec.Predicate{spec.ClaimsDrained, spec.ClaimsDrained, spec.ClaimsCompleted}[p.r.IntN(3)]
		if e.Claims == spec.ClaimsCompleted && p.chance(2) && blocks != nil && len(list) > 0 {
			e.Signal, e.Accesses = "DONE", list
		}
		if p.chance(6) && e.Handoff != "" && e.Req != "" {
			e.Handoff = ""
		}
		p.add("P", worker, e)
	})
	relay := p.id("s")
	do(func() {
		if p.chance(4) {
			p.add("D", "net", spec.Event{K: spec.KindObserve, Sig: done})
			e := named(spec.KindEmit)
			e.Sig, e.Signal, e.Claims = relay, "RELAY", spec.ClaimsCompleted
			p.add("D", "net", e)
			done = relay
		}
	})
	do(func() {
		p.add("D", "main", spec.Event{K: spec.KindObserve, Sig: done})
		if p.chance(8) {
			p.add("D", "net", spec.Event{K: spec.KindObserve, Sig: done})
		}
	})
	for range p.r.IntN(2) {
		do(func() {
			if blocks == nil {
				return
			}
			a := p.id("a")
			b := half(spec.KindBegin)
			b.Access, b.Mode, b.Target, b.Blocks = a, "r", "d0", blocks
			if len(p.cache) > 0 && p.chance(2) {
				// a cached block that the request holds for a while
				c := spec.MakeBlocks(p.cache[0])
				hold := spec.Event{K: spec.KindHold, Pool: "kv", Blocks: c, Holder: r, Req: r}
				p.add("D", "main", hold)
				b.Req = r
				b.Blocks = append(append(spec.Blocks{}, blocks...), c...)
				p.add("D", "main", b)
				p.add("D", "main", spec.Event{K: spec.KindEnd, Access: a})
				hold.K = spec.KindDrop
				p.add("D", "main", hold)
				return
			}
			p.add("D", "main", b)
			p.add("D", "main", spec.Event{K: spec.KindEnd, Access: a})
		})
	}
	if p.chance(3) {
		do(func() {
			for _, s := range []struct{ src, side string }{{"P", "source"}, {"D", "target"}} {
				p.add(s.src, th(), spec.Event{K: spec.KindDigest, Handoff: h, Side: s.side, Part: int64(p.r.IntN(2)), Sum: "x"})
			}
		})
	}
	ended := p.r.IntN(12)
	if p.chance(8) {
		do(func() { p.add("P", "main", spec.Event{K: spec.KindCancel, Req: r}) })
	}
	do(func() {
		switch ended {
		case 0:
			p.add("D", "main", spec.Event{K: spec.KindReject, Req: r})
		case 1:
			p.add([]string{"D", "P", "C"}[p.r.IntN(3)], "main", spec.Event{K: spec.KindCancel, Req: r})
		case 2:
			p.add("D", "main", spec.Event{K: spec.KindExpire, Handoff: h})
		default:
			p.add("D", "main", spec.Event{K: spec.KindOutput, Req: r, N: 1})
		}
	})
	do(func() {
		switch n := blocks.Len(); {
		case n == 0:
		case n > 1 && len(blocks) > 1 && p.chance(3):
			for _, part := range []spec.Blocks{blocks[:1], blocks[1:]} {
				p.add("D", "main", spec.Event{K: spec.KindFree, Pool: "kv", Blocks: part, Holder: r, Req: r})
			}
			p.give("D", blocks)
		case p.chance(5) && len(p.cache) < 4:
			c := spec.MakeBlocks(blocks[0].First)
			p.add("D", "main", spec.Event{K: spec.KindHold, Pool: "kv", Blocks: c, Holder: "cache"})
			p.add("D", "main", spec.Event{K: spec.KindDrop, Pool: "kv", Blocks: c, Holder: r, Req: r})
			rest := blocks[1:]
			if blocks[0].Last > blocks[0].First {
				rest = append(spec.Blocks{{First: blocks[0].First + 1, Last: blocks[0].Last}}, rest...)
			}
			p.cache = append(p.cache, blocks[0].First)
			if len(rest) > 0 {
				p.add("D", "main", spec.Event{K: spec.KindFree, Pool: "kv", Blocks: rest, Req: r})
				p.give("D", rest)
			}
		default:
			f := spec.Event{K: spec.KindFree, Pool: "kv", Blocks: blocks, Holder: r, Req: r, Handoff: h}
			if p.chance(3) {
				f.By = done
			}
			p.add("D", "main", f)
			p.give("D", blocks)
		}
	})
	do(func() {
		out := spec.OutcomeOK
		if ended < 3 {
			out = spec.OutcomeCancelled
		} else if p.chance(15) {
			out = spec.OutcomeError
		}
		p.add("D", "main", spec.Event{K: spec.KindFinish, Req: r, Result: out})
		p.add("C", "main", spec.Event{K: spec.KindFinish, Req: r, Result: out})
		p.add("C", "main", spec.Event{K: spec.KindAnswer, Req: r, Sum: "1", Expect: "1", HasExp: p.chance(2)})
	})
	return steps
}

// run draws a run.
func (p *play) run(requests int) {
	p.add("D", "main", spec.Event{K: spec.KindCapacity, Stage: "d", Limit: 8, Unit: "tokens"})
	var open [][]func()
	for requests > 0 || len(open) > 0 {
		if requests > 0 && (len(open) == 0 || len(open) < 3 && p.chance(6)) {
			requests--
			open = append(open, p.request())
		}
		i := p.r.IntN(len(open))
		open[i][0]()
		if open[i] = open[i][1:]; len(open[i]) == 0 {
			open = append(open[:i], open[i+1:]...)
			if p.chance(4) {
				p.add("H", "main", spec.Event{K: spec.KindIdle, Workers: []string{"d0", "p0"}})
			}
		}
	}
}

// spoil changes some lines.
func (p *play) spoil() {
	for range 1 + p.r.IntN(3) {
		i := p.r.IntN(len(p.lines))
		j := p.r.IntN(len(p.lines))
		l, o := &p.lines[i], &p.lines[j]
		switch p.r.IntN(9) {
		case 0:
			p.lines = append(p.lines[:i], p.lines[i+1:]...)
		case 1:
			if i+1 < len(p.lines) {
				p.lines[i], p.lines[i+1] = p.lines[i+1], p.lines[i]
			}
		case 2:
			if l.e.Handoff != "" && o.e.Handoff != "" {
				l.e.Handoff = o.e.Handoff
			}
		case 3:
			if l.e.Req != "" && o.e.Req != "" {
				l.e.Req = o.e.Req
			}
		case 4:
			l.e.Claims = spec.Predicate([]string{"", "received", "stopped", "completed", "drained"}[p.r.IntN(5)])
		case 5:
			if l.e.Blocks != nil && o.e.Blocks != nil {
				l.e.Blocks = o.e.Blocks
			}
		case 6:
			l.t += int64(p.r.IntN(11)) - 5
		case 7:
			l.th = "other"
		case 8:
			l.e.Req = ""
			if l.e.Handoff == "" {
				l.e.Req = o.e.Req
			}
		}
	}
}

// trace writes the run down. It is nil if a line is left that no reader takes.
func (p *play) trace() *writer {
	w := newWriter()
	w.source("D", "d0", spec.RoleDecode, "m")
	w.add("D", "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 64})
	w.add("P", "main", p.skew, 0, spec.Event{K: spec.KindSource, Worker: "p0", Role: spec.RolePrefill, Host: "h", Clock: []string{"m", "p"}[min(p.skew, 1)]})
	w.add("P", "main", p.skew, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: 64})
	client, harness := "m", "m"
	if p.apart {
		client, harness = "c", "h"
	}
	w.source("C", "c0", spec.RoleClient, client)
	w.source("H", "h0", spec.RoleHarness, harness)
	begun := map[string]bool{}
	for _, l := range p.lines {
		switch l.e.K {
		case spec.KindBegin:
			if l.e.Handoff == "" && l.e.Req == "" {
				return nil
			}
			begun[l.e.Access] = true
		case spec.KindExpire, spec.KindGrant, spec.KindDigest:
			if l.e.Handoff == "" {
				return nil
			}
		case spec.KindSubmit, spec.KindAdmit, spec.KindReject, spec.KindCancel, spec.KindOutput, spec.KindFinish, spec.KindAnswer:
			if l.e.Req == "" {
				return nil
			}
		}
		w.add(l.src, l.th, l.t, l.width, l.e)
	}
	return w
}

func sieveRandom(t *testing.T, n int, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 11))
	why := map[string]int{}
	missed := 0 // that Judge passes and the sieve does not tell of
	for range n {
		p := newPlay(r)
		p.run(1 + r.IntN(5))
		if !p.chance(4) {
			p.spoil()
		}
		w := p.trace()
		if w == nil {
			continue
		}
		if h, err := newHistory(&w.tr); err != nil {
			continue
		} else if _, bad := newOrder(h, nil); bad != nil {
			got, _ := sift(&w.tr)
			require.Nil(t, got, "%s", w)
			why["bad"]++
			continue
		}
		s := NewSieve(Options{})
		if p.chance(3) {
			s.keep = sieveKeep{names: 1 + int32(r.IntN(60)), signals: int32(r.IntN(20)), sweep: 1 + int32(r.IntN(4))}
		}
		said := judgedBy(t, &w.tr, w, s)
		if said != "" && why[said] < 20 {
			if res, err := Judge(context.Background(), &w.tr, Options{}); err == nil && res.Verdict == spec.Pass {
				missed++
				why["pass, but "+said]++
			}
		}
		why[said]++
	}
	t.Logf("%d traces, told of %d; passes among some of the rest: %d\n%v", n, why[""], missed, why)
	require.Greater(t, why[""], n/10, "it tells of many")
}

// TestSieveAgrees holds the sieve against Judge on random runs, sound and spoiled.
func TestSieveAgrees(t *testing.T) { sieveRandom(t, 3000, 1) }
