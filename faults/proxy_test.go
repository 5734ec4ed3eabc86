package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"conform/faults/zmtp"
	"conform/spec"

	"github.com/stretchr/testify/require"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// decodeText reads "KIND handoff text".
func decodeText(msg [][]byte) (Point, bool) {
	f := strings.Fields(string(msg[0]))
	if len(f) < 2 {
		return Point{}, false
	}
	return Point{Name: f[0], Handoff: f[1], Sig: string(msg[0])}, true
}

// wire is a PUSH socket, a proxy and a PULL socket.
type wire struct {
	fixture
	ctx   context.Context
	push  *zmtp.Push
	pull  *zmtp.Pull
	proxy *ZMTPProxy
}

func newWire(t *testing.T, text string) *wire {
	t.Helper()
	w := &wire{fixture: engine(t, text, 1), ctx: within(t)}
	var err error
	w.pull, err = zmtp.Listen("127.0.0.1:0")
	require.NoError(t, err)
	w.proxy, err = NewZMTPProxy(ZMTPProxyOptions{
		Upstream: w.pull.Addr(), From: "prefill", To: "decode", Decode: decodeText, Engine: w.Engine,
	})
	require.NoError(t, err)
	w.push = w.dial()
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		_ = w.push.Close(ended)
		require.NoError(t, w.proxy.Close())
		require.NoError(t, w.pull.Close())
		w.Close()
	})
	return w
}

func (w *wire) dial() *zmtp.Push {
	return zmtp.Dial(w.proxy.Addr(), zmtp.DialOptions{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
}

func (w *wire) send(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		require.NoError(t, w.push.Send(w.ctx, [][]byte{[]byte(s), {}, []byte("tail")}))
	}
}

func (w *wire) expect(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		msg, err := w.pull.Recv(w.ctx)
		require.NoError(t, err, "waiting for %q", s)
		require.Len(t, msg, 3)
		require.Equal(t, s, string(msg[0]))
	}
}

func (w *wire) awaitFault(t *testing.T, do string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, d := range w.rec.dos() {
			if d == do {
				return true
			}
		}
		return false
	}, 20*time.Second, time.Millisecond, do)
}

func TestZMTPProxyPasses(t *testing.T) {
	w := newWire(t, "rules: []")
	for i := range 300 {
		w.send(t, fmt.Sprint("S h", i))
	}
	for i := range 300 {
		w.expect(t, fmt.Sprint("S h", i))
	}
	require.Zero(t, w.proxy.Unknown())
	w.send(t, "odd")
	w.expect(t, "odd")
	require.Equal(t, 1, w.proxy.Unknown())
}

func TestZMTPProxyDropAndDuplicate(t *testing.T) {
	w := newWire(t, `
rules:
  - {name: d, when: {signal: D, from: prefill, to: decode}, do: drop}
  - {name: t, when: {signal: T}, do: duplicate, copies: 2}`)
	w.send(t, "A 1", "D 2", "T 3", "A 4")
	w.expect(t, "A 1", "T 3", "T 3", "T 3", "A 4")
	require.Equal(t, []string{"d drop", "t duplicate"}, w.rec.dos())
	require.Equal(t, "D 2", w.rec.events[0].Sig)
	require.Equal(t, "2", w.rec.events[0].Handoff)
}

func TestZMTPProxyHoldIsOvertaken(t *testing.T) {
	w := newWire(t, "rules: [{name: h, when: {signal: H}, do: hold, until: {event: cancel, same: handoff}, limit: 1m}]")
	w.send(t, "H a", "A b", "H c", "A d")
	w.expect(t, "A b", "A d")
	w.Observe(&spec.Event{K: spec.KindCancel, Handoff: "c"})
	w.expect(t, "H c")
	w.Observe(&spec.Event{K: spec.KindCancel, Handoff: "a"})
	w.expect(t, "H a")
}

func TestZMTPProxyHoldUntilASignalHasPassed(t *testing.T) {
	w := newWire(t, "rules: [{name: h, when: {signal: H}, do: hold, until: {signal: A, nth: 2}, limit: 1m}]")
	for i := range 30 {
		w.send(t, "H a", "A b", "B c", "A d")
		w.expect(t, "A b", "B c", "A d", "H a")
		require.Equal(t, i+1, w.Counts()[0].Fired)
	}
}

func TestZMTPProxyOrderedHold(t *testing.T) {
	w := newWire(t, "rules: [{name: h, when: {signal: H}, do: hold, until: {event: cancel}, limit: 1m, ordered: true}]")
	w.send(t, "H a", "A b")
	w.awaitFault(t, "h hold")
	w.Observe(&spec.Event{K: spec.KindCancel, Req: "r"})
	w.expect(t, "H a", "A b")
}

func TestZMTPProxyReorder(t *testing.T) {
	w := newWire(t, `
rules:
  - {name: r, when: {signal: R, nth: 1}, do: reorder, limit: 1m}
  - {name: m, when: {signal: METADATA}, do: reorder, behind: {signal: ABORT}, limit: 1m}`)
	w.send(t, "R 1", "A 2", "R 3", "R 4")
	w.expect(t, "A 2", "R 3")
	got := map[string]bool{}
	for range 2 { // the first follows the second; the third may slip between
		msg, err := w.pull.Recv(w.ctx)
		require.NoError(t, err)
		got[string(msg[0])] = true
	}
	require.Equal(t, map[string]bool{"R 1": true, "R 4": true}, got)
	w.send(t, "METADATA 5", "ABORT 5")
	w.expect(t, "ABORT 5", "METADATA 5")
}

func TestZMTPProxyDelayAndLateCopy(t *testing.T) {
	w := newWire(t, `
rules:
  - {name: d, when: {signal: D}, do: delay, for: 30ms}
  - {name: c, when: {signal: C}, do: duplicate, for: 30ms}
  - {name: u, when: {signal: U}, do: duplicate, until: {event: alloc}, limit: 1m}`)
	began := time.Now()
	w.send(t, "D 1", "A 2")
	w.expect(t, "A 2", "D 1")
	require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	w.send(t, "C 3", "A 4")
	w.expect(t, "C 3", "A 4", "C 3")
	w.send(t, "U 5", "A 6")
	w.expect(t, "U 5", "A 6")
	w.Observe(&spec.Event{K: spec.KindAlloc})
	w.expect(t, "U 5")
}

// What a client sent before it went away arrives, held or not.
func TestZMTPProxyClientGoesAway(t *testing.T) {
	w := newWire(t, "rules: [{name: h, when: {signal: H}, do: hold, until: {event: cancel}, limit: 1m}]")
	push := w.dial()
	require.NoError(t, push.Send(w.ctx, [][]byte{[]byte("H a"), {}, {}}))
	w.awaitFault(t, "h hold")
	require.NoError(t, push.Close(w.ctx))
	w.Observe(&spec.Event{K: spec.KindCancel, Req: "r"})
	w.expect(t, "H a")
}

func TestZMTPProxyUpstreamComesAndGoes(t *testing.T) {
	w := newWire(t, "rules: []")
	w.send(t, "S 1")
	w.expect(t, "S 1")
	old := w.pull
	next, err := zmtp.Listen("127.0.0.1:0")
	require.NoError(t, err)
	w.proxy.SetUpstream(next.Addr())
	require.NoError(t, old.Close())
	w.pull = next
	// Sent until one arrives: what the kernel took for the dead one is lost.
	stop, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for stop.Err() == nil {
			_ = w.push.Send(stop, [][]byte{[]byte("S 2"), {}, {}})
			time.Sleep(time.Millisecond)
		}
	})
	w.expect(t, "S 2")
	cancel()
	wg.Wait()
}

func TestDeadUpstreamLooksDead(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := ln.Addr().String()
	require.NoError(t, ln.Close())
	e := engine(t, "rules: []", 1)
	defer e.Close()

	p, err := NewZMTPProxy(ZMTPProxyOptions{Upstream: dead, Decode: decodeText, Engine: e.Engine})
	require.NoError(t, err)
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	h, err := NewHTTPProxy(HTTPProxyOptions{Upstream: dead, Engine: e.Engine})
	require.NoError(t, err)
	defer h.Close()
	_, err = http.Get("http://" + h.Addr() + "/")
	require.ErrorIs(t, err, io.EOF)
}

// A partition drops what comes meanwhile, and breaks the connection when it is over.
func TestZMTPProxyPartition(t *testing.T) {
	w := newWire(t, "rules: [{name: p, when: {event: cancel}, do: partition, between: [prefill, decode], for: 50ms}]")
	w.send(t, "S 1")
	w.expect(t, "S 1")
	w.Observe(&spec.Event{K: spec.KindCancel, Req: "r"})
	w.awaitFault(t, "p partition")
	w.send(t, "S 2")
	w.awaitFault(t, "p cut")
	w.awaitFault(t, "p heal")
	require.Eventually(t, func() bool {
		_ = w.push.Send(w.ctx, [][]byte{[]byte("S 3"), {}, {}})
		recv, cancel := context.WithTimeout(w.ctx, 20*time.Millisecond)
		defer cancel()
		msg, err := w.pull.Recv(recv)
		return err == nil && string(msg[0]) == "S 3"
	}, 20*time.Second, time.Millisecond)
}

func TestZMTPProxySplicesWhatIsNotZMTP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	e := engine(t, "rules: [{name: d, when: {signal: '*'}, do: drop}]", 1)
	defer e.Close()
	p, err := NewZMTPProxy(ZMTPProxyOptions{Upstream: ln.Addr().String(), Decode: decodeText, Engine: e.Engine})
	require.NoError(t, err)
	defer p.Close()
	for _, text := range []string{"hello\n", string(zmtp.AppendGreeting(nil, zmtp.Greeting{Major: 3, Mechanism: "CURVE"})) + "sealed\n"} {
		conn, err := net.Dial("tcp", p.Addr())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = conn.Write([]byte(text))
		require.NoError(t, err)
		got := make([]byte, len(text))
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return p.Unknown() == 4 }, 20*time.Second, time.Millisecond, "both directions")
}

func TestZMTPProxyCutsWhatExceedsItsLimits(t *testing.T) {
	e := engine(t, "rules: []", 1)
	defer e.Close()
	pull, err := zmtp.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer pull.Close()
	p, err := NewZMTPProxy(ZMTPProxyOptions{
		Upstream: pull.Addr(), From: "a", To: "b", Decode: decodeText, Engine: e.Engine, Limits: zmtp.Limits{FrameBytes: 100},
	})
	require.NoError(t, err)
	defer p.Close()
	ctx := within(t)
	push := zmtp.Dial(p.Addr(), zmtp.DialOptions{})
	defer push.Close(ctx)
	require.NoError(t, push.Send(ctx, [][]byte{make([]byte, 101)}))
	require.Eventually(t, func() bool { return len(e.rec.dos()) == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, "proxy from a to b: zmtp: 101 bytes of a frame, at most 100 are allowed", e.rec.dos()[0])
}

func TestProxiesRefuse(t *testing.T) {
	_, err := NewZMTPProxy(ZMTPProxyOptions{})
	require.Error(t, err)
	_, err = NewHTTPProxy(HTTPProxyOptions{})
	require.Error(t, err)
	e := engine(t, "rules: []", 1)
	defer e.Close()
	_, err = NewZMTPProxy(ZMTPProxyOptions{Listen: "nowhere", Decode: decodeText, Engine: e.Engine})
	require.Error(t, err)
	_, err = NewHTTPProxy(HTTPProxyOptions{Listen: "nowhere", Engine: e.Engine})
	require.Error(t, err)
}

// web is a server behind an HTTP proxy.
type web struct {
	fixture
	proxy *HTTPProxy
	url   string
	hits  atomic.Int64
	gone  chan struct{} // a handler saw its client go
}

func newWeb(t *testing.T, text string) *web {
	t.Helper()
	w := &web{fixture: engine(t, text, 1), gone: make(chan struct{}, 16)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(rw http.ResponseWriter, r *http.Request) {
		w.hits.Add(1)
		_, _ = io.Copy(rw, r.Body)
	})
	mux.HandleFunc("GET /stream", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "one\n")
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-r.Context().Done():
			w.gone <- struct{}{}
		case <-release:
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	w.proxy, err = NewHTTPProxy(HTTPProxyOptions{
		Upstream: ln.Addr().String(), From: "client", To: "router", Engine: w.Engine,
		Decode: func(r *http.Request, body []byte) Point { return Point{Req: string(body)} },
	})
	require.NoError(t, err)
	w.url = "http://" + w.proxy.Addr()
	t.Cleanup(func() {
		require.NoError(t, w.proxy.Close())
		close(release)
		_ = server.Close()
		w.Close()
	})
	return w
}

func (w *web) post(ctx context.Context, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/echo", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(b), err
}

func TestHTTPProxy(t *testing.T) {
	ctx := within(t)
	w := newWeb(t, `
rules:
  - {name: f, when: {http: "POST /echo", req: f, from: client, to: router}, do: fail}
  - {name: d, when: {http: "POST *", req: d}, do: drop}
  - {name: l, when: {http: "*", req: l}, do: delay, for: 20ms}
  - {name: t, when: {http: "*", req: t}, do: duplicate, copies: 2, for: 5ms}
  - {name: h, when: {http: "*", req: h}, do: hold, until: {event: cancel}, limit: 1m}`)
	status, body, err := w.post(ctx, "plain")
	require.NoError(t, err)
	require.Equal(t, []any{200, "plain"}, []any{status, body})

	status, _, err = w.post(ctx, "f")
	require.NoError(t, err)
	require.Equal(t, 503, status)
	_, _, err = w.post(ctx, "d")
	require.ErrorIs(t, err, io.EOF)
	began := time.Now()
	_, body, err = w.post(ctx, "l")
	require.NoError(t, err)
	require.Equal(t, "l", body)
	require.GreaterOrEqual(t, time.Since(began), 20*time.Millisecond)
	require.Equal(t, int64(2), w.hits.Load())

	_, body, err = w.post(ctx, "t")
	require.NoError(t, err)
	require.Equal(t, "t", body)
	require.Eventually(t, func() bool { return w.hits.Load() == 5 }, 20*time.Second, time.Millisecond)

	answered := make(chan error, 1)
	go func() { _, _, err := w.post(ctx, "h"); answered <- err }()
	require.Eventually(t, func() bool { return w.Counts()[4].Fired == 1 }, 20*time.Second, time.Millisecond)
	w.Observe(&spec.Event{K: spec.KindCancel, Req: "x"})
	require.NoError(t, <-answered)
}

func TestHTTPProxyStreamsAndPassesDisconnectsOn(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	w := newWeb(t, "rules: []")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/stream", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "one\n", line, "before the answer is over")
	cancel()
	select {
	case <-w.gone:
	case <-time.After(20 * time.Second):
		t.Fatal("the server never learnt that the client had gone")
	}
}

// A client that goes away while its request is held has never been there.
func TestHTTPProxyClientLeavesDuringAHold(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	w := newWeb(t, "rules: [{name: h, when: {http: '*'}, do: hold, until: {event: cancel}, limit: 10m}]")
	answered := make(chan error, 1)
	go func() { _, _, err := w.post(ctx, "h"); answered <- err }()
	require.Eventually(t, func() bool { return w.Counts()[0].Fired == 1 }, 20*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-answered, context.Canceled)
	require.Eventually(t, func() bool { return len(w.rec.dos()) == 2 }, 20*time.Second, time.Millisecond)
	require.Equal(t, "h release-end", w.rec.dos()[1])
	require.Zero(t, w.hits.Load())
}

func TestHTTPProxyRefusesHugeRequests(t *testing.T) {
	w := newWeb(t, "rules: []")
	status, _, err := w.post(within(t), strings.Repeat("x", maxRequestBytes+1))
	if err == nil { // the client may still be writing when the answer comes
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
	}
	require.Zero(t, w.hits.Load())
}

func TestHTTPProxyCloseEndsWhatIsHeld(t *testing.T) {
	w := newWeb(t, "rules: [{name: h, when: {http: '*'}, do: hold, until: {event: cancel}, limit: 10m}]")
	answered := make(chan error, 1)
	go func() { _, _, err := w.post(context.Background(), "h"); answered <- err }()
	require.Eventually(t, func() bool { return w.Counts()[0].Fired == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, w.proxy.Close())
	require.Error(t, <-answered)
}

// A partition breaks what is under way between the two.
func TestHTTPProxyPartition(t *testing.T) {
	ctx := within(t)
	w := newWeb(t, "rules: [{name: p, when: {event: cancel}, do: partition, between: [client, router], for: 10m}]")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/stream", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	w.Observe(&spec.Event{K: spec.KindCancel, Req: "r"})
	_, err = io.ReadAll(answer.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	<-w.gone
	_, _, err = w.post(ctx, "x")
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, w.hits.Load())
}

// What passes is rewritten, once for each time; what is unknown is not.
func TestZMTPProxyRewrite(t *testing.T) {
	w := newWire(t, `
rules:
  - {name: d, when: {signal: D}, do: drop}
  - {name: t, when: {signal: T}, do: duplicate, for: 5ms}
  - {name: h, when: {signal: H}, do: hold, until: {signal: T}, limit: 1m}`)
	var seen sync.Map
	rewriting, err := NewZMTPProxy(ZMTPProxyOptions{
		Upstream: w.pull.Addr(), From: "prefill", To: "decode", Decode: decodeText, Engine: w.Engine,
		Rewrite: func(msg [][]byte) [][]byte {
			seen.Store(string(msg[0]), true)
			if strings.HasPrefix(string(msg[0]), "N ") {
				return nil
			}
			out := append([][]byte(nil), msg...)
			out[0] = []byte("new " + string(msg[0]))
			return out
		},
	})
	require.NoError(t, err)
	defer rewriting.Close()
	push := zmtp.Dial(rewriting.Addr(), zmtp.DialOptions{})
	defer push.Close(w.ctx)
	for _, s := range []string{"H 1", "A 2", "N 3", "odd", "D 4", "T 5"} {
		require.NoError(t, push.Send(w.ctx, [][]byte{[]byte(s), {}, []byte("tail")}))
	}
	w.expect(t, "new A 2", "N 3", "odd")
	got := map[string]int{}
	for range 3 {
		msg, err := w.pull.Recv(w.ctx)
		require.NoError(t, err)
		got[string(msg[0])]++
	}
	require.Equal(t, map[string]int{"new H 1": 1, "new T 5": 2}, got)
	for _, never := range []string{"odd", "D 4"} {
		_, ok := seen.Load(never)
		require.False(t, ok, "%q was shown to Rewrite", never)
	}
	require.Equal(t, 1, rewriting.Unknown())
}

// answering is a proxy with the option Answer in front of h.
func answering(t *testing.T, h http.Handler, answer func(*http.Request, int, http.Header, []byte) []byte) string {
	t.Helper()
	e := engine(t, "rules: []", 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	p, err := NewHTTPProxy(HTTPProxyOptions{Upstream: ln.Addr().String(), Engine: e.Engine, Answer: answer})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		_ = server.Close()
		e.Close()
	})
	return "http://" + p.Addr()
}

func TestHTTPProxyAnswer(t *testing.T) {
	big := strings.Repeat("x", maxAnswerBytes+1)
	mux := http.NewServeMux()
	mux.HandleFunc("/change", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Kept", r.Header.Get("Authorization"))
		rw.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(rw, "old")
		_ = http.NewResponseController(rw).Flush() // chunked: no length
	})
	mux.HandleFunc("/keep", func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "no", http.StatusTeapot) })
	mux.HandleFunc("/big", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, big) })
	mux.HandleFunc("/none", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/torn", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(rw, "half")
	})
	url := answering(t, mux, func(r *http.Request, status int, header http.Header, body []byte) []byte {
		if r.URL.Path != "/change" {
			return nil
		}
		require.Equal(t, []any{"/change?a=1", 202, "Bearer b"}, []any{r.URL.RequestURI(), status, header.Get("X-Kept")})
		return append([]byte("much newer than "), body...)
	})
	get := func(path string) (int, string, http.Header, error) {
		r, err := http.NewRequestWithContext(within(t), http.MethodGet, url+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer b")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, "", nil, err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), answer.Header, err
	}
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/change?a=1": {202, "much newer than old"}, "/keep": {418, "no\n"}, "/big": {200, big}, "/none": {204, ""}, "/absent": {404, "404 page not found\n"},
	} {
		status, body, header, err := get(path)
		require.NoError(t, err, path)
		require.Equal(t, want.status, status, path)
		require.True(t, want.body == body, "%s: %.80s", path, body)
		if path == "/change?a=1" {
			require.Equal(t, "19", header.Get("Content-Length"))
		}
	}
	_, _, _, err := get("/torn")
	require.Error(t, err, "a broken answer is broken for the client")
}
