package zmtp

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// python is an interpreter that has pyzmq: the one that CONFORM_PYTHON names,
// or python3.
func python(t *testing.T) string {
	t.Helper()
	name := os.Getenv("CONFORM_PYTHON")
	if name == "" {
		name = "python3"
	}
	if err := exec.Command(name, "-c", "import zmq").Run(); err != nil {
		t.Skipf("no interop test against libzmq: %s cannot import zmq", name)
	}
	return name
}

// startPython runs a program; its first line of output says that it is ready.
func startPython(t *testing.T, ctx context.Context, code string, args ...string) (*bufio.Scanner, *exec.Cmd) {
	t.Helper()
	cmd := exec.CommandContext(ctx, python(t), append([]string{"-u", "-c", code}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return bufio.NewScanner(out), cmd
}

const pushProgram = `
import sys, zmq
s = zmq.Context().socket(zmq.PUSH)
s.setsockopt(zmq.HEARTBEAT_IVL, 20)
s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000)
s.connect("tcp://" + sys.argv[1])
for i in range(200):
    s.send_multipart([b"%d" % i, b"", b"x" * (i * 7)])
print("sent")
sys.stdin.read()
`

func TestPullFromLibzmq(t *testing.T) {
	ctx := testContext(t)
	pull := listen(t)
	startPython(t, ctx, pushProgram, pull.Addr())
	for i := range 200 {
		msg, err := pull.Recv(ctx)
		require.NoError(t, err)
		require.Equal(t, text(fmt.Sprint(i), "", strings.Repeat("x", i*7)), msg)
	}
	require.Zero(t, pull.Malformed())
}

const pullProgram = `
import sys, zmq
s = zmq.Context().socket(zmq.PULL)
s.setsockopt(zmq.HEARTBEAT_IVL, 20)
s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000)
print(s.bind_to_random_port("tcp://127.0.0.1"))
while True:
    m = s.recv_multipart()
    print(m[0].decode(), len(m), len(m[-1]))
    if m[0] == b"last":
        break
`

func TestPushToLibzmq(t *testing.T) {
	ctx := testContext(t)
	out, _ := startPython(t, ctx, pullProgram)
	require.True(t, out.Scan())
	push := Dial("127.0.0.1:"+out.Text(), DialOptions{})
	for i := range 200 {
		require.NoError(t, push.Send(ctx, text(fmt.Sprint(i), "", strings.Repeat("x", i*7))))
	}
	for i := range 200 {
		require.True(t, out.Scan())
		require.Equal(t, fmt.Sprint(i, 3, i*7), out.Text())
	}
	require.NoError(t, push.Send(ctx, text("last")))
	require.NoError(t, push.Close(ctx))
	require.True(t, out.Scan())
	require.Equal(t, "last 1 4", out.Text())
}
