package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// packed is msgpack of plain data.
func packed(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v)
	require.NoError(t, err)
	return b
}

const asked = "cmpl-r-0001-0-0000aaaa"

func pull(t testing.TB, requests map[string]any) []byte {
	return packed(t, map[string]any{
		"remote_hostname": "127.0.0.1", "remote_port": 16526, "kv_caches_base_addr": []uint64{1 << 47}, "req_blocks": requests,
		"registered_layer_names": []string{"a"},
	})
}

func result(t testing.TB, status int, ok, failed []string) []byte {
	fields := map[string]any{"status": status}
	if ok != nil {
		fields["ok_reqs"] = ok
	}
	if failed != nil {
		fields["err_reqs"], fields["err_msg"] = failed, "why"
	}
	return packed(t, fields)
}

func one(transfer string) map[string]any {
	return map[string]any{asked: []any{transfer, [][]int{{7, 8}}}}
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		connector Connector
		to        Direction
		msg       [][]byte
		want      Message
	}{
		{NIXL, ToPrefill, [][]byte{{}, packed(t, []any{[]byte(metaQuery), 0, 0})}, Message{Signal: "HANDSHAKE"}},
		{NIXL, ToPrefill, [][]byte{{}, packed(t, []any{[]byte(metaQuery), 0})}, Message{Signal: "HANDSHAKE"}},
		{NIXL, ToDecode, [][]byte{{}, packed(t, map[string]any{"compatibility_hash": "x", "agent_metadata_bytes": []byte{1}})}, Message{Signal: "HANDSHAKE_META"}},
		{NIXL, ToDecode, [][]byte{{}, packed(t, map[string]any{"compatibility_hash": "x"}), packed(t, 1.5)}, Message{Signal: "HANDSHAKE_META"}},
		{Mooncake, ToPrefill, [][]byte{pull(t, one("kv-r-0001"))}, Message{Signal: "PULL", Requests: []string{asked}, Transfers: []string{"kv-r-0001"}}},
		{Mooncake, ToDecode, [][]byte{result(t, 0, []string{asked}, nil)}, Message{Signal: "FINISH", Requests: []string{asked}}},
		{Mooncake, ToDecode, [][]byte{result(t, 1, []string{asked}, []string{"b"})}, Message{Signal: "CONTINUE", Requests: []string{asked, "b"}}},
		{Mooncake, ToDecode, [][]byte{result(t, 0, nil, []string{asked})}, Message{Signal: "FINISH/failed", Requests: []string{asked}}},
		{Mooncake, ToDecode, [][]byte{result(t, 2, nil, nil)}, Message{Signal: "ERROR"}},
	} {
		got, err := Decode(c.connector, c.to, c.msg)
		require.NoError(t, err, c.want.Signal)
		c.want.Direction = c.to
		require.Equal(t, c.want, got)
		require.True(t, slices.ContainsFunc(Rows(), func(r Row) bool {
			return r.Connector == c.connector && r.Direction == c.to && slices.Contains(r.Signals, got.Signal) && slices.Contains(r.Frames, len(c.msg))
		}), "%s has no row", got.Signal)
	}
}

func TestMessagesThatAreNotUnderstood(t *testing.T) {
	deep := append([]byte{0x81, 0xa1, 'x'}, []byte(strings.Repeat("\x91", 1000)+"\xc0")...)
	many := map[string]any{}
	for n := range maxRequests + 1 {
		many[strings.Repeat("r", n+1)[:1]+string(rune('a'+n%26))+string(rune(0x100+n))] = []any{"x", []any{}}
	}
	for name, c := range map[string]struct {
		connector Connector
		to        Direction
		msg       [][]byte
		want      error
	}{
		"no frames":          {Mooncake, ToPrefill, nil, errNoRow},
		"two frames":         {Mooncake, ToPrefill, [][]byte{pull(t, one("x")), {}}, errNoRow},
		"another connector":  {"other", ToPrefill, [][]byte{{}}, errNoRow},
		"no map":             {Mooncake, ToPrefill, [][]byte{packed(t, []any{1})}, errNoRow},
		"text":               {Mooncake, ToDecode, [][]byte{[]byte("hello")}, errNoRow},
		"no field":           {Mooncake, ToPrefill, [][]byte{packed(t, map[string]any{"a": 1})}, errNoField},
		"no requests":        {Mooncake, ToPrefill, [][]byte{pull(t, map[string]any{})}, errNoField},
		"a status that's no": {Mooncake, ToDecode, [][]byte{result(t, 7, nil, nil)}, errNoField},
		"no status":          {Mooncake, ToDecode, [][]byte{packed(t, map[string]any{"ok_reqs": []string{"a"}})}, errNoField},
		"no delimiter":       {NIXL, ToPrefill, [][]byte{{1}, packed(t, []any{[]byte(metaQuery), 0})}, errNotEmpty},
		"another question":   {NIXL, ToPrefill, [][]byte{{}, packed(t, []any{[]byte("other"), 0})}, errNoRow},
		"no hash":            {NIXL, ToDecode, [][]byte{{}, packed(t, map[string]any{"a": 1})}, errNoField},
		"too large":          {Mooncake, ToPrefill, [][]byte{make([]byte, maxBytes+1)}, errTooMuch},
		"too deep":           {Mooncake, ToPrefill, [][]byte{deep}, errTooMuch},
		"too many":           {Mooncake, ToPrefill, [][]byte{pull(t, many)}, errTooMuch},
	} {
		_, err := Decode(c.connector, c.to, c.msg)
		require.ErrorIs(t, err, c.want, name)
	}
	for cut := range pull(t, one("x")) {
		_, err := Decode(Mooncake, ToPrefill, [][]byte{pull(t, one("x"))[:cut]})
		require.Error(t, err, cut)
	}
}

func TestNames(t *testing.T) {
	for engine, client := range map[string]string{asked: "r-0001", "cmpl-r-0000-0": "r-0000", "r-0001": "r-0001", "": ""} {
		require.Equal(t, client, ClientOf(engine))
	}
	require.Equal(t, "PULL:a", SigOf(Message{Direction: ToPrefill, Requests: []string{"a", "b"}}))
	require.Equal(t, "RESULT:a", SigOf(Message{Direction: ToDecode, Requests: []string{"a"}}))
	require.Empty(t, SigOf(Message{Direction: ToDecode}))
}

func FuzzDecode(f *testing.F) {
	f.Add(pull(f, one("x")), true)
	f.Add(result(f, 0, []string{asked}, []string{"b"}), false)
	f.Add([]byte("\xdf\xff\xff\xff\xff"), true)
	f.Fuzz(func(t *testing.T, frame []byte, up bool) {
		to := ToDecode
		if up {
			to = ToPrefill
		}
		for _, c := range []Connector{NIXL, Mooncake} {
			for _, msg := range [][][]byte{{frame}, {nil, frame}, {nil, frame, frame}} {
				m, err := Decode(c, to, msg)
				if err == nil {
					require.NotEmpty(t, m.Signal)
					require.LessOrEqual(t, len(m.Requests), 2*maxRequests)
				}
			}
		}
	})
}
