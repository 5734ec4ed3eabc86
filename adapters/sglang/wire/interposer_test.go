package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"conform/faults"
	"conform/faults/zmtp"
	"conform/spec"

	"github.com/stretchr/testify/require"
)

// bench is a prefill worker of two ranks and decode workers of one rank each, as
// far as sockets go, with an interposer between them.
type bench struct {
	t         *testing.T
	ctx       context.Context
	engine    *faults.Engine
	wire      *Interposer
	bootstrap string
	ranks     []*zmtp.Pull          // of prefill
	decodes   map[string]*zmtp.Pull // by worker
	mode      string                // how the bootstrap server words rank_port

	mu     sync.Mutex
	faults []spec.Event
	hits   []string // requests that reached the bootstrap server
	pushes []*zmtp.Push
}

func newBench(t *testing.T, backend Backend, plan string, change ...func(*Options)) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	b := &bench{t: t, ctx: ctx, decodes: map[string]*zmtp.Pull{}}
	p, err := faults.ParsePlan("plan", []byte(plan))
	require.NoError(t, err)
	b.engine, err = faults.NewEngine(p, 1, faults.EngineOptions{Record: b.record})
	require.NoError(t, err)
	for range 2 {
		b.ranks = append(b.ranks, b.listen())
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.bootstrap = ln.Addr().String()
	server := &http.Server{Handler: b.server(), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	opt := Options{Backend: backend, Engine: b.engine, Bootstrap: b.bootstrap, Prefill: "prefill-0", Decodes: []string{"decode-0", "decode-1"}}
	for _, f := range change {
		f(&opt)
	}
	b.wire, err = Open(opt)
	require.NoError(t, err)
	for _, id := range opt.Decodes {
		b.decodes[id] = b.listen()
	}
	t.Cleanup(func() {
		b.engine.Close()
		require.NoError(t, b.wire.Close())
		ended, end := context.WithCancel(ctx)
		end()
		for _, p := range b.pushes {
			_ = p.Close(ended)
		}
		_ = server.Close()
		serving.Wait()
		cancel()
	})
	return b
}

func (b *bench) listen() *zmtp.Pull {
	b.t.Helper()
	p, err := zmtp.Listen("127.0.0.1:0")
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = p.Close() })
	return p
}

func (b *bench) record(ev spec.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, ev)
}

// server is the bootstrap server: it registers nothing and knows its two ranks.
func (b *bench) server() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.hits = append(b.hits, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), body))
		mode := b.mode
		b.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		rank, _ := strconv.Atoi(q.Get("target_tp_rank"))
		switch {
		case r.URL.Path != "/route" || r.Method != http.MethodGet:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"rank_port": 1, "rank_ip": "127.0.0.1"}`)
		case q.Get("target_tp_rank") == "-1":
			_, _ = io.WriteString(w, `{"attn_cp_size": 1, "pp_size":1, "new_key":[1, 2]}`)
		case rank >= len(b.ranks):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"rank_ip": "127.0.0.1", "rank_port": 1}`)
		default:
			_, port, _ := net.SplitHostPort(b.ranks[rank].Addr())
			switch mode {
			case "string":
				port = strconv.Quote(port)
			case "odd":
				port = "[]"
			}
			_, _ = fmt.Fprintf(w, `{"rank_ip": "127.0.0.1", "rank_port": %s, "new_key": {"a": 1e3}}`, port)
		}
	})
	return mux
}

// ask sends the bootstrap server a request as a decode worker does.
func (b *bench) ask(decode, method, path, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(b.ctx, method, "http://"+b.wire.Bootstrap(decode)+path, strings.NewReader(body))
	require.NoError(b.t, err)
	r.Header.Set("Authorization", "Bearer key")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// route asks where a prefill rank listens.
func (b *bench) route(decode string, rank int) (status int, fields map[string]json.RawMessage) {
	b.t.Helper()
	status, body, err := b.ask(decode, http.MethodGet, fmt.Sprintf("/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=%d&target_pp_rank=0", rank), "")
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal([]byte(body), &fields), body)
	return status, fields
}

// connect is a decode worker's socket to a prefill rank.
func (b *bench) connect(decode string, rank int) *zmtp.Push {
	b.t.Helper()
	_, fields := b.route(decode, rank)
	port := strings.Trim(string(fields["rank_port"]), `"`)
	require.NotEqual(b.t, portOf(b.t, b.ranks[rank].Addr()), port)
	return b.dial("127.0.0.1:" + port)
}

func (b *bench) dial(addr string) *zmtp.Push {
	p := zmtp.Dial(addr, zmtp.DialOptions{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	b.pushes = append(b.pushes, p)
	return p
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return port
}

func (b *bench) send(p *zmtp.Push, texts ...string) {
	b.t.Helper()
	require.NoError(b.t, p.Send(b.ctx, frames(texts...)))
}

func (b *bench) recv(p *zmtp.Pull) []string {
	b.t.Helper()
	msg, err := p.Recv(b.ctx)
	require.NoError(b.t, err)
	texts := make([]string, len(msg))
	for i, f := range msg {
		texts[i] = string(f)
	}
	return texts
}

// abort is an ABORT as the decode worker would write it.
func (b *bench) abort(decode string, room int) []string {
	return []string{"ABORT", strconv.Itoa(room), "127.0.0.1", portOf(b.t, b.decodes[decode].Addr()), "1"}
}

func (b *bench) metadata(decode string, room int) []string {
	return []string{strconv.Itoa(room), "127.0.0.1", portOf(b.t, b.decodes[decode].Addr()), "s:1", pages(3, 4), "0", "", "1", "0", ""}
}

// arrives receives a message at a prefill rank, checks that only its reply
// address has changed, and answers that with a socket to the new one.
func (b *bench) arrives(rank, portFrame int, want []string) *zmtp.Push {
	b.t.Helper()
	got := b.recv(b.ranks[rank])
	require.Len(b.t, got, len(want))
	require.NotEqual(b.t, want[portFrame], got[portFrame])
	back := b.dial(net.JoinHostPort(got[portFrame-1], got[portFrame]))
	got[portFrame] = want[portFrame]
	require.Equal(b.t, want, got)
	return back
}

// last is the last request that reached the bootstrap server.
func (b *bench) last() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.hits) == 0 {
		return ""
	}
	return b.hits[len(b.hits)-1]
}

// word sets how the bootstrap server words rank_port.
func (b *bench) word(mode string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = mode
}

func (b *bench) events() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []string
	for _, ev := range b.faults {
		list = append(list, fmt.Sprintf("%s %s %s %s %s", ev.Rule, ev.Do, ev.Sig, ev.Handoff, ev.Req))
	}
	return list
}

// Messages go both ways through the interposer, though only the answer of the
// bootstrap server is changed and each end believes that it speaks to the other.
func TestBothWays(t *testing.T) {
	b := newBench(t, Mooncake, "rules: []")
	push := b.connect("decode-0", 0)
	meta := b.metadata("decode-0", 7)
	b.send(push, meta...)
	back := b.arrives(0, 2, meta)
	b.send(back, "7", "4", "0")
	require.Equal(t, []string{"7", "4", "0"}, b.recv(b.decodes["decode-0"]))
	b.send(push, b.abort("decode-0", 7)...)
	again := b.arrives(0, 3, b.abort("decode-0", 7))
	b.send(again, "ABORT_ACK", "7", "0", "1")
	require.Equal(t, []string{"ABORT_ACK", "7", "0", "1"}, b.recv(b.decodes["decode-0"]))
	require.Empty(t, b.wire.Unknown())
	require.Equal(t, map[string]int{"METADATA": 1, "STATUS/Success": 1, "ABORT": 1, "ABORT_ACK/4": 1}, b.wire.Seen())
}

// Two ranks of prefill see one address for one decode rank, and different ones
// for two decode ranks: prefill tells its peers apart by it.
func TestRanks(t *testing.T) {
	b := newBench(t, NIXL, "rules: []")
	reply := map[string]string{}
	for _, decode := range []string{"decode-0", "decode-1"} {
		for rank := range b.ranks {
			push := b.connect(decode, rank)
			b.send(push, b.abort(decode, 7)...)
			got := b.recv(b.ranks[rank])
			if reply[decode] == "" {
				reply[decode] = got[3]
			}
			require.Equal(t, reply[decode], got[3])
			// asked again, the answer is the same
			_, first := b.route(decode, rank)
			_, second := b.route(decode, rank)
			require.Equal(t, first, second)
		}
	}
	require.NotEqual(t, reply["decode-0"], reply["decode-1"])
}

func TestPointsSayWhoAndWhat(t *testing.T) {
	b := newBench(t, Mooncake, `
rules:
  - {name: other, when: {signal: ABORT, from: decode-1}, do: drop}
  - {name: rank, when: {signal: ABORT, n: 0}, do: drop}
  - {name: abort, when: {signal: ABORT, from: decode-0, to: prefill-0, req: r-0007, n: 1}, do: duplicate}
  - {name: ack, when: {signal: ABORT_ACK, from: prefill-0, to: "decode-0#1", handoff: room-7, n: 1}, do: duplicate}
  - {name: weak, when: {signal: ABORT_ACK/2}, do: drop}`)
	b.wire.Name(7, "r-0001")
	b.wire.Name(7, "r-0007")
	push := b.connect("decode-0", 1)
	b.send(push, b.abort("decode-0", 7)...)
	back := b.arrives(1, 3, b.abort("decode-0", 7))
	b.arrives(1, 3, b.abort("decode-0", 7))
	require.True(t, b.wire.Rename("decode-0", "decode-0#1"))
	require.False(t, b.wire.Rename("decode-0#1", "decode-0#2"), "it is known by the name of the options")
	b.send(back, "ABORT_ACK", "7")
	b.send(back, "ABORT_ACK", "7", "1", "1")
	for range 2 {
		require.Equal(t, []string{"ABORT_ACK", "7", "1", "1"}, b.recv(b.decodes["decode-0"]))
	}
	require.ElementsMatch(t, []string{
		"abort duplicate ABORT:7:1 room-7 r-0007", "weak drop ABORT_ACK/2:7 room-7 r-0007", "ack duplicate ABORT_ACK/4:7:1:1 room-7 r-0007",
	}, b.events())
}

func TestHoldDropDuplicate(t *testing.T) {
	b := newBench(t, Mooncake, `
rules:
  - {name: held, when: {signal: METADATA}, do: reorder, behind: {signal: ABORT, same: handoff}, limit: 1m}
  - {name: failed, when: {signal: STATUS/Failed}, do: drop}
  - {name: stale, when: {signal: ABORT_ACK}, do: duplicate, until: {signal: STATUS/Success}, limit: 1m}`)
	push := b.connect("decode-0", 0)
	b.send(push, b.metadata("decode-0", 7)...)
	b.send(push, b.abort("decode-0", 7)...)
	back := b.arrives(0, 3, b.abort("decode-0", 7))
	b.arrives(0, 2, b.metadata("decode-0", 7))
	b.send(back, "7", "0", "0")
	b.send(back, "ABORT_ACK", "7", "0")
	require.Equal(t, []string{"ABORT_ACK", "7", "0"}, b.recv(b.decodes["decode-0"]))
	b.send(back, "8", "4", "0")
	got := map[string]int{}
	for range 2 {
		got[strings.Join(b.recv(b.decodes["decode-0"]), " ")]++
	}
	require.Equal(t, map[string]int{"ABORT_ACK 7 0": 1, "8 4 0": 1}, got)
}

func TestUnknownPassesUntouched(t *testing.T) {
	b := newBench(t, Mooncake, "rules: [{name: all, when: {signal: '*'}, do: drop}]")
	push := b.connect("decode-0", 0)
	odd := [][]string{
		{"HELLO", "127.0.0.1", "7000"},
		{"HELLO", "127.0.0.1", "7001"},
		{"12345", "x"},
		{"ABORT_ACK", "7", "0", "1"}, // what only prefill sends
		{"ABORT", "7", "127.0.0.1", "0"},
		{strings.Repeat("\x00", 1000)},
	}
	for _, msg := range odd {
		b.send(push, msg...)
		require.Equal(t, msg, b.recv(b.ranks[0]))
	}
	require.Equal(t, []Unknown{
		{Where: "decode->prefill", Tag: "<1000 bytes>", Frames: 1, Why: "no row of the table", Count: 1},
		{Where: "decode->prefill", Tag: "<number>", Frames: 2, Why: "no row of the table", Count: 1},
		{Where: "decode->prefill", Tag: "ABORT", Frames: 4, Why: "port: 0 is none", Count: 1},
		{Where: "decode->prefill", Tag: "ABORT_ACK", Frames: 4, Why: "goes the wrong way", Count: 1},
		{Where: "decode->prefill", Tag: "HELLO", Frames: 3, Why: "no row of the table", Count: 2},
	}, b.wire.Unknown())
	require.Empty(t, b.events())
}

func TestForeignConnectionIsReported(t *testing.T) {
	b := newBench(t, Mooncake, "rules: []")
	_, fields := b.route("decode-0", 0)
	conn, err := net.Dial("tcp", "127.0.0.1:"+string(fields["rank_port"]))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(b.wire.Unknown()) == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, "a connection that is not ZMTP, or is encrypted", b.wire.Unknown()[0].Why)
}

func TestRoomsAreBounded(t *testing.T) {
	i := &Interposer{rooms: map[uint64]string{}}
	for n := range uint64(maxRooms + 1) {
		i.Name(n, "r")
	}
	i.Name(maxRooms, "again")
	require.Len(t, i.rooms, maxRooms)
	require.Len(t, i.order, maxRooms)
	require.NotContains(t, i.rooms, uint64(0))
	require.Equal(t, "again", i.rooms[maxRooms])
}

// All but the place of a rank goes through as it is, both ways.
func TestBootstrapPasses(t *testing.T) {
	b := newBench(t, Mooncake, "rules: []")
	for _, c := range []struct {
		method, path, body, want string
		status                   int
	}{
		{http.MethodPut, "/route", `{"rank_port": 5}`, `{"rank_port": 1, "rank_ip": "127.0.0.1"}`, 202},
		{http.MethodPost, "/query_dp_ranks", `{"bootstrap_rooms": [7]}`, `{"rank_port": 1, "rank_ip": "127.0.0.1"}`, 202},
		{http.MethodGet, "/health", "", `{"rank_port": 1, "rank_ip": "127.0.0.1"}`, 202},
		{http.MethodGet, "/route?target_tp_rank=-1", "", `{"attn_cp_size": 1, "pp_size":1, "new_key":[1, 2]}`, 200},
		{http.MethodGet, "/route?target_tp_rank=9", "", `{"rank_ip": "127.0.0.1", "rank_port": 1}`, 404},
	} {
		status, body, err := b.ask("decode-0", c.method, c.path, c.body)
		require.NoError(t, err)
		require.Equal(t, []any{c.status, c.want}, []any{status, body}, c.path)
		require.Equal(t, fmt.Sprintf("%s %s Bearer key %s", c.method, c.path, c.body), b.last())
	}
	require.Empty(t, b.wire.Unknown())
}

func TestRouteKeepsTypesAndKeys(t *testing.T) {
	b := newBench(t, Mooncake, "rules: []")
	_, fields := b.route("decode-0", 0)
	require.JSONEq(t, `{"a": 1e3}`, string(fields["new_key"]))
	require.Equal(t, `"127.0.0.1"`, string(fields["rank_ip"]))
	_, err := strconv.Atoi(string(fields["rank_port"]))
	require.NoError(t, err)
	b.word("string")
	_, asText := b.route("decode-0", 0)
	require.Equal(t, strconv.Quote(string(fields["rank_port"])), string(asText["rank_port"]))
	b.word("odd")
	_, odd := b.route("decode-0", 0)
	require.Equal(t, "[]", string(odd["rank_port"]), "what cannot be led through stays, and is on record")
	require.Equal(t, []Unknown{{Where: "bootstrap", Tag: "GET /route", Why: `the rank is not interposed: rank_port is "[]"`, Count: 1}}, b.wire.Unknown())
}

// The heartbeat is a point like any other, for one decode worker alone too.
func TestHeartbeatFaults(t *testing.T) {
	b := newBench(t, Mooncake, `
rules:
  - {name: dead, when: {http: "GET /health", from: decode-0, to: prefill-0, nth: 1}, do: fail}
  - {name: gone, when: {http: "GET /health", from: decode-1}, do: drop}`)
	status, _, err := b.ask("decode-0", http.MethodGet, "/health", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	_, _, err = b.ask("decode-1", http.MethodGet, "/health", "")
	require.ErrorIs(t, err, io.EOF)
	require.Empty(t, b.last())
	_, fields := b.route("decode-0", 0)
	require.NotEmpty(t, fields["rank_port"])
}

// Either end may come back: prefill with new sockets and a new bootstrap server,
// decode with a new socket. A reconnecting PUSH finds its peer again.
func TestRestarts(t *testing.T) {
	b := newBench(t, Mooncake, "rules: []")
	push := b.connect("decode-0", 0)
	meta := b.metadata("decode-0", 7)
	b.send(push, meta...)
	back := b.arrives(0, 2, meta)
	b.send(back, "7", "4", "0")
	b.recv(b.decodes["decode-0"])

	// decode's socket closes and opens again at the same place
	addr := b.decodes["decode-0"].Addr()
	require.NoError(t, b.decodes["decode-0"].Close())
	var err error
	b.decodes["decode-0"], err = zmtp.Listen(addr)
	require.NoError(t, err)
	b.untilReceived(back, b.decodes["decode-0"], "8", "4", "0")

	// prefill's rank comes back elsewhere
	require.NoError(t, b.ranks[0].Close())
	b.ranks[0] = b.listen()
	b.wire.SetBootstrap(b.bootstrap)
	push = b.connect("decode-0", 0)
	b.send(push, b.abort("decode-0", 9)...)
	b.arrives(0, 3, b.abort("decode-0", 9))

	// decode comes back elsewhere
	b.decodes["decode-0"] = b.listen()
	b.send(push, b.abort("decode-0", 10)...)
	back = b.arrives(0, 3, b.abort("decode-0", 10))
	b.send(back, "ABORT_ACK", "10")
	require.Equal(t, []string{"ABORT_ACK", "10"}, b.recv(b.decodes["decode-0"]))
}

// untilReceived sends until one arrives: what the kernel had taken for a socket
// that is gone is lost.
func (b *bench) untilReceived(push *zmtp.Push, pull *zmtp.Pull, texts ...string) {
	b.t.Helper()
	stop, cancel := context.WithCancel(b.ctx)
	var sending sync.WaitGroup
	sending.Go(func() {
		for stop.Err() == nil {
			_ = push.Send(stop, frames(texts...))
			time.Sleep(time.Millisecond)
		}
	})
	require.Equal(b.t, texts, b.recv(pull))
	cancel()
	sending.Wait()
}

func TestOpenRefuses(t *testing.T) {
	p, err := faults.ParsePlan("plan", []byte("rules: []"))
	require.NoError(t, err)
	e, err := faults.NewEngine(p, 1, faults.EngineOptions{})
	require.NoError(t, err)
	defer e.Close()
	for why, opt := range map[string]Options{
		"needs an engine":      {Backend: Mooncake, Bootstrap: "127.0.0.1:1", Decodes: []string{"d"}},
		"a bootstrap server":   {Backend: Mooncake, Engine: e, Decodes: []string{"d"}},
		"a decode worker":      {Backend: Mooncake, Engine: e, Bootstrap: "127.0.0.1:1"},
		`of backend "fake"`:    {Backend: "fake", Engine: e, Bootstrap: "127.0.0.1:1", Decodes: []string{"d"}},
		`"d" is named twice`:   {Backend: NIXL, Engine: e, Bootstrap: "127.0.0.1:1", Decodes: []string{"d", "d"}},
		`"p-0" is named twice`: {Backend: NIXL, Engine: e, Bootstrap: "127.0.0.1:1", Prefill: "p-0", Decodes: []string{"p-0"}},
	} {
		_, err := Open(opt)
		require.ErrorContains(t, err, why)
	}
}

func TestAfterClose(t *testing.T) {
	b := newBench(t, Mooncake, "rules: []")
	require.Empty(t, b.wire.Bootstrap("decode-9"))
	b.connect("decode-0", 0)
	b.engine.Close()
	require.NoError(t, b.wire.Close())
	_, _, err := b.ask("decode-0", http.MethodGet, "/health", "")
	require.Error(t, err)
	_, err = b.wire.sides["decode-0"].toRank("127.0.0.1:1", 0)
	require.ErrorContains(t, err, "closed")
}

func TestRankNumbers(t *testing.T) {
	i := &Interposer{sizes: sizes{1, 1}}
	i.learn(map[string]json.RawMessage{"attn_cp_size": json.RawMessage("2"), "pp_size": json.RawMessage("3")})
	i.learn(map[string]json.RawMessage{"attn_cp_size": json.RawMessage("0"), "pp_size": json.RawMessage(`"x"`)})
	for query, want := range map[string]int64{
		"target_tp_rank=1&target_pp_rank=2&prefill_cp_rank=1": 1*6 + 2*2 + 1,
		"target_tp_rank=0&target_pp_rank=0&prefill_cp_rank=0": 0,
		"target_tp_rank=-1&target_pp_rank=0":                  -1,
		"":                                                    -1,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h/route?"+query, nil)
		require.NoError(t, err)
		require.Equal(t, want, i.rankOf(r.URL.Query()), query)
	}
}

// A rule may be told ids that the caller makes, of a message and its rank.
func TestOwnIDs(t *testing.T) {
	b := newBench(t, Mooncake, `rules: [{name: d, when: {signal: ABORT, sig: "mine/7/1"}, do: duplicate}]`, func(o *Options) {
		o.Sig = func(m *Message, rank int64) string { return fmt.Sprintf("mine/%d/%d", m.Room, rank) }
	})
	push := b.connect("decode-1", 1)
	b.send(push, b.abort("decode-1", 7)...)
	b.arrives(1, 3, b.abort("decode-1", 7))
	b.arrives(1, 3, b.abort("decode-1", 7))
}
