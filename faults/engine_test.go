package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"conform/spec"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// recorder keeps the fault events.
type recorder struct {
	mu     sync.Mutex
	events []spec.Event
}

func (r *recorder) record(ev spec.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

// dos are "rule do" of each event, in order.
func (r *recorder) dos() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s []string
	for _, ev := range r.events {
		if ev.K == spec.KindNote {
			s = append(s, ev.Text)
			continue
		}
		s = append(s, ev.Rule+" "+ev.Do)
	}
	return s
}

// procs are processes that only say what was done to them.
type procs struct {
	mu   sync.Mutex
	did  []string
	fail error

	during func() // called while a fault is carried out
}

func newProcs() *procs { return &procs{} }

func (p *procs) do(ctx context.Context, what, worker string) error {
	if p.during != nil {
		p.during()
	}
	if err := ctx.Err(); err != nil && what != "resume" {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.did = append(p.did, what+" "+worker)
	return p.fail
}

func (p *procs) done() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.did)
}

func (p *procs) Pause(ctx context.Context, w string) error   { return p.do(ctx, "pause", w) }
func (p *procs) Resume(ctx context.Context, w string) error  { return p.do(ctx, "resume", w) }
func (p *procs) Kill(ctx context.Context, w string) error    { return p.do(ctx, "kill", w) }
func (p *procs) Restart(ctx context.Context, w string) error { return p.do(ctx, "restart", w) }

type fixture struct {
	*Engine
	rec   *recorder
	procs *procs
}

func engine(t testing.TB, text string, seed uint64) fixture {
	t.Helper()
	f := fixture{rec: &recorder{}, procs: newProcs()}
	var err error
	f.Engine, err = NewEngine(plan(t, text), seed, EngineOptions{Record: f.rec.record, Processes: f.procs})
	require.NoError(t, err)
	return f
}

func signal(name string) Point { return Point{Kind: KindSignal, Name: name} }

func write(handoff string, blocks ...int64) Point {
	return Point{Kind: KindAccess, Name: "w", From: "prefill", To: "decode", Pool: "kv", Handoff: handoff, Blocks: spec.MakeBlocks(blocks...)}
}

// fires tells which of n points a rule dropped, counting from 1.
func fires(t *testing.T, when string, n int, p Point) []int {
	t.Helper()
	e := engine(t, "rules: [{name: a, when: {"+when+"}, do: drop}]", 1)
	defer e.Close()
	var hit []int
	for i := range n {
		if e.Pass(t.Context(), p).Do == Drop {
			hit = append(hit, i+1)
		}
	}
	return hit
}

func TestCounters(t *testing.T) {
	require.Equal(t, []int{1, 2, 3}, fires(t, "signal: S", 3, signal("S")))
	require.Equal(t, []int{2}, fires(t, "signal: S, nth: 2", 9, signal("S")))
	require.Equal(t, []int{3, 6, 9}, fires(t, "signal: S, every: 3", 9, signal("S")))
	require.Equal(t, []int{2, 5, 8}, fires(t, "signal: S, nth: 2, every: 3", 9, signal("S")))
	require.Equal(t, []int{1, 2}, fires(t, "signal: S, count: 2", 9, signal("S")))
	require.Empty(t, fires(t, "signal: S, nth: 10", 9, signal("S")))
	n := len(fires(t, "signal: S, probability: 0.25", 1000, signal("S")))
	require.InDelta(t, 250, n, 60)
}

func TestMatching(t *testing.T) {
	p := Point{
		Kind: KindSignal, Name: "ABORT_ACK/3", From: "prefill-0#1", To: "decode", Pool: "kv",
		Sig: "s1", Handoff: "room-7", Req: "r1", Why: "late", N: 4,
	}
	for when, want := range map[string]bool{
		"signal: ABORT_ACK":                   true,
		"signal: ABORT_ACK/3":                 true,
		"signal: ABORT_ACK/4":                 false,
		"signal: ABORT":                       false,
		`signal: "ABORT*"`:                    true,
		`signal: "*"`:                         true,
		"signal: ABORT_ACK, from: prefill":    true,
		"signal: ABORT_ACK, from: prefill-0":  true,
		"signal: ABORT_ACK, worker: prefil":   false,
		"signal: ABORT_ACK, from: decode":     false,
		"signal: ABORT_ACK, to: decode":       true,
		"signal: ABORT_ACK, to: decode-1":     false,
		"signal: ABORT_ACK, pool: kv":         true,
		"signal: ABORT_ACK, pool: aux":        false,
		"signal: ABORT_ACK, sig: s1":          true,
		"signal: ABORT_ACK, sig: s2":          false,
		"signal: ABORT_ACK, handoff: room-7":  true,
		"signal: ABORT_ACK, handoff: room-70": false,
		"signal: ABORT_ACK, req: r1":          true,
		"signal: ABORT_ACK, req: r2":          false,
		"signal: ABORT_ACK, why: late":        true,
		"signal: ABORT_ACK, why: early":       false,
		"signal: ABORT_ACK, n: 4":             true,
		"signal: ABORT_ACK, n: 0":             false,
		"access: rw":                          false,
	} {
		require.Equal(t, want, len(fires(t, when, 1, p)) == 1, when)
	}
}

func TestWorkerNames(t *testing.T) {
	m := newMatcher()
	m.learn(&spec.Event{K: spec.KindSource, Src: "s", Worker: "w17", Role: spec.RoleDecode})
	for pair, want := range map[[2]string]bool{
		{"decode", "w17"}: true, {"w17", "w17"}: true, {"prefill", "w17"}: false, {"w1", "w17"}: false,
		{"prefill", "prefill0"}: true, {"prefill1", "prefill10"}: false, {"prefill", "prefiller"}: false,
		{"prefill", "prefill-0"}: true, {"prefill", ""}: false, {"", ""}: true, {"prefill", "prefill_x"}: false,
	} {
		require.Equal(t, want, m.isWorker(pair[0], pair[1]), "%v", pair)
	}
	p := m.point(&spec.Event{K: spec.KindBegin, Src: "s", Target: "d"})
	require.Equal(t, []string{"w17", "d"}, []string{p.From, p.To})
	p = m.point(&spec.Event{K: spec.KindFinish, Src: "other", Result: spec.OutcomeCancelled})
	require.Equal(t, []string{"other", "cancelled"}, []string{p.From, p.Why})
}

// The same seed, plan and order of points give the same decisions; and a rule
// that is added behind another leaves the first one's decisions as they were.
func TestDecisionsAreDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		one := fmt.Sprintf("  - {name: one, when: {signal: S, probability: %.2f}, do: duplicate, jitter: 0s..10m}\n",
			rapid.Float64Range(0.01, 1).Draw(t, "p"))
		two := fmt.Sprintf("  - {name: two, when: {signal: \"*\", probability: 0.5, every: %d}, do: drop}\n",
			rapid.IntRange(1, 3).Draw(t, "every"))
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"S", "T"}), 1, 60).Draw(t, "points")
		decide := func(text string) (got []Action) {
			p, err := ParsePlan("p", []byte(text))
			require.NoError(t, err)
			e, err := NewEngine(p, seed, EngineOptions{})
			require.NoError(t, err)
			defer e.Close()
			for _, n := range names {
				got = append(got, e.Pass(context.Background(), signal(n)))
			}
			return got
		}
		both := decide("rules:\n" + one + two)
		require.Equal(t, both, decide("rules:\n"+one+two))
		for i, alone := range decide("rules:\n" + one) {
			if alone.Do == Duplicate {
				require.Equal(t, alone, both[i])
			} else {
				require.NotEqual(t, Duplicate, both[i].Do)
			}
		}
		// The other way round, the rule behind draws as if it were alone too.
		for i, alone := range decide("rules:\n" + two) {
			if alone.Do != Drop {
				require.NotEqual(t, Drop, both[i].Do)
			} else if both[i].Do != Duplicate {
				require.Equal(t, Drop, both[i].Do)
			}
		}
	})
}

func TestSeedsDiffer(t *testing.T) {
	draw := func(seed uint64) (s string) {
		e := engine(t, "rules: [{name: a, when: {signal: S, probability: 0.5}, do: drop}]", seed)
		defer e.Close()
		for range 64 {
			s += e.Pass(t.Context(), signal("S")).Do.String()[:1]
		}
		return s
	}
	require.NotEqual(t, draw(1), draw(2))
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: a, when: {signal: S}, do: delay, for: 150ms}]", 1)
		defer e.Close()
		began := time.Now()
		require.Equal(t, Action{}, e.Pass(t.Context(), signal("S")))
		require.Equal(t, 150*time.Millisecond, time.Since(began))
		require.Equal(t, []string{"a delay"}, e.rec.dos())
		require.Equal(t, int64(150), e.rec.events[0].MS)

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began = time.Now()
		e.Pass(ctx, signal("S"))
		require.Equal(t, time.Millisecond, time.Since(began), "ctx bounds the wait")
	})
}

func TestJitterStaysWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: a, when: {signal: S}, do: delay, jitter: 10ms..50ms}]", 1)
		defer e.Close()
		seen := map[time.Duration]bool{}
		for range 50 {
			began := time.Now()
			e.Pass(t.Context(), signal("S"))
			d := time.Since(began)
			require.GreaterOrEqual(t, d, 10*time.Millisecond)
			require.LessOrEqual(t, d, 50*time.Millisecond)
			seen[d] = true
		}
		require.Greater(t, len(seen), 10)
	})
}

func TestHoldUntilEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: a, when: {access: w}, do: hold, until: {event: alloc, pool: kv, same: block}, limit: 1m}]", 1)
		defer e.Close()
		e.Observe(&spec.Event{K: spec.KindSource, Src: "d", Worker: "decode-0", Role: spec.RoleDecode})
		over := false
		go func() {
			e.Pass(t.Context(), write("h1", 4, 5, 6))
			over = true
		}()
		alloc := func(src, pool string, blocks ...int64) {
			e.Observe(&spec.Event{K: spec.KindAlloc, Src: src, Pool: pool, Blocks: spec.MakeBlocks(blocks...)})
			synctest.Wait()
		}
		synctest.Wait()
		alloc("d", "kv", 7)  // another block
		alloc("d", "aux", 5) // another pool
		alloc("p", "kv", 5)  // another worker
		require.False(t, over)
		time.Sleep(30 * time.Millisecond)
		alloc("d", "kv", 5)
		require.True(t, over)
		require.Equal(t, []string{"a hold", "a release"}, e.rec.dos())
		require.Equal(t, int64(30), e.rec.events[1].MS)
		require.Equal(t, "h1", e.rec.events[0].Handoff)
	})
}

func TestHoldSameHandoffAndNth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: a, when: {signal: S}, do: hold, until: {event: cancel, same: handoff, nth: 2}}]", 1)
		defer e.Close()
		over := false
		go func() {
			e.Pass(t.Context(), Point{Kind: KindSignal, Name: "S", Handoff: "h"})
			over = true
		}()
		synctest.Wait()
		for _, h := range []string{"x", "h", "", "x"} {
			e.Observe(&spec.Event{K: spec.KindCancel, Handoff: h})
			synctest.Wait()
			require.False(t, over)
		}
		e.Observe(&spec.Event{K: spec.KindCancel, Handoff: "h"})
		synctest.Wait()
		require.True(t, over)
	})
}

func TestHoldEnds(t *testing.T) {
	const text = "rules: [{name: a, when: {signal: S}, do: hold, until: {event: alloc}, limit: 500ms}]"
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, text, 1)
		began := time.Now()
		require.Equal(t, Forward, e.Pass(t.Context(), signal("S")).Do)
		require.Equal(t, 500*time.Millisecond, time.Since(began))
		require.Equal(t, []string{"a hold", "a release-limit"}, e.rec.dos())

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.Pass(ctx, signal("S"))
		require.Equal(t, "a release-end", e.rec.dos()[3])

		var wg sync.WaitGroup
		wg.Go(func() { e.Pass(t.Context(), signal("S")) })
		synctest.Wait()
		e.Close()
		wg.Wait()
		require.Equal(t, "a release-end", e.rec.dos()[5])
		require.Empty(t, e.holds, "nothing is left behind")
		require.Equal(t, Forward, e.Pass(t.Context(), signal("S")).Do, "after Close everything passes")
		require.Len(t, e.rec.dos(), 6)
		require.Equal(t, []Count{{Rule: "a", Do: "hold", Fired: 3, Seen: 3}}, e.Counts())
	})
}

func TestHoldUntilAccessHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: a, when: {signal: S}, do: hold, until: {access: w}, limit: 10m}
  - {name: b, when: {access: w}, do: delay, for: 1s}`, 1)
		defer e.Close()
		began := time.Now()
		go e.Pass(t.Context(), write("h"))
		e.Pass(t.Context(), signal("S"))
		require.Equal(t, time.Second, time.Since(began), "an access has passed when its delay is over")
	})
}

func TestReorderGoesBehindTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: a, when: {signal: S, nth: 1}, do: reorder}]", 1)
		defer e.Close()
		var order []string
		go func() {
			e.Pass(t.Context(), signal("S"))
			order = append(order, "first")
		}()
		synctest.Wait()
		require.Equal(t, Forward, e.Pass(t.Context(), signal("S")).Do)
		synctest.Wait()
		require.Empty(t, order, "the second must have been written before the first follows")
		order = append(order, "second")
		e.Passed(signal("S"))
		synctest.Wait()
		require.Equal(t, []string{"second", "first"}, order)
	})
}

func TestAfter(t *testing.T) {
	e := engine(t, `
rules:
  - {name: any, when: {signal: S, after: {event: cancel, nth: 2}}, do: drop}
  - {name: own, when: {signal: T, after: {event: cancel, same: req}}, do: drop}
  - {name: sig, when: {signal: U, after: {signal: U}}, do: drop}`, 1)
	defer e.Close()
	pass := func(name, req string) Do {
		return e.Pass(t.Context(), Point{Kind: KindSignal, Name: name, Req: req}).Do
	}
	require.Equal(t, Forward, pass("S", ""))
	require.Equal(t, Forward, pass("T", "r1"))
	e.Observe(&spec.Event{K: spec.KindCancel, Req: "r1"})
	require.Equal(t, Forward, pass("S", ""))
	require.Equal(t, Drop, pass("T", "r1"))
	require.Equal(t, Forward, pass("T", "r2"))
	require.Equal(t, Forward, pass("T", ""))
	e.Observe(&spec.Event{K: spec.KindCancel, Req: "r3"})
	require.Equal(t, Drop, pass("S", ""))
	require.Equal(t, Forward, pass("U", ""))
	require.Equal(t, Forward, pass("U", ""), "it has not been written yet")
	e.Passed(signal("U"))
	require.Equal(t, Drop, pass("U", ""))
}

func TestAfterForgetsTheOldest(t *testing.T) {
	a := newArmed(&Match{Same: "handoff"})
	for i := range maxKeys + 1 {
		a.see(&Point{Handoff: fmt.Sprint(i)})
	}
	require.False(t, a.open(&Point{Handoff: "0"}))
	require.True(t, a.open(&Point{Handoff: "1"}))
	require.Len(t, a.keys, maxKeys)
}

func TestTheFirstRuleActs(t *testing.T) {
	e := engine(t, `
rules:
  - {name: one, when: {access: w, nth: 2}, do: fail}
  - {name: two, when: {access: w}, do: drop}
  - {name: never, when: {access: r}, do: drop}`, 1)
	defer e.Close()
	var dos []Do
	for range 3 {
		dos = append(dos, e.Pass(t.Context(), write("h")).Do)
	}
	require.Equal(t, []Do{Drop, Fail, Drop}, dos)
	require.Equal(t, []Count{{"one", "fail", 1, 3, 0}, {"two", "drop", 2, 3, 0}, {"never", "drop", 0, 0, 0}}, e.Counts())
	require.Equal(t, []string{"two drop", "one fail", "two drop"}, e.rec.dos())
}

func TestDuplicate(t *testing.T) {
	e := engine(t, `
rules:
  - {name: a, when: {access: w}, do: duplicate, for: 20ms, copies: 3}
  - {name: b, when: {signal: S}, do: duplicate, until: {event: alloc}, limit: 30ms}`, 1)
	defer e.Close()
	require.Equal(t, Action{Duplicate, 3, 20 * time.Millisecond}, e.Pass(t.Context(), write("h")))
	require.Equal(t, int64(20), e.rec.events[0].MS)
	require.Equal(t, Action{Duplicate, 1, 30 * time.Millisecond}, e.Pass(t.Context(), signal("S")))
}

func TestProcessFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: crash, when: {event: begin, target: decode, nth: 2}, do: kill, worker: prefill, restart_after: 200ms}
  - {name: stall, when: {access: w}, do: pause, worker: decode, for: 1s}
  - {name: up, when: {event: exit, worker: router}, do: restart, worker: router}
  - {name: later, when: {event: exit, worker: store}, do: restart, worker: store, restart_after: 1s}`, 1)
		begin := &spec.Event{K: spec.KindBegin, Target: "decode-0"}
		e.Observe(begin)
		synctest.Wait()
		require.Empty(t, e.procs.done())
		e.Observe(begin)
		synctest.Wait()
		require.Equal(t, []string{"kill prefill"}, e.procs.done())
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"kill prefill", "restart prefill"}, e.procs.done())

		e.Pass(t.Context(), write("h"))
		require.Equal(t, "pause decode", e.procs.done()[2], "before Pass returns")
		e.Pass(t.Context(), write("h"))
		require.Len(t, e.procs.done(), 3, "once, unless the plan says otherwise")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "resume decode", e.procs.done()[3])

		e.Observe(&spec.Event{K: spec.KindExit, Worker: "router"})
		e.Observe(&spec.Event{K: spec.KindExit, Worker: "store"})
		synctest.Wait()
		require.Equal(t, "restart router", e.procs.done()[4])
		e.Close()
		require.Len(t, e.procs.done(), 5, "no restart once the run is over")
		require.Equal(t, []string{
			"crash kill", "crash restart", "stall pause", "stall resume", "up restart",
		}, e.rec.dos())
	})
}

func TestCloseResumesWhatIsPaused(t *testing.T) {
	e := engine(t, "rules: [{name: a, when: {signal: S}, do: pause, worker: w, for: 10m}]", 1)
	e.Pass(t.Context(), signal("S"))
	e.Close()
	require.Equal(t, []string{"pause w", "resume w"}, e.procs.done())
}

func TestOverlappingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: long, when: {signal: S}, do: pause, worker: w, for: 3s}
  - {name: short, when: {signal: S}, do: pause, worker: w, for: 1s}`, 1)
		defer e.Close()
		e.Pass(t.Context(), signal("S"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"pause w", "pause w"}, e.procs.done())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"pause w", "pause w", "resume w"}, e.procs.done())
	})
}

func TestProcessFaultThatFails(t *testing.T) {
	e := engine(t, "rules: [{name: a, when: {signal: S, count: 2}, do: kill, worker: w}]", 1)
	defer e.Close()
	e.procs.fail = errors.New("no such worker")
	e.Pass(t.Context(), signal("S"))
	require.Equal(t, []string{"a kill", "fault a: kill w: no such worker"}, e.rec.dos())
	require.Equal(t, []Count{{"a", "kill", 0, 1, 1}}, e.Counts())
}

func TestProcessFaultsNeedProcesses(t *testing.T) {
	_, err := NewEngine(plan(t, "rules: [{name: a, when: {signal: S}, do: kill, worker: w}]"), 1, EngineOptions{})
	require.ErrorIs(t, err, ErrNoProcesses)
	require.ErrorContains(t, err, `rule "a" does kill`)
}

// A client gives its request up while the transfer is held, once unless the plan says
// otherwise, and the plan is spent when both rules have acted and nothing is held.
func TestClientsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		rec := &recorder{}
		e, err := NewEngine(plan(t, `
rules:
  - {name: hold, when: {access: w, count: 1}, do: hold, until: {event: alloc, same: block}}
  - {name: stop, when: {access: w}, do: abort, worker: decode}
  - {name: go, when: {signal: S}, do: leave}`), 1, EngineOptions{
			Record: rec.record,
			GiveUp: func(req string, leave bool, at string) { asked = append(asked, fmt.Sprint(req, leave, at)) },
		})
		require.NoError(t, err)
		defer e.Close()
		held := write("h", 3)
		held.Req = "r-1"
		go e.Pass(t.Context(), held)
		synctest.Wait()
		require.Equal(t, []string{"r-1falsedecode"}, asked)
		e.Pass(t.Context(), Point{Kind: KindSignal, Name: "S", Req: "r-2"})
		require.Equal(t, []string{"r-1falsedecode", "r-2true"}, asked)
		e.Pass(t.Context(), held)
		require.Len(t, asked, 2, "once")
		require.False(t, e.Spent(), "the transfer is held")
		e.Observe(&spec.Event{K: spec.KindAlloc, Src: "decode", Pool: "kv", Blocks: spec.MakeBlocks(3)})
		synctest.Wait()
		require.True(t, e.Spent())
		require.Contains(t, rec.dos(), "stop abort")
	})
}

func TestGivingUpNeedsClients(t *testing.T) {
	_, err := NewEngine(plan(t, "rules: [{name: a, when: {signal: S}, do: leave}]"), 1, EngineOptions{})
	require.ErrorIs(t, err, ErrNoClients)
	require.ErrorContains(t, err, `rule "a" does leave`)
}

func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: split, when: {event: cancel}, do: partition, between: [prefill, decode], for: 1s}
  - {name: count, when: {access: w}, do: duplicate}`, 1)
		defer e.Close()
		pass := func(kind, from, to string) Do {
			return e.Pass(t.Context(), Point{Kind: kind, Name: "w", From: from, To: to}).Do
		}
		e.Observe(&spec.Event{K: spec.KindCancel, Req: "r"})
		synctest.Wait()
		require.Equal(t, Drop, pass(KindSignal, "prefill-0", "decode-1"))
		require.Equal(t, Drop, pass(KindSignal, "decode", "prefill"))
		require.Equal(t, Drop, pass(KindHTTP, "decode", "prefill"))
		require.Equal(t, Fail, pass(KindAccess, "decode", "prefill"))
		require.Equal(t, Forward, pass(KindSignal, "router", "prefill"))
		require.Equal(t, Forward, pass(KindSignal, "", "prefill"))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, Forward, pass(KindSignal, "decode", "prefill"))
		require.Equal(t, []string{
			"split partition", "split cut", "split cut", "split cut", "split cut", "split heal",
		}, e.rec.dos())
		require.Equal(t, []Count{{"split", "partition", 1, 1, 0}, {"count", "duplicate", 0, 1, 0}}, e.Counts())
	})
}

func TestManyAtOnce(t *testing.T) {
	e := engine(t, `
rules:
  - {name: a, when: {signal: S, every: 2}, do: hold, until: {event: alloc}, limit: 10s}
  - {name: b, when: {signal: S, after: {event: cancel, same: req}}, do: delay, jitter: 0ms..1ms}`, 1)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				req := fmt.Sprint(g, i)
				e.Observe(&spec.Event{K: spec.KindCancel, Req: req})
				e.Pass(t.Context(), Point{Kind: KindSignal, Name: "S", Req: req})
				e.Observe(&spec.Event{K: spec.KindAlloc})
			}
		})
	}
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				e.Observe(&spec.Event{K: spec.KindAlloc})
			}
		}
	}()
	wg.Wait()
	close(stop)
	e.Close()
	require.Equal(t, 200, e.Counts()[0].Fired)
}

// A worker that asks and is killed for it is killed, although its question ends
// with it.
func TestProcessFaultOutlivesTheQuestion(t *testing.T) {
	e := engine(t, "rules: [{name: a, when: {access: w}, do: kill, worker: w}]", 1)
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	e.procs.during = cancel
	e.Pass(ctx, write("h"))
	require.Equal(t, []string{"a kill"}, e.rec.dos())
	require.Equal(t, 1, e.Counts()[0].Fired)
}
