package failpoint

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"conform/faults"
	"conform/spec"

	"github.com/stretchr/testify/require"
)

type rig struct {
	ctx    context.Context
	engine *faults.Engine
	server *Server
	client *Client
}

func newRig(t *testing.T, plan string) *rig {
	t.Helper()
	r := &rig{}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), 30*time.Second)
	p, err := faults.ParsePlan("plan", []byte(plan))
	require.NoError(t, err)
	r.engine, err = faults.NewEngine(p, 1, faults.EngineOptions{})
	require.NoError(t, err)
	r.server, err = Serve("127.0.0.1:0", r.engine)
	require.NoError(t, err)
	r.client, err = Connect(r.ctx, r.server.Addr(), "prefill-0")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.client.Close())
		require.NoError(t, r.server.Close())
		r.engine.Close()
		cancel()
	})
	return r
}

func write(handoff string) faults.Point {
	return faults.Point{
		Kind: faults.KindAccess, Name: "w", To: "decode", Pool: "kv", Handoff: handoff,
		Access: "a", Req: "r", Sig: "s", Signal: "S", Why: "y", Mode: "w", N: 3, Blocks: spec.MakeBlocks(1, 2, 9),
	}
}

func line1(ev spec.Event) []byte { return append(ev.AppendJSON(nil), '\n') }

func (r *rig) awaitFired(t *testing.T, rule, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return r.engine.Counts()[rule].Fired == n }, 20*time.Second, time.Millisecond)
}

func TestPass(t *testing.T) {
	r := newRig(t, `
rules:
  - {name: f, when: {access: w, handoff: f, from: prefill}, do: fail}
  - {name: d, when: {access: w, handoff: d}, do: drop}
  - {name: t, when: {access: w, handoff: t}, do: duplicate, copies: 2, for: 5ms}
  - {name: l, when: {access: w, handoff: l}, do: delay, for: 20ms}`)
	require.Equal(t, faults.Action{}, r.client.Pass(r.ctx, write("x")))
	require.Equal(t, faults.Fail, r.client.Pass(r.ctx, write("f")).Do, "the worker's name is filled in")
	require.Equal(t, faults.Drop, r.client.Pass(r.ctx, write("d")).Do)
	require.Equal(t, faults.Action{Do: faults.Duplicate, Copies: 2, After: 5 * time.Millisecond}, r.client.Pass(r.ctx, write("t")))
	began := time.Now()
	require.Equal(t, faults.Forward, r.client.Pass(r.ctx, write("l")).Do)
	require.GreaterOrEqual(t, time.Since(began), 20*time.Millisecond)
}

func TestPointSurvivesTheWire(t *testing.T) {
	p := write("h")
	p.From = "x"
	require.Equal(t, p, toWire(p).point())
}

// One question that is held keeps no other from its answer, and an event that
// the worker taps ends the hold.
func TestHoldUntilATappedEvent(t *testing.T) {
	r := newRig(t, "rules: [{name: h, when: {access: w, handoff: h}, do: hold, until: {event: alloc, pool: kv, same: block}, limit: 1m}]")
	done := make(chan faults.Action, 1)
	go func() { done <- r.client.Pass(r.ctx, write("h")) }()
	r.awaitFired(t, 0, 1)
	for range 100 {
		require.Equal(t, faults.Forward, r.client.Pass(r.ctx, write("other")).Do)
	}
	select {
	case <-done:
		t.Fatal("it was to be held")
	default:
	}
	decode, err := Connect(r.ctx, r.server.Addr(), "decode")
	require.NoError(t, err)
	decode.Tap(line1(spec.Event{Src: "d", K: spec.KindSource, Worker: "decode", Role: spec.RoleDecode, Host: "h", Clock: "c"}))
	decode.Tap(line1(spec.Event{Src: "d", Seq: 1, K: spec.KindAlloc, Pool: "kv", Blocks: spec.MakeBlocks(4), Holder: "x"}))
	decode.Tap(line1(spec.Event{Src: "d", Seq: 2, K: spec.KindAlloc, Pool: "kv", Blocks: spec.MakeBlocks(2), Holder: "x"}))
	require.Equal(t, faults.Forward, (<-done).Do)
	require.NoError(t, decode.Close())
	require.Zero(t, r.server.Malformed())
}

// What a worker tapped before it asked is known when the engine decides.
func TestTapGoesBeforeALaterQuestion(t *testing.T) {
	r := newRig(t, "rules: [{name: d, when: {access: w, after: {event: cancel, same: req}}, do: drop}]")
	for i := range 200 {
		p := write("h")
		p.Req = fmt.Sprint(i)
		require.Equal(t, faults.Forward, r.client.Pass(r.ctx, p).Do)
		r.client.Tap(line1(spec.Event{Src: "p", Seq: uint64(i), K: spec.KindCancel, Req: p.Req}))
		require.Equal(t, faults.Drop, r.client.Pass(r.ctx, p).Do)
	}
	require.Zero(t, r.client.Dropped())
}

func TestSignalsInProcess(t *testing.T) {
	r := newRig(t, "rules: [{name: h, when: {signal: H}, do: hold, until: {signal: S}, limit: 1m}]")
	done := make(chan faults.Action, 1)
	go func() { done <- r.client.Pass(r.ctx, faults.Point{Kind: faults.KindSignal, Name: "H"}) }()
	r.awaitFired(t, 0, 1)
	s := faults.Point{Kind: faults.KindSignal, Name: "S"}
	require.Equal(t, faults.Forward, r.client.Pass(r.ctx, s).Do)
	r.client.Passed(r.ctx, s)
	require.Equal(t, faults.Forward, (<-done).Do)
}

func TestNothingIsAskedThatNoRuleWants(t *testing.T) {
	r := newRig(t, `
rules:
  - {name: a, when: {access: w, pool: aux}, do: fail}
  - {name: b, when: {signal: S}, do: hold, until: {event: alloc}}`)
	require.Equal(t, faults.Forward, r.client.Pass(r.ctx, write("h")).Do)
	require.Equal(t, faults.Forward, r.client.Pass(r.ctx, faults.Point{Kind: faults.KindHTTP}).Do)
	r.client.Tap(line1(spec.Event{Src: "p", K: spec.KindNote, Text: `"alloc"`}))
	require.Zero(t, r.client.next, "no question was asked")
	require.Empty(t, r.client.queue, "no line was sent")
}

func TestCtxEndsAQuestion(t *testing.T) {
	r := newRig(t, "rules: [{name: h, when: {access: w}, do: hold, until: {event: alloc}, limit: 10m}]")
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan faults.Action, 1)
	go func() { done <- r.client.Pass(ctx, write("h")) }()
	r.awaitFired(t, 0, 1)
	cancel()
	require.Equal(t, faults.Forward, (<-done).Do)
	require.Empty(t, r.client.open)
	require.Equal(t, faults.Forward, r.client.Pass(ctx, write("h")).Do)
}

func TestHarnessGone(t *testing.T) {
	r := newRig(t, "rules: [{name: h, when: {access: w}, do: hold, until: {event: alloc}, limit: 10m}]")
	done := make(chan faults.Action, 1)
	go func() { done <- r.client.Pass(r.ctx, write("h")) }()
	r.awaitFired(t, 0, 1)
	require.NoError(t, r.server.Close())
	require.Equal(t, faults.Forward, (<-done).Do)
	<-r.client.gone
	require.Equal(t, faults.Forward, r.client.Pass(context.Background(), write("h")).Do, "at once")
	r.client.Tap(line1(spec.Event{Src: "p", K: spec.KindAlloc, Pool: "kv", Holder: "x"}))
	require.Zero(t, r.client.Dropped(), "nobody is there to miss it")
	_, err := Connect(r.ctx, r.server.Addr(), "w")
	require.Error(t, err)
}

func TestClosedClient(t *testing.T) {
	r := newRig(t, "rules: [{name: h, when: {access: w}, do: fail, }]")
	require.NoError(t, r.client.Close())
	require.Equal(t, faults.Forward, r.client.Pass(context.Background(), write("h")).Do)
	require.NoError(t, r.client.Close())
}

// Close hands over what was tapped.
func TestCloseFlushes(t *testing.T) {
	r := newRig(t, "rules: [{name: k, when: {signal: S, after: {event: cancel, nth: 500}}, do: drop}]")
	for i := range 500 {
		r.client.Tap(line1(spec.Event{Src: "p", Seq: uint64(i), K: spec.KindCancel, Req: "r"}))
	}
	require.NoError(t, r.client.Close())
	require.Eventually(t, func() bool {
		return r.engine.Pass(r.ctx, faults.Point{Kind: faults.KindSignal, Name: "S"}).Do == faults.Drop
	}, 20*time.Second, time.Millisecond)
}

func TestTapDropsWhatHasNoRoom(t *testing.T) {
	a, b := net.Pipe() // nobody reads b: the writer is stuck
	defer b.Close()
	c := &Client{
		conn: a, queue: make(chan []byte, 2), events: [][]byte{[]byte(`"k":"cancel"`)},
		closing: make(chan struct{}), gone: make(chan struct{}),
	}
	for range 5 {
		c.Tap([]byte(`{"k":"cancel"}` + "\n"))
	}
	require.Equal(t, int64(3), c.Dropped())
	c.Tap([]byte(`{"k":"cancel"}` + "\n" + `{"k":"cancel"}`))
	c.Tap([]byte(`{"k":"cancel"` + strings.Repeat(" ", maxLine)))
	require.Equal(t, int64(5), c.Dropped())
	c.queueBytes.Store(maxQueueBytes)
	<-c.queue
	c.Tap([]byte(`{"k":"cancel"}`))
	require.Equal(t, int64(6), c.Dropped())
}

// The harness learns how much was dropped.
func TestLossIsReported(t *testing.T) {
	r := newRig(t, "rules: [{name: k, when: {signal: S}, do: hold, until: {event: cancel}}]")
	r.client.Tap([]byte(`{"k":"cancel"` + strings.Repeat(" ", maxLine)))
	r.client.Tap(line1(spec.Event{Src: "p", K: spec.KindCancel, Req: "r"}))
	require.Eventually(t, func() bool { return r.server.Lost() == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, int64(1), r.client.Dropped())
}

func TestServerRefuses(t *testing.T) {
	r := newRig(t, "rules: [{name: h, when: {access: w}, do: hold, until: {event: alloc}, limit: 10m}]")
	hello := `{"protocol":"conform-failpoint/1","worker":"w"}` + "\n"
	for i, text := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		`{"protocol":"conform-failpoint/2"}` + "\n",
		hello + "\n",
		hello + "X{}\n",
		hello + "Q[]\n",
		hello + "Lx\n",
		hello + "L-1\n",
		hello + `Q{"id":1,"p":{"kind":"access","name":"w"}}` + "\n" + `Q{"id":1,"p":{"kind":"access","name":"w"}}` + "\n",
		hello + "T" + strings.Repeat("x", maxLine) + "\n",
	} {
		conn, err := net.Dial("tcp", r.server.Addr())
		require.NoError(t, err)
		_, err = conn.Write([]byte(text))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return r.server.Malformed() == int64(i+1) }, 20*time.Second, time.Millisecond, text)
		require.NoError(t, conn.Close())
	}
	// A bad event costs nothing but itself, and half a last line is no line.
	before := r.server.Malformed()
	conn, err := net.Dial("tcp", r.server.Addr())
	require.NoError(t, err)
	_, err = conn.Write([]byte(hello + "T{}\nTnonsense\nL7\nL1"))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return r.server.Lost() == 7 }, 20*time.Second, time.Millisecond)
	require.Equal(t, before+2, r.server.Malformed())
}

func TestServeRefusesWhatOthersCouldReach(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "192.0.2.1:0", "example.org:0"} {
		_, err := Serve(addr, nil)
		require.ErrorIs(t, err, ErrNotLoopback, addr)
	}
	_, err := Serve("nowhere", nil)
	require.Error(t, err)
}

func TestConnectRefuses(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for _, text := range []string{"SSH-2.0\r\n", `{"protocol":"x"}` + "\n", ""} {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	ctx := context.Background()
	for range 3 {
		_, err = Connect(ctx, ln.Addr().String(), "w")
		require.ErrorContains(t, err, "failpoint")
	}
	ended, cancel := context.WithTimeout(ctx, 10*time.Millisecond) // nobody accepts
	defer cancel()
	_, err = Connect(ended, ln.Addr().String(), "w")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestManyQuestionsAtOnce(t *testing.T) {
	r := newRig(t, `
rules:
  - {name: l, when: {access: w, every: 3}, do: delay, jitter: 0ms..2ms}
  - {name: f, when: {access: w, every: 7}, do: fail}`)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				r.client.Pass(r.ctx, write(fmt.Sprint(g, i)))
			}
		})
	}
	wg.Wait()
	counts := r.engine.Counts()
	require.Equal(t, []int{800, 266}, []int{counts[0].Seen, counts[0].Fired})
	require.Equal(t, 800/7-800/21, counts[1].Fired)
}

func BenchmarkPassWithoutRules(b *testing.B) {
	p, err := faults.ParsePlan("p", []byte("rules: []"))
	require.NoError(b, err)
	e, err := faults.NewEngine(p, 1, faults.EngineOptions{})
	require.NoError(b, err)
	defer e.Close()
	s, err := Serve("127.0.0.1:0", e)
	require.NoError(b, err)
	defer s.Close()
	c, err := Connect(b.Context(), s.Addr(), "w")
	require.NoError(b, err)
	defer c.Close()
	pt := write("h")
	for b.Loop() {
		c.Pass(b.Context(), pt)
	}
}

// rawWorker speaks the protocol by hand, as a probe in another language does.
func rawWorker(t *testing.T, addr, hello string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = fmt.Fprintln(conn, hello)
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	said, err := r.ReadString('\n')
	require.NoError(t, err)
	return conn, r, said
}

// Only those that said that they can are asked to seal, and each is waited for.
func TestSeal(t *testing.T) {
	r := newRig(t, "rules: [{name: d, when: {access: w}, do: drop}]")
	require.NoError(t, r.server.Seal(r.ctx), "nobody can")
	a, fromA, _ := rawWorker(t, r.server.Addr(), `{"protocol":"conform-failpoint/1","worker":"decode-0","seals":true}`)
	b, fromB, _ := rawWorker(t, r.server.Addr(), `{"protocol":"conform-failpoint/1","worker":"prefill-0","seals":true}`)
	require.Eventually(t, func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(r.server.sessions) == 3
	}, 20*time.Second, time.Millisecond)
	sealed := make(chan error, 1)
	go func() { sealed <- r.server.Seal(r.ctx) }()
	for _, from := range []*bufio.Reader{fromA, fromB} {
		said, err := from.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "S\n", said)
	}
	_, err := fmt.Fprint(a, "D\n")
	require.NoError(t, err)
	select {
	case err := <-sealed:
		t.Fatalf("one has not answered: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, b.Close(), "it dies instead")
	require.NoError(t, <-sealed)
	require.Zero(t, r.server.Malformed())
	require.Equal(t, faults.Drop, r.client.Pass(r.ctx, write("x")).Do, "the others run on")
}

func TestSealNamesWhoIsLate(t *testing.T) {
	r := newRig(t, "rules: [{name: d, when: {access: w}, do: drop}]")
	_, from, _ := rawWorker(t, r.server.Addr(), `{"protocol":"conform-failpoint/1","worker":"prefill-0","seals":true}`)
	require.Eventually(t, func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(r.server.sessions) == 2
	}, 20*time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(r.ctx)
	go func() {
		_, _ = from.ReadString('\n')
		cancel()
	}()
	err := r.server.Seal(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "prefill-0")
}

// A listener hears what workers tap, and asks for kinds that no rule looks at.
func TestHeardEvents(t *testing.T) {
	plan, err := faults.ParsePlan("plan", []byte("rules: [{name: d, when: {event: alloc, nth: 9}, do: pause, worker: prefill, for: 1ms}]"))
	require.NoError(t, err)
	engine, err := faults.NewEngine(plan, 1, faults.EngineOptions{Processes: noProcesses{}})
	require.NoError(t, err)
	defer engine.Close()
	heard := make(chan spec.Event, 8)
	server, err := Options{
		Events: []spec.Kind{spec.KindFree, spec.KindAlloc},
		Heard:  func(e *spec.Event) { heard <- *e },
	}.Serve("127.0.0.1:0", engine)
	require.NoError(t, err)
	defer server.Close()
	_, _, hello := rawWorker(t, server.Addr(), `{"protocol":"conform-failpoint/1","worker":"x"}`)
	require.Equal(t, 1, strings.Count(hello, `"alloc"`))
	require.Contains(t, hello, `"free"`)
	c, err := Connect(t.Context(), server.Addr(), "decode-0")
	require.NoError(t, err)
	c.Tap(line1(spec.Event{Src: "d", K: spec.KindCancel, Req: "r"}))
	c.Tap(line1(spec.Event{Src: "d", Seq: 1, K: spec.KindFree, Pool: "kv", Blocks: spec.MakeBlocks(4)}))
	require.Equal(t, spec.KindFree, (<-heard).K)
	require.NoError(t, c.Close())
}

type noProcesses struct{}

func (noProcesses) Pause(context.Context, string) error   { return nil }
func (noProcesses) Resume(context.Context, string) error  { return nil }
func (noProcesses) Kill(context.Context, string) error    { return nil }
func (noProcesses) Restart(context.Context, string) error { return nil }

// A worker that can seal says what it has in flight; one that does not answer, and
// one that is gone, are told apart.
func TestLoads(t *testing.T) {
	r := newRig(t, "rules: [{name: d, when: {access: w}, do: drop}]")
	loads, err := r.server.Loads(r.ctx)
	require.NoError(t, err)
	require.Empty(t, loads, "nobody can say")
	conn, from, _ := rawWorker(t, r.server.Addr(), `{"protocol":"conform-failpoint/1","worker":"decode-0","seals":true}`)
	require.Eventually(t, func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(r.server.sessions) == 2
	}, 20*time.Second, time.Millisecond)
	got := make(chan error, 1)
	go func() {
		var err error
		loads, err = r.server.Loads(r.ctx)
		got <- err
	}()
	said, err := from.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "I\n", said)
	_, err = fmt.Fprint(conn, `I{"leased":3,"open":1}`+"\n")
	require.NoError(t, err)
	require.NoError(t, <-got)
	require.Equal(t, map[string]Load{"decode-0": {Leased: 3, Open: 1}}, loads)

	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond) // it does not answer
	defer cancel()
	_, err = r.server.Loads(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "decode-0")
	_, err = fmt.Fprint(conn, "Inonsense\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.server.Malformed() == 1 }, 20*time.Second, time.Millisecond)
}
