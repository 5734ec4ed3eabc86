package traces

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"conform/spec"
)

// streamed collects what Stream gives, as events that outlive it.
func streamed(t *testing.T, path string) (events []spec.Event, whole bool) {
	t.Helper()
	sources, threads := map[string]int32{}, map[spec.Thread]int32{}
	whole, err := Stream(context.Background(), path, func(e *spec.Event, source, thread int32) bool {
		again, err := spec.ParseEvent(e.AppendJSON(nil))
		require.NoError(t, err)
		require.Equal(t, again, *e, "what is given is what a line says")
		events = append(events, again)
		if _, known := sources[e.Src]; !known {
			sources[again.Src] = int32(len(sources))
		}
		if _, known := threads[e.Thread()]; !known {
			threads[again.Thread()] = int32(len(threads))
		}
		require.Equal(t, sources[e.Src], source)
		require.Equal(t, threads[e.Thread()], thread)
		return true
	})
	require.NoError(t, err)
	return events, whole
}

// asRead holds that Stream gives what Read does, or says that it does not.
func asRead(t *testing.T, path string) bool {
	t.Helper()
	events, whole := streamed(t, path)
	if !whole {
		return false
	}
	tr, err := Read(path, nil)
	require.NoError(t, err, "%s", path)
	require.Empty(t, tr.Losses, "%s", path)
	require.Len(t, events, len(tr.Events), "%s", path)
	for i := range tr.Events {
		want := tr.Events[i]
		want.Pos = spec.Position{}
		want.Extra, events[i].Extra = nil, nil // an unknown field may be written in other ways
		require.Equal(t, want, events[i])
	}
	return true
}

func TestStreamIsRead(t *testing.T) {
	paths, err := filepath.Glob("testdata/cases/*.jsonl")
	require.NoError(t, err)
	took := 0
	for _, path := range paths {
		if asRead(t, path) {
			took++
		}
	}
	require.Greater(t, took, len(paths)/4, "it is there to be used")
	t.Logf("%d of %d", took, len(paths))
}

// longTrace is a trace of several chunks and frames.
func longTrace() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"src":"D","seq":0,"t":0,"k":"source","worker":"d0","role":"decode","host":"h","clock":"m","hooks":{"asked":1}}`+"\n")
	fmt.Fprintf(&b, `{"src":"D","seq":1,"t":0,"k":"pool","pool":"kv","blocks":64}`+"\n")
	for i := range 5000 {
		fmt.Fprintf(&b, `{"src":"D","seq":%d,"t":%d,"th":"t%d","k":"begin","access":"a%d","mode":"r","target":"d0","pool":"kv","blocks":[%d,[40,50]],"req":"r%d"}`+"\n",
			2*i+2, 9000000000000000000+i, i%3, i, i%32, i)
		fmt.Fprintf(&b, `{"src":"D","seq":%d,"t":%d,"th":"t%d","k":"end","access":"a%d","ok":%v}`+"\n", 2*i+3, 9000000000000000000+i, i%3, i, i%2 == 0)
	}
	return b.Bytes()
}

func TestStreamLong(t *testing.T) {
	text := longTrace()
	plain := filepath.Join(t.TempDir(), "x.jsonl")
	require.NoError(t, os.WriteFile(plain, text, 0o600))
	require.True(t, asRead(t, plain))

	var packed bytes.Buffer
	for rest := text; len(rest) > 0; { // frames that end within lines
		n := min(len(rest), 100_001)
		enc, err := zstd.NewWriter(&packed)
		require.NoError(t, err)
		_, err = enc.Write(rest[:n])
		require.NoError(t, err)
		require.NoError(t, enc.Close())
		rest = rest[n:]
	}
	zst := filepath.Join(t.TempDir(), "x.jsonl.zst")
	require.NoError(t, os.WriteFile(zst, packed.Bytes(), 0o600))
	require.True(t, asRead(t, zst))

	require.NoError(t, os.WriteFile(plain, bytes.TrimSuffix(text, []byte("\n")), 0o600))
	require.True(t, asRead(t, plain), "a last line without its line feed")

	require.NoError(t, os.WriteFile(zst, packed.Bytes()[:packed.Len()-50], 0o600))
	require.False(t, asRead(t, zst), "a torn frame")
}

// What Read takes for bad, for a loss or for nothing unusual, by one line put
// after the first lines of a trace.
func TestStreamLeaves(t *testing.T) {
	head := `{"src":"D","seq":0,"t":5,"k":"source","worker":"d0","role":"decode","host":"h","clock":"m"}
{"src":"D","seq":1,"t":5,"k":"pool","pool":"kv","blocks":4}
{"src":"D","seq":2,"t":6,"k":"begin","access":"a","mode":"r","target":"d0","pool":"kv","blocks":[1],"req":"r"}
{"src":"D","seq":3,"t":6,"k":"emit","sig":"s","signal":"S"}
`
	path := filepath.Join(t.TempDir(), "x.jsonl")
	for line, want := range map[string]bool{
		`{"src":"D","seq":4,"t":6,"k":"note","text":"x"}`:                                                                true,
		`{"src":"D","seq":4,"t":6,"k":"note","text":"ü","unknown":[1]}`:                                                  true,
		`{"src":"D","seq":4,"t":6,"k":"lost","count":0}`:                                                                 true,
		`{"src":"D","seq":4,"t":6,"k":"lost","count":1}`:                                                                 false,
		`{"src":"D","seq":5,"t":6,"k":"note","text":"x"}`:                                                                false,
		`{"src":"D","seq":3,"t":6,"k":"note","text":"x"}`:                                                                false,
		`{"src":"D","seq":4,"t":5,"k":"note","text":"x"}`:                                                                false,
		`{"src":"D","seq":4,"t":5,"th":"other","k":"note","text":"x"}`:                                                   true,
		`{"src":"E","seq":0,"t":6,"k":"note","text":"x"}`:                                                                false,
		`{"src":"D","seq":4,"t":6,"k":"source","worker":"d0","role":"decode","host":"h","clock":"m"}`:                    false,
		`{"src":"D","seq":4,"t":6,"k":"pool","pool":"kv","blocks":4}`:                                                    false,
		`{"src":"D","seq":4,"t":6,"k":"begin","access":"a","mode":"r","target":"d0","pool":"kv","blocks":[1],"req":"r"}`: false,
		`{"src":"D","seq":4,"t":6,"k":"begin","access":"b","mode":"r","target":"d0","pool":"kv","blocks":[4],"req":"r"}`: false,
		`{"src":"D","seq":4,"t":6,"k":"begin","access":"b","mode":"r","target":"d1","pool":"kv","blocks":[1],"req":"r"}`: false,
		`{"src":"D","seq":4,"t":6,"k":"emit","sig":"s","signal":"S"}`:                                                    false,
		`{"src":"D","seq":4,"t":6,"k":"free","pool":"kv","blocks":[9]}`:                                                  false,
		`{"src":"D","seq":4,"t":6,"k":"free","pool":"host","blocks":[1]}`:                                                false,
		`{"src":"D","seq":4,"t":6,"k":"seal","events":4,"sum":"x"}`:                                                      false,
		`{"src":"D","seq":4,"t":6,"k":"no such kind"}`:                                                                   false,
		`{"src":"D","seq":4,"t":6,"k":"note"`:                                                                            false,
		``:                                                                                                               false,
	} {
		require.NoError(t, os.WriteFile(path, []byte(head+line+"\n"), 0o600))
		require.Equal(t, want, asRead(t, path), "%s", line)
	}
	whole, err := Stream(context.Background(), filepath.Join(t.TempDir(), "nothing"), nil)
	require.NoError(t, err)
	require.False(t, whole)
}

// A reader that has enough, and one that is told to stop, leave nothing behind.
func TestStreamStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	require.NoError(t, os.WriteFile(path, longTrace(), 0o600))
	n := 0
	whole, err := Stream(context.Background(), path, func(*spec.Event, int32, int32) bool { n++; return n < 100 })
	require.NoError(t, err)
	require.False(t, whole)
	require.Equal(t, 100, n)
	ctx, cancel := context.WithCancel(context.Background())
	whole, err = Stream(ctx, path, func(*spec.Event, int32, int32) bool { cancel(); return true })
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, whole)
}

func TestIDSet(t *testing.T) {
	s := newIDSet()
	for i := range 20_000 {
		require.True(t, s.add(fmt.Sprint("a", i)))
	}
	for i := range 20_000 {
		require.False(t, s.add(fmt.Sprint("a", i)))
	}
	require.True(t, s.add(strings.Repeat("x", 1000)))
	require.True(t, s.add(""))
}
