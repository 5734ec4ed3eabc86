package wire

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"conform/spec"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func frames(texts ...string) [][]byte {
	msg := make([][]byte, len(texts))
	for i, s := range texts {
		msg[i] = []byte(s)
	}
	return msg
}

// pages is a METADATA's list of page numbers as it goes over the wire.
func pages(numbers ...byte) string {
	var b strings.Builder
	for _, n := range numbers {
		b.Write([]byte{n, 0, 0, 0})
	}
	return b.String()
}

// captured is one message of a run of the real engine, with what was read off it
// by hand.
type captured struct {
	Engine    string
	Backend   Backend
	Direction Direction
	Frames    []string // hexadecimal
	Signal    string
	Sig       string
	Pages     []int32
	ReplyPort int
}

func (c captured) message(t testing.TB) [][]byte {
	t.Helper()
	var msg [][]byte
	for _, f := range c.Frames {
		b, err := hex.DecodeString(f)
		require.NoError(t, err)
		msg = append(msg, b)
	}
	return msg
}

func corpus(t testing.TB) []captured {
	t.Helper()
	f, err := os.Open("testdata/captured.jsonl")
	require.NoError(t, err)
	defer f.Close()
	var all []captured
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var c captured
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		all = append(all, c)
	}
	require.NotEmpty(t, all)
	return all
}

func TestCapturedMessages(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range corpus(t) {
		name := fmt.Sprintf("%s %s %s", c.Engine, c.Backend, c.Signal)
		m, ok := Decode(c.Backend, c.message(t))
		require.True(t, ok, name)
		require.Equal(t, c.Signal, m.Signal, name)
		require.Equal(t, c.Direction, m.Direction, name)
		require.Equal(t, c.Sig, SigOf(&m), name)
		require.Equal(t, c.Pages, m.Pages, name)
		require.Equal(t, c.ReplyPort, m.ReplyPort, name)
		seen[c.Engine+" "+string(c.Backend)+" "+c.Signal] = true
	}
	for _, want := range []string{
		"0.5.18 mooncake ABORT_ACK/2", "0.5.20 mooncake ABORT_ACK/2", "0.5.20 mooncake ABORT_ACK/3", "0.5.23 mooncake ABORT_ACK/2",
		"0.5.23 mooncake ABORT_ACK/4", "0.5.23 nixl STATUS/Success", "0.5.20 nixl ABORT_ACK/3", "0.5.18 nixl METADATA",
	} {
		require.True(t, seen[want], "the corpus has no %s", want)
	}
}

func TestFields(t *testing.T) {
	none := Message{Rank: -1, Generation: -1, Status: -1, Aux: -1, Prefix: -1, IPFrame: -1, PortFrame: -1}
	with := func(d Direction, signal string, room uint64, set func(*Message)) Message {
		m := none
		m.Direction, m.Signal, m.Room, m.HasRoom = d, signal, room, true
		if set != nil {
			set(&m)
		}
		return m
	}
	reply := func(at int) func(*Message) {
		return func(m *Message) { m.ReplyIP, m.ReplyPort, m.IPFrame, m.PortFrame = "10.0.0.1", 7000, at, at+1 }
	}
	metadata := func(at int) func(*Message) {
		return func(m *Message) {
			reply(at)(m)
			m.Session, m.Pages, m.Aux, m.Prefix = "s:1", []int32{3, 4, 9}, 5, 32
		}
	}
	for _, c := range []struct {
		backend Backend
		msg     [][]byte
		want    Message
	}{
		{Mooncake, frames("7", "10.0.0.1", "7000", "s:1", pages(3, 4, 9), "5", "", "1", "32", ""), with(ToPrefill, "METADATA", 7, metadata(1))},
		{NIXL, frames("NixlMsgGuard", "7", "10.0.0.1", "7000", "s:1", pages(3, 4, 9), "5", "1", "", "32", "0"), with(ToPrefill, "METADATA", 7, metadata(2))},
		{Mooncake, frames("7", "10.0.0.1", "7000", "s:1", "", "", "", "1", "0", ""), with(ToPrefill, "METADATA/dummy", 7, func(m *Message) {
			reply(1)(m)
			m.Session, m.Prefix = "s:1", 0
		})},
		{NIXL, frames("NixlMsgGuard", "7", "10.0.0.1", "7000", "a", "", "None", "1", "", "0", "1"), with(ToPrefill, "METADATA/dummy", 7, func(m *Message) {
			reply(2)(m)
			m.Session, m.Prefix = "a", 0
		})},
		// decode has the whole prompt: no page, but the slot is granted
		{NIXL, frames("NixlMsgGuard", "7", "10.0.0.1", "7000", "a", "", "5", "1", "", "64", "0"), with(ToPrefill, "METADATA", 7, func(m *Message) {
			reply(2)(m)
			m.Session, m.Prefix, m.Aux = "a", 64, 5
		})},
		{Mooncake, frames("ABORT", "7"), with(ToPrefill, "ABORT", 7, nil)},
		{NIXL, frames("ABORT", "7", "10.0.0.1", "7000"), with(ToPrefill, "ABORT", 7, reply(2))},
		{Mooncake, frames("ABORT", "7", "10.0.0.1", "7000", "3"), with(ToPrefill, "ABORT", 7, func(m *Message) { reply(2)(m); m.Generation = 3 })},
		{NIXL, frames("BOOTSTRAP", "7", "10.0.0.1", "7000"), with(ToPrefill, "BOOTSTRAP", 7, reply(2))},
		{Mooncake, frames("ABORT_ACK", "18446744073709551615"), with(ToDecode, "ABORT_ACK/2", 1<<64-1, nil)},
		{Mooncake, frames("ABORT_ACK", "7", "1"), with(ToDecode, "ABORT_ACK/3", 7, func(m *Message) { m.Rank = 1 })},
		{NIXL, frames("ABORT_ACK", "7", "0", "2"), with(ToDecode, "ABORT_ACK/4", 7, func(m *Message) { m.Rank, m.Generation = 0, 2 })},
		{Mooncake, frames("7", "4", "1"), with(ToDecode, "STATUS/Success", 7, func(m *Message) { m.Status, m.Rank = 4, 1 })},
		{Mooncake, frames("7", "0", "0", "why"), with(ToDecode, "STATUS/Failed", 7, func(m *Message) { m.Status, m.Rank, m.Reason = 0, 0, "why" })},
		{NIXL, frames("KV_STATUS", "7", "2", "0", ""), with(ToDecode, "STATUS/WaitingForInput", 7, func(m *Message) { m.Status, m.Rank = 2, 0 })},
		{Mooncake, frames("7", "17", "0"), with(ToDecode, "STATUS/17", 7, func(m *Message) { m.Status, m.Rank = 17, 0 })},
		{Mooncake, frames("AUX_DATA", "7", "0", "5", "\x00\x00\x00\x01", "x"), with(ToDecode, "AUX_DATA", 7, func(m *Message) { m.Aux = 5 })},
		{NIXL, frames("CHUNK_READY", "7", "0", "0", "4", "a", "0"), with(ToDecode, "CHUNK_READY", 7, func(m *Message) { m.Session, m.Rank = "a", 0 })},
	} {
		m, ok := Decode(c.backend, c.msg)
		require.True(t, ok, "%q", c.msg)
		require.Equal(t, c.want, m, "%q", c.msg)
	}
}

func TestWhatIsNotUnderstood(t *testing.T) {
	for _, c := range []struct {
		backend Backend
		msg     [][]byte
		why     string
	}{
		{Mooncake, nil, "no row of the table"},
		{Mooncake, frames(""), "no row of the table"},
		{Mooncake, frames("ABORT"), "no row of the table"},
		{Mooncake, frames("ABORT", "7", "10.0.0.1"), "no row of the table"},
		{Mooncake, frames("ABORT", "7", "10.0.0.1", "7000", "1", "more"), "no row of the table"},
		{Mooncake, frames("7", "4"), "no row of the table"},
		{Mooncake, frames("KV_STATUS", "7", "4", "0", ""), "no row of the table"},
		{NIXL, frames("7", "4", "0"), "no row of the table"},
		{NIXL, frames("NixlMsgGuard", "7", "4", "0"), "no row of the table"},
		{"mori", frames("ABORT", "7", "10.0.0.1", "7000"), "no row of the table"},
		{Mooncake, frames("ABORT", "seven"), "room: not a number"},
		{Mooncake, frames("ABORT", "-7"), "room: not a number"},
		{Mooncake, frames("ABORT", "18446744073709551616"), "room: not a number"},
		{Mooncake, frames("ABORT", "7", "10.0.0.1", "0"), "port: 0 is none"},
		{Mooncake, frames("ABORT", "7", "10.0.0.1", "65536"), "port: 65536 is none"},
		{Mooncake, frames("ABORT", "7", "", "7000"), "ip: empty"},
		{Mooncake, frames("ABORT", "7", "\xff", "7000"), "ip: not a short line of ASCII"},
		{Mooncake, frames("ABORT", "7", strings.Repeat("1", 256), "7000"), "ip: not a short line of ASCII"},
		{Mooncake, frames("ABORT", "7", "10.0.0.1", "7000", ""), "generation: not a number"},
		{Mooncake, frames("ABORT_ACK", "7", "-1"), "rank: not a number"},
		{Mooncake, frames("7", "9223372036854775808", "0"), "status: not a number"},
		{Mooncake, frames("7", "10.0.0.1", "7000", "s", "odd", "5", "", "1", "0", ""), "pages: 3 bytes are no whole numbers"},
		{Mooncake, frames("7", "10.0.0.1", "7000", "s", strings.Repeat("x", 4*maxPages+4), "5", "", "1", "0", ""), "pages: 1048577 are more than 1048576"},
		{Mooncake, frames("7", "10.0.0.1", "7000", "s", pages(1), "", "", "1", "0", ""), "aux: not a number"},
		{NIXL, frames("NixlMsgGuard", "None", "10.0.0.1", "7000", "a", pages(1), "0", "1", "", "0", "0"), "room: not a number"},
		{NIXL, frames("NixlMsgGuard", "7", "10.0.0.1", "7000", "a", pages(1), "0", "1", "", "0", "no"), "dummy: not a number"},
	} {
		_, err := decode(c.backend, c.msg)
		require.EqualError(t, err, c.why, "%.200q", c.msg)
		_, ok := Decode(c.backend, c.msg)
		require.False(t, ok)
	}
}

// example makes a message of n frames that fits a row.
func example(r Row, n int) [][]byte {
	var msg [][]byte
	for _, w := range strings.Fields(r.Layout)[:n] {
		text, fixed := strings.CutPrefix(w, "=")
		switch w {
		case "room", "rank", "generation", "prefix", "aux", "port", "status":
			text = "4"
		case "dummy":
			text = "0"
		case "ip":
			text = "127.0.0.1"
		case "pages":
			text = pages(1, 2)
		default:
			if !fixed {
				text = "x"
			}
		}
		msg = append(msg, []byte(text))
	}
	return msg
}

// Each row is found by its own messages: no other row stands before it.
func TestEveryRowIsFound(t *testing.T) {
	for _, r := range Rows() {
		require.NotEmpty(t, r.Sent)
		for _, n := range r.Frames() {
			m, ok := Decode(r.Backend, example(r, n))
			require.True(t, ok, "%+v", r)
			require.Equal(t, r.Direction, m.Direction)
			kind, _, _ := strings.Cut(m.Signal, "/")
			want, _, _ := strings.Cut(r.Signal, "/")
			require.Equal(t, want, kind)
			require.Equal(t, m.PortFrame >= 0, strings.Contains(r.Layout, " port"), "%+v", r)
		}
	}
}

// Each kind that a message can have has one claim, and no claim is of a kind
// that no message has.
func TestClaims(t *testing.T) {
	want := map[string]bool{"METADATA/dummy": true}
	for _, r := range Rows() {
		if r.Signal != "STATUS" {
			want[r.Signal] = true
		}
	}
	for _, s := range statusNames {
		want["STATUS/"+s] = true
	}
	got := map[string]bool{}
	for _, c := range Claims() {
		require.False(t, got[c.Signal], "%s has two claims", c.Signal)
		require.NotEmpty(t, c.Says)
		require.NotEmpty(t, c.Source)
		got[c.Signal] = true
	}
	require.Equal(t, want, got)
	for signal, predicate := range map[string]spec.Predicate{
		"ABORT_ACK/2": spec.ClaimsReceived, "ABORT_ACK/3": spec.ClaimsDrained, "ABORT_ACK/4": spec.ClaimsDrained,
		"STATUS/Success": spec.ClaimsCompleted, "STATUS/Failed": spec.ClaimsReceived, "METADATA": spec.ClaimsNothing,
	} {
		c, ok := ClaimOf(signal)
		require.True(t, ok)
		require.Equal(t, predicate, c.Claims, signal)
	}
	_, ok := ClaimOf("STATUS/17")
	require.False(t, ok)
}

func TestSig(t *testing.T) {
	for want, msg := range map[string][][]byte{
		"ABORT:7":            frames("ABORT", "7", "10.0.0.1", "7000"),
		"ABORT:7:2":          frames("ABORT", "7", "10.0.0.1", "7000", "2"),
		"ABORT_ACK/2:7":      frames("ABORT_ACK", "7"),
		"ABORT_ACK/4:7:1:2":  frames("ABORT_ACK", "7", "1", "2"),
		"STATUS/Success:7:1": frames("7", "4", "1"),
		"":                   frames("WATERMARK", "1", "2", "s"),
	} {
		m, ok := Decode(Mooncake, msg)
		require.True(t, ok)
		require.Equal(t, want, SigOf(&m))
		require.Equal(t, want != "", m.Handoff() == "room-7")
	}
}

// Decode keeps and changes nothing; a message led elsewhere shares no changed
// frame with the one that came.
func TestRewritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(Rows()).Draw(t, "row")
		msg := example(r, rapid.SampledFrom(r.Frames()).Draw(t, "frames"))
		before := slices.Collect(func(yield func(string) bool) {
			for _, f := range msg {
				yield(string(f))
			}
		})
		m, ok := Decode(r.Backend, msg)
		require.True(t, ok)
		if m.PortFrame < 0 {
			return
		}
		out, err := m.rewritten(msg, "127.0.0.2:99")
		require.NoError(t, err)
		require.Len(t, out, len(msg))
		for i := range out {
			require.Equal(t, before[i], string(msg[i]))
			switch i {
			case m.IPFrame:
				require.Equal(t, "127.0.0.2", string(out[i]))
			case m.PortFrame:
				require.Equal(t, "99", string(out[i]))
			default:
				require.Equal(t, before[i], string(out[i]))
			}
		}
		again, ok := Decode(r.Backend, out)
		require.True(t, ok)
		require.Equal(t, SigOf(&m), SigOf(&again), "the id does not depend on where answers go")
	})
}

func FuzzDecode(f *testing.F) {
	for _, c := range corpus(f) {
		f.Add(c.Backend == NIXL, slices.Concat(c.message(f)...), []byte{byte(len(c.Frames))})
	}
	for _, r := range Rows() {
		msg := example(r, r.Frames()[0])
		var cuts []byte
		for _, frame := range msg {
			cuts = append(cuts, byte(len(frame)))
		}
		f.Add(r.Backend == NIXL, slices.Concat(msg...), cuts)
	}
	f.Fuzz(func(t *testing.T, nixl bool, data, cuts []byte) {
		b := Mooncake
		if nixl {
			b = NIXL
		}
		var msg [][]byte
		for _, n := range cuts {
			n := min(int(n), len(data))
			msg = append(msg, data[:n])
			data = data[n:]
		}
		m, ok := Decode(b, msg)
		if !ok {
			return
		}
		require.LessOrEqual(t, len(m.Reason), 3*maxReason)
		require.LessOrEqual(t, len(m.Session), maxText)
		_, claimed := ClaimOf(m.Signal)
		require.True(t, claimed || strings.HasPrefix(m.Signal, "STATUS/"), m.Signal)
		if m.PortFrame >= 0 {
			require.NotEmpty(t, m.ReplyIP)
			require.NotZero(t, m.ReplyPort)
		}
	})
}
