package zmtp

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFramesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 600)
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Item {
			if rapid.Bool().Draw(t, "command") {
				return Item{Command: append([]byte{}, body.Draw(t, "body")...)}
			}
			return Item{Message: rapid.SliceOfN(body, 1, 4).Draw(t, "message")}
		}), 0, 8).Draw(t, "items")
		var wire []byte
		for _, it := range items {
			wire = it.Append(wire)
		}
		r := NewReader(iotest.OneByteReader(bytes.NewReader(wire)), Limits{})
		for _, want := range items {
			got, err := r.Next()
			require.NoError(t, err)
			require.Equal(t, want.Append(nil), got.Append(nil))
			require.Equal(t, want.Bytes(), got.Bytes())
		}
		_, err := r.Next()
		require.ErrorIs(t, err, io.EOF)
	})
}

func TestTornStreams(t *testing.T) {
	wire := AppendMessage(nil, [][]byte{[]byte("a"), bytes.Repeat([]byte("b"), 300)})
	for cut := 1; cut < len(wire); cut++ {
		_, err := NewReader(bytes.NewReader(wire[:cut]), Limits{}).Next()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut at %d", cut)
	}
}

func TestLimits(t *testing.T) {
	lim := Limits{FrameBytes: 10, Frames: 2, MessageBytes: 15}
	for name, c := range map[string]struct {
		msg  [][]byte
		what string
	}{
		"frame":   {[][]byte{make([]byte, 11)}, "bytes of a frame"},
		"frames":  {[][]byte{{}, {}, {}}, "frames of a message"},
		"message": {[][]byte{make([]byte, 10), make([]byte, 6)}, "bytes of a message"},
	} {
		_, err := NewReader(bytes.NewReader(AppendMessage(nil, c.msg)), lim).Next()
		var limit *LimitError
		require.ErrorAs(t, err, &limit, name)
		require.Equal(t, c.what, limit.What)
	}
}

func TestCommandWithinAMessage(t *testing.T) {
	wire := AppendFrame(nil, Frame{More: true, Body: []byte("a")})
	wire = appendCommand(wire, "PING", []byte{0, 1})
	wire = AppendFrame(wire, Frame{Body: []byte("b")})
	r := NewReader(bytes.NewReader(wire), Limits{})
	it, err := r.Next()
	require.NoError(t, err)
	require.Nil(t, it.Message)
	it, err = r.Next()
	require.NoError(t, err)
	require.Equal(t, text("a", "b"), it.Message)
}

func TestGreeting(t *testing.T) {
	want := Greeting{Major: 3, Minor: 1, Mechanism: "PLAIN", AsServer: true}
	wire := AppendGreeting(nil, want)
	require.Len(t, wire, GreetingBytes)
	got, err := ParseGreeting(wire)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.True(t, IsSignature(nil))
	require.True(t, IsSignature(wire[:1]))
	require.False(t, IsSignature([]byte("G")))
	require.False(t, IsSignature(bytes.Repeat([]byte{0xFF}, 10)))
	_, err = ParseGreeting(wire[:63])
	require.Error(t, err)
}

// FuzzReader: whatever comes in, the reader neither panics nor keeps more than
// its limits, and what it accepts it writes back to the same meaning.
func FuzzReader(f *testing.F) {
	f.Add(AppendMessage(nil, text("a", "bc")))
	f.Add(appendCommand(nil, "PING", []byte{0, 1, 2}))
	f.Add([]byte{flagLong, 0, 0, 0, 0, 0, 0, 1, 0})
	f.Add([]byte{flagLong | flagMore, 255, 0, 0, 0, 0, 0, 1, 0})
	lim := Limits{FrameBytes: 4096, Frames: 8, MessageBytes: 8192}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), lim)
		for {
			it, err := r.Next()
			if err != nil {
				var limit *LimitError
				var protocol *ProtocolError
				ok := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
					errors.As(err, &limit) || errors.As(err, &protocol)
				require.True(t, ok, "%v", err)
				return
			}
			require.LessOrEqual(t, it.Bytes(), lim.MessageBytes)
			require.LessOrEqual(t, len(it.Message), lim.Frames)
			again, err := NewReader(bytes.NewReader(it.Append(nil)), lim).Next()
			require.NoError(t, err)
			require.Equal(t, it.Append(nil), again.Append(nil))
			if it.Message == nil {
				_, _ = pong(it.Command)
				if _, data, err := splitCommand(it.Command); err == nil {
					_, _ = parseProperties(data)
				}
			}
		}
	})
}
