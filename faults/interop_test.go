package faults

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const libzmqProgram = `
import sys, threading, zmq
ctx = zmq.Context()
proxied, direct = sys.argv[1], sys.argv[2]
kind = sys.argv[3]
a, b = {"push": (zmq.PUSH, zmq.PULL), "dealer": (zmq.DEALER, zmq.ROUTER)}[kind]
server = ctx.socket(b)
client = ctx.socket(a)
for s in (server, client):
    s.setsockopt(zmq.HEARTBEAT_IVL, 20)
    s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000)
    s.setsockopt(zmq.LINGER, 0)
    s.setsockopt(zmq.RCVTIMEO, 20000)
if kind == "dealer":
    client.setsockopt(zmq.IDENTITY, b"me")
server.bind("tcp://" + direct)
client.connect("tcp://" + proxied)
for text in (b"A 1", b"D 2", b"H 3", b"T 4", b"A 5"):
    client.send_multipart([text, b"", b"x" * 1000])
got = [server.recv_multipart() for _ in range(5)]
if kind == "dealer":
    assert all(m[0] == b"me" for m in got), got
    server.send_multipart([b"me", b"A back", b"more"])
    assert client.recv_multipart() == [b"A back", b"more"]
print(",".join(m[-3].decode() for m in got))
`

// Real ZeroMQ sockets on both sides of the proxy: handshake, heartbeats and
// identities survive it, and the plan acts as it says.
func TestZMTPProxyBetweenLibzmq(t *testing.T) {
	python := os.Getenv("CONFORM_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import zmq").Run() != nil {
		t.Skipf("no interop test against libzmq: %s cannot import zmq", python)
	}
	for _, kind := range []string{"push", "dealer"} {
		e := engine(t, `
rules:
  - {name: d, when: {signal: D}, do: drop}
  - {name: t, when: {signal: T}, do: duplicate}
  - {name: h, when: {signal: H}, do: hold, until: {signal: A}, limit: 1m}`, 1)
		free, err := NewHTTPProxy(HTTPProxyOptions{Engine: e.Engine}) // only for its free port
		require.NoError(t, err)
		direct := free.Addr()
		require.NoError(t, free.Close())
		p, err := NewZMTPProxy(ZMTPProxyOptions{Upstream: direct, From: "prefill", To: "decode", Decode: decodeText, Engine: e.Engine})
		require.NoError(t, err)
		cmd := exec.CommandContext(within(t), python, "-c", libzmqProgram, p.Addr(), direct, kind)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Run(), errs.String())
		require.Equal(t, "A 1,T 4,T 4,A 5,H 3", strings.TrimSpace(out.String()))
		require.Zero(t, p.Unknown())
		require.NoError(t, p.Close())
		e.Close()
	}
}
