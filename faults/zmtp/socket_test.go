package zmtp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func listen(t *testing.T) *Pull {
	t.Helper()
	p, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func text(parts ...string) [][]byte {
	var m [][]byte
	for _, p := range parts {
		m = append(m, []byte(p))
	}
	return m
}

func TestPushPullKeepsOrderAndFrames(t *testing.T) {
	ctx := testContext(t)
	pull := listen(t)
	push := Dial("tcp://"+pull.Addr(), DialOptions{HWM: 4})
	large := string(make([]byte, 100_000)) // a LONG frame
	const n = 500
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			if push.Send(ctx, text(fmt.Sprint(i), "", large[:i*200])) != nil {
				return
			}
		}
	})
	for i := range n {
		msg, err := pull.Recv(ctx)
		require.NoError(t, err)
		require.Len(t, msg, 3)
		require.Equal(t, fmt.Sprint(i), string(msg[0]))
		require.Empty(t, msg[1])
		require.Len(t, msg[2], i*200)
	}
	wg.Wait()
	require.NoError(t, push.Close(ctx))
}

func TestCloseWritesWhatIsQueued(t *testing.T) {
	ctx := testContext(t)
	pull := listen(t)
	push := Dial(pull.Addr(), DialOptions{})
	for i := range 100 {
		require.NoError(t, push.Send(ctx, text(fmt.Sprint(i))))
	}
	closed := make(chan error, 1)
	go func() { closed <- push.Close(ctx) }()
	for i := range 100 {
		msg, err := pull.Recv(ctx)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(msg[0]))
	}
	require.NoError(t, <-closed)
	require.ErrorIs(t, push.Send(ctx, text("x")), ErrClosed)
	require.NoError(t, push.Close(ctx), "a second Close has nothing left to do")
}

func TestSendBlocksAtTheHighWaterMark(t *testing.T) {
	push := Dial(deadAddr(t), DialOptions{HWM: 3})
	ctx := testContext(t)
	for range 3 {
		require.NoError(t, push.Send(ctx, text("x")))
	}
	ended, cancel := context.WithCancel(ctx)
	blocked := make(chan error, 1)
	go func() { blocked <- push.Send(ended, text("x")) }()
	cancel()
	require.ErrorIs(t, <-blocked, context.Canceled)

	refused := make(chan error, 1)
	go func() { refused <- push.Send(ctx, text("x")) }()
	err := push.Close(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "3 messages were not sent")
	require.ErrorIs(t, <-refused, ErrClosed)
}

// deadAddr is an address at which nobody listens.
func deadAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return ln.Addr().String()
}

func TestReconnects(t *testing.T) {
	ctx := testContext(t)
	addr := deadAddr(t)
	push := Dial(addr, DialOptions{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	for i := range 5 { // five lives of one peer
		require.NoError(t, push.Send(ctx, text(fmt.Sprint(i))))
		pull, err := Listen(addr)
		require.NoError(t, err)
		msg, err := pull.Recv(ctx)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(msg[0]))
		require.NoError(t, pull.Close())
		awaitGone(t, push)
	}
	require.NoError(t, push.Close(ctx))
}

// awaitGone waits until push is no longer connected: a message that the kernel
// takes for a dead peer is lost, which is what PUSH promises.
func awaitGone(t *testing.T, push *Push) {
	t.Helper()
	require.Eventually(t, func() bool { return push.connections.Load() == 0 }, 20*time.Second, time.Millisecond)
}

// However many messages a connection has, it gets every fourth turn of four.
func TestRecvIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pull := &Pull{ch: make(chan [][]byte), ctx: ctx}
		const senders, rounds = 4, 25
		for s := range senders {
			go func() {
				for range rounds {
					_ = pull.hand(text(fmt.Sprint(s)))
				}
			}()
		}
		for range rounds {
			got := map[string]bool{}
			for range senders {
				synctest.Wait() // until every sender has brought its next message
				msg, err := pull.Recv(ctx)
				require.NoError(t, err)
				got[string(msg[0])] = true
			}
			require.Len(t, got, senders)
		}
	})
}

func TestRecvEnds(t *testing.T) {
	pull, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = pull.Recv(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, pull.Close())
	_, err = pull.Recv(context.Background())
	require.ErrorIs(t, err, ErrClosed)
}

func TestListenRefuses(t *testing.T) {
	pull := listen(t)
	_, err := Listen(pull.Addr())
	require.Error(t, err)
	_, err = Listen("nonsense")
	require.Error(t, err)
}

func TestSendRefuses(t *testing.T) {
	ctx := testContext(t)
	push := Dial(deadAddr(t), DialOptions{Limits: Limits{FrameBytes: 10, Frames: 2, MessageBytes: 15}})
	defer push.Close(ctx)
	require.ErrorContains(t, push.Send(ctx, nil), "without frames")
	require.ErrorContains(t, push.Send(ctx, text("12345678901")), "bytes of a frame")
	require.ErrorContains(t, push.Send(ctx, text("", "", "")), "frames of a message")
	require.ErrorContains(t, push.Send(ctx, text("1234567890", "123456")), "bytes of a message")
}

// A peer that breaks the protocol loses its connection, and only that.
func TestMalformedPeers(t *testing.T) {
	ctx := testContext(t)
	pull := listen(t)
	hello := AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: "NULL"})
	ready := func(kind string) []byte {
		return appendCommand(nil, "READY", appendProperty(nil, "Socket-Type", kind))
	}
	cat := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	cases := map[string][]byte{
		"http":            append([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), make([]byte, 64)...),
		"version 2":       AppendGreeting(nil, Greeting{Major: 2, Mechanism: "NULL"}),
		"curve":           AppendGreeting(nil, Greeting{Major: 3, Mechanism: "CURVE"}),
		"message first":   cat(hello, AppendMessage(nil, text("x"))),
		"wrong socket":    cat(hello, ready("SUB")),
		"not READY":       cat(hello, appendCommand(nil, "HELLO", nil)),
		"no name":         cat(hello, AppendFrame(nil, Frame{Command: true})),
		"torn property":   cat(hello, appendCommand(nil, "READY", []byte{11, 'S'})),
		"property size":   cat(hello, appendCommand(nil, "READY", []byte{1, 'S', 255, 255, 255, 255})),
		"reserved flags":  cat(hello, ready("PUSH"), []byte{0x80, 0}),
		"command, MORE":   cat(hello, ready("PUSH"), []byte{flagCommand | flagMore, 0}),
		"a huge frame":    cat(hello, ready("PUSH"), []byte{flagLong, 255, 255, 255, 255, 255, 255, 255, 255}),
		"a PING too long": cat(hello, ready("PUSH"), appendCommand(nil, "PING", make([]byte, 19))),
		"an ERROR":        cat(hello, ready("PUSH"), appendCommand(nil, "ERROR", []byte{1, 'x'})),
	}
	for name, bytes := range cases {
		before := pull.Malformed()
		conn, err := net.Dial("tcp", pull.Addr())
		require.NoError(t, err)
		_, err = conn.Write(bytes)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return pull.Malformed() == before+1 }, 20*time.Second, time.Millisecond, name)
		require.NoError(t, conn.Close())
	}
	push := Dial(pull.Addr(), DialOptions{})
	require.NoError(t, push.Send(ctx, text("still here")))
	msg, err := pull.Recv(ctx)
	require.NoError(t, err)
	require.Equal(t, text("still here"), msg)
	require.NoError(t, push.Close(ctx))
}

func TestHeartbeatIsAnswered(t *testing.T) {
	pull := listen(t)
	conn, err := net.Dial("tcp", pull.Addr())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	r, err := handshake(conn, "PUSH", "PULL", Limits{}, 20*time.Second)
	require.NoError(t, err)
	_, err = conn.Write(appendCommand(nil, "PING", []byte("\x00\x0acontext")))
	require.NoError(t, err)
	f, err := r.ReadFrame()
	require.NoError(t, err)
	require.True(t, f.Command)
	require.Equal(t, "\x04PONGcontext", string(f.Body))
}

func TestHandshakeHasADeadline(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	go func() { _, _ = b.Read(make([]byte, 64)) }() // takes the greeting, says nothing
	_, err := handshake(a, "PUSH", "PULL", Limits{}, 10*time.Millisecond)
	require.ErrorContains(t, err, "timeout")
}
