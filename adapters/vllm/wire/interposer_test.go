package wire

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines/unknown"
	"conform/faults"
	"conform/faults/zmtp"
	"conform/spec"
)

// bench is a prefill worker, as far as sockets go, with an interposer before it.
type bench struct {
	t     *testing.T
	ctx   context.Context
	wire  *Interposer
	rank  *zmtp.Pull
	query string // what the bootstrap server answers

	mu     sync.Mutex
	faults []spec.Event
}

func newBench(t *testing.T, c Connector, plan string) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	b := &bench{t: t, ctx: ctx}
	p, err := faults.ParsePlan("plan", []byte(plan))
	require.NoError(t, err)
	engine, err := faults.NewEngine(p, 1, faults.EngineOptions{Record: func(e spec.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = append(b.faults, e)
	}})
	require.NoError(t, err)
	b.rank, err = zmtp.Listen("127.0.0.1:0")
	require.NoError(t, err)
	b.query = `{"0":{"engine_id":"prefill-0","worker_addr":{"0":{"0":"tcp://` + b.rank.Addr() + `"}}}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, b.query) }))
	side := server.Listener.Addr().String()
	if c == NIXL {
		side = b.rank.Addr()
	}
	b.wire, err = Open(Options{Connector: c, Engine: engine, Side: side, Prefill: "prefill-0", Decodes: []string{"decode-0", "decode-1"}})
	require.NoError(t, err)
	t.Cleanup(func() {
		engine.Close()
		require.NoError(t, b.wire.Close())
		require.NoError(t, b.rank.Close())
		server.Close()
	})
	return b
}

// ask is what the bootstrap server says to a decode worker.
func (b *bench) ask(decode, path string) string {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, "http://"+b.wire.Side(decode)+path, nil)
	require.NoError(b.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return string(body)
}

func (b *bench) dial(addr string) *zmtp.Push {
	p := zmtp.Dial(addr, zmtp.DialOptions{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	b.t.Cleanup(func() {
		ended, end := context.WithCancel(context.Background())
		end()
		_ = p.Close(ended)
	})
	return p
}

// rankOf is where a decode worker is led to.
func (b *bench) rankOf(decode string) string {
	b.t.Helper()
	_, addr, found := strings.Cut(b.ask(decode, "/query"), `"tcp://`)
	require.True(b.t, found)
	addr, _, _ = strings.Cut(addr, `"`)
	return addr
}

func (b *bench) passes(p *zmtp.Push, msg ...[]byte) {
	b.t.Helper()
	require.NoError(b.t, p.Send(b.ctx, msg))
	got, err := b.rank.Recv(b.ctx)
	require.NoError(b.t, err)
	require.Equal(b.t, msg, got, "nothing of a message is changed")
}

func TestMooncakeIsLedThroughTheProxies(t *testing.T) {
	b := newBench(t, Mooncake, "rules:\n  - name: lose\n    when: {signal: PULL, to: prefill-0.1, from: decode-0, nth: 2}\n    do: drop\n")
	b.wire.Rename("prefill-0", "prefill-0.1")
	b.wire.Rename("stranger", "x")
	addr := b.rankOf("decode-0")
	require.NotEqual(t, b.rank.Addr(), addr)
	require.Equal(t, addr, b.rankOf("decode-0"), "one socket, one proxy")
	require.NotEqual(t, addr, b.rankOf("decode-1"))
	require.Equal(t, b.query, b.ask("decode-0", "/register"), "nothing else is changed")

	p := b.dial(addr)
	b.passes(p, pull(t, one("kv-r-0009")))
	b.passes(p, result(t, 0, []string{asked}, nil)) // its request is known by its PULL
	require.NoError(t, p.Send(b.ctx, [][]byte{pull(t, one("kv-r-0009"))}))
	b.passes(p, result(t, 2, nil, nil))
	require.Equal(t, map[string]int{"PULL": 2, "FINISH": 1, "ERROR": 1}, b.wire.Seen())
	require.Empty(t, b.wire.Unknown())
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(t, b.faults, 1)
	f := b.faults[0]
	require.Equal(t, []string{"lose", "PULL:" + asked, "r-0001", "kv-r-0009"}, []string{f.Rule, f.Sig, f.Req, f.Handoff})
}

func TestNIXLHandshakePasses(t *testing.T) {
	b := newBench(t, NIXL, "rules: []")
	require.Empty(t, b.wire.Side("stranger"))
	p := b.dial(b.wire.Side("decode-1"))
	b.passes(p, []byte{}, packed(t, []any{[]byte(metaQuery), 0, 0}))
	b.passes(p, []byte{}, packed(t, map[string]any{"compatibility_hash": "x"}), packed(t, 1.0))
	require.Equal(t, map[string]int{"HANDSHAKE": 1, "HANDSHAKE_META": 1}, b.wire.Seen())
}

func TestUnknownMessagesPassAndAreReported(t *testing.T) {
	b := newBench(t, Mooncake, "rules: []")
	p := b.dial(b.rankOf("decode-0"))
	for range 2 {
		b.passes(p, []byte("hello"))
	}
	b.passes(p, []byte("a"), []byte("b"))
	conn, err := net.Dial("tcp", b.rankOf("decode-0"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	want := []unknown.Kind{
		{Where: "decode->prefill", Why: "a connection that is not ZMTP, or is encrypted", Count: 1},
		{Where: "mooncake", Tag: "<1 bytes>", Frames: 2, Why: "no row of the table", Count: 1},
		{Where: "mooncake", Tag: "<5 bytes>", Frames: 1, Why: "no row of the table", Count: 2},
	}
	require.Eventually(t, func() bool { return len(b.wire.Unknown()) == len(want) }, 20*time.Second, time.Millisecond)
	require.Equal(t, want, b.wire.Unknown())
}

func TestSocketsThatCannotBeInterposed(t *testing.T) {
	b := newBench(t, Mooncake, "rules: []")
	for _, b.query = range []string{`[]`, `{"0":{"worker_addr":{"0":{"0":"ipc:///x"}}}}`} {
		require.Equal(t, b.query, b.ask("decode-0", "/query"), "it passes as it is")
	}
	require.Len(t, b.wire.Unknown(), 2)
}

func TestRequestsAreForgotten(t *testing.T) {
	i := &Interposer{known: map[string]string{}}
	for n := range maxKnown + 1 {
		i.remember(string(rune(n)), "x")
	}
	require.Len(t, i.known, maxKnown)
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	engine, err := faults.NewEngine(&faults.Plan{}, 1, faults.EngineOptions{})
	require.NoError(t, err)
	defer engine.Close()
	for _, opt := range []Options{
		{},
		{Connector: NIXL, Engine: engine, Side: "127.0.0.1:1"},
		{Connector: "other", Engine: engine, Side: "127.0.0.1:1", Decodes: []string{"a"}},
		{Connector: NIXL, Engine: engine, Side: "127.0.0.1:1", Decodes: []string{"a", "a"}},
	} {
		_, err := Open(opt)
		require.Error(t, err)
	}
}
