package traces_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
	"conform/traces"
)

// counter is a clock for tests.
func counter() traces.Clock {
	var now int64
	return func() int64 { now += 10; return now }
}

var (
	sourceP = spec.Event{K: spec.KindSource, Worker: "p0", Role: spec.RolePrefill, Host: "h", Clock: "m"}
	noteN   = spec.Event{K: spec.KindNote, Text: "n"}
)

func create(t testing.TB, dir, src string, opt traces.WriterOptions) *traces.Writer {
	t.Helper()
	w, err := traces.Create(dir, src, opt)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func readFile(t testing.TB, dir, file string) *spec.Trace {
	t.Helper()
	got, err := traces.Read(filepath.Join(dir, "events", file), nil)
	require.NoError(t, err)
	return got
}

func TestWriteThenRead(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "P", traces.WriterOptions{Clock: counter()})
	want := []spec.Event{w.Record(sourceP), w.Record(noteN), w.Record(spec.Event{K: spec.KindNote, Th: "x", Text: "m"})}
	require.Equal(t, spec.EventID{Src: "P", Seq: 2}, want[2].ID())
	require.Equal(t, []int64{10, 20, 30}, []int64{want[0].T, want[1].T, want[2].T})
	require.Equal(t, "main", want[1].Th)
	require.NoError(t, w.Seal())
	require.NoError(t, w.Err())
	require.Zero(t, w.Lost())

	got := readFile(t, dir, "P.jsonl.zst")
	require.Empty(t, got.Losses)
	require.Len(t, got.Events, 4)
	require.Equal(t, want, withoutPos(got.Events[:3]))
	require.Equal(t, spec.KindSeal, got.Events[3].K)
	require.EqualValues(t, 3, got.Events[3].Events)
}

func TestCreateRefusesToOverwrite(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "P", traces.WriterOptions{})
	w.Record(sourceP)
	_, err := traces.Create(dir, "P", traces.WriterOptions{})
	require.ErrorIs(t, err, fs.ErrExist)
	require.NoError(t, w.Close())
	require.Len(t, readFile(t, dir, "P.jsonl.zst").Events, 1)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = traces.Create(file, "P", traces.WriterOptions{})
	require.Error(t, err, "the run directory is a file")
	_, err = traces.Create(dir, strings.Repeat("x", 2000), traces.WriterOptions{})
	require.ErrorContains(t, err, "1024 bytes")
}

// Each name of a source gives a file of its own, within events.
func TestSourceNamesAsFiles(t *testing.T) {
	names := []string{
		"", ".", "..", "../../x", "a/b", "a_b", "a\\b", ".hidden", "a b", "é", "\xff", "con:1",
		strings.Repeat("x", 300), strings.Repeat("x", 301), "prefill-0.1_z", "-",
	}
	dir := t.TempDir()
	for _, name := range names {
		w := create(t, dir, name, traces.WriterOptions{Flush: -1})
		w.Record(sourceP)
		require.NoError(t, w.Seal())
	}
	require.NoError(t, traces.WriteManifest(dir, traces.Manifest{}))
	got, err := traces.Read(dir, nil)
	require.NoError(t, err)
	sources := map[string]bool{}
	for _, e := range got.Events {
		sources[e.Src] = true
	}
	for _, name := range names {
		require.True(t, sources[strings.ToValidUTF8(name, "\uFFFD")], name)
	}
	top, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, top, 2, "nothing beside events and the manifest")
	require.FileExists(t, filepath.Join(dir, "events", "prefill-0.1_z.jsonl.zst"))
}

func TestTimesNeverDecreaseWithinAThread(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "P", traces.WriterOptions{Clock: counter()})
	w.Record(sourceP)
	record := func(e spec.Event) spec.Event { e.K = spec.KindNote; return w.Record(e) }
	require.Equal(t, int64(500), record(spec.Event{T: 500, T2: 600}).T)
	early := record(spec.Event{T: 400, T2: 450})
	require.Equal(t, [2]int64{500, 500}, [2]int64{early.T, early.T2})
	require.Equal(t, int64(500), record(spec.Event{}).T, "the clock is at 20")
	require.Equal(t, int64(30), record(spec.Event{Th: "x"}).T, "another thread")
	long := record(spec.Event{Th: "x", T2: 1000})
	require.Equal(t, [2]int64{40, 1000}, [2]int64{long.T, long.T2})
	require.NoError(t, w.Close())
	require.Len(t, readFile(t, dir, "P.jsonl.zst").Events, 6)
}

// What says that something exists is in the file at once.
func TestDeclarationsDoNotWait(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "P", traces.WriterOptions{Flush: time.Hour})
	w.Record(sourceP)
	require.Len(t, readFile(t, dir, "P.jsonl.zst").Events, 1)
	w.Record(noteN)
	w.Record(spec.Event{K: spec.KindPool, Pool: "kv", Count: 4})
	require.Len(t, readFile(t, dir, "P.jsonl.zst").Events, 3)
	w.Record(noteN)
	require.NoError(t, w.Close())
	got := readFile(t, dir, "P.jsonl.zst")
	require.Len(t, got.Events, 4)
	require.Empty(t, got.Losses)
}

func TestFlush(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "P", traces.WriterOptions{Flush: time.Hour})
	w.Record(sourceP)
	w.Record(noteN)
	require.NoError(t, w.Flush())
	require.Len(t, readFile(t, dir, "P.jsonl.zst").Events, 2)
	require.NoError(t, w.Seal())
	require.NoError(t, w.Flush(), "nothing is left to write")
}

func TestEndIsOnce(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "P", traces.WriterOptions{})
	w.Record(sourceP)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.Seal(), traces.ErrClosed)
	w.Record(noteN)
	require.EqualValues(t, 1, w.Lost())
	require.Len(t, readFile(t, dir, "P.jsonl.zst").Events, 1)

	w = create(t, dir, "Q", traces.WriterOptions{})
	w.Record(sourceP)
	require.NoError(t, w.Seal())
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	require.Len(t, readFile(t, dir, "Q.jsonl.zst").Events, 2)
}

// Without a timer the same events give the same bytes.
func TestSameEventsSameBytes(t *testing.T) {
	var files [2][]byte
	for i := range files {
		dir := t.TempDir()
		w := create(t, dir, "P", traces.WriterOptions{Clock: counter(), Flush: -1})
		w.Record(sourceP)
		for range 20_000 {
			w.Record(noteN)
		}
		require.NoError(t, w.Seal())
		var err error
		files[i], err = os.ReadFile(filepath.Join(dir, "events", "P.jsonl.zst"))
		require.NoError(t, err)
		require.Len(t, readFile(t, dir, "P.jsonl.zst").Events, 20_002)
	}
	require.True(t, bytes.Equal(files[0], files[1]))
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	require.Greater(t, bytes.Count(files[0], magic), 3, "frames of a bounded size")
}

// Threads record at once: the tap and the file hold each event once, in seq
// order, and times follow.
func TestConcurrentRecord(t *testing.T) {
	const threads, each = 8, 2000
	dir := t.TempDir()
	var tapped bytes.Buffer
	w := create(t, dir, "P", traces.WriterOptions{
		Flush: time.Millisecond, Tap: func(line []byte) { tapped.Write(line) },
	})
	w.Record(sourceP)
	var ids [threads][]spec.EventID
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			for range each {
				e := w.Record(spec.Event{K: spec.KindNote, Th: fmt.Sprint(i)})
				ids[i] = append(ids[i], e.ID())
			}
		})
	}
	wg.Wait()
	require.NoError(t, w.Seal())

	got := readFile(t, dir, "P.jsonl.zst")
	require.Empty(t, got.Losses)
	require.Len(t, got.Events, threads*each+2)
	var seen [threads]int
	for i, e := range got.Events[1 : len(got.Events)-1] {
		require.EqualValues(t, i+1, e.Seq)
		require.GreaterOrEqual(t, e.T, got.Events[i].T, "seq order is time order")
		var th int
		_, err := fmt.Sscan(e.Th, &th)
		require.NoError(t, err)
		require.Equal(t, ids[th][seen[th]], e.ID(), "the id that Record returned")
		seen[th]++
	}
	b, err := os.ReadFile(filepath.Join(dir, "events", "P.jsonl.zst"))
	require.NoError(t, err)
	dec, err := zstd.NewReader(nil)
	require.NoError(t, err)
	defer dec.Close()
	text, err := dec.DecodeAll(b, nil)
	require.NoError(t, err)
	require.Equal(t, string(text), tapped.String())
}

// Raw JSON of a caller cannot break the line that it is in.
func TestRawPartsAreCleaned(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "P", traces.WriterOptions{})
	e := sourceP
	e.Hooks = json.RawMessage("{\n\"a\": 1\r\n}")
	e.Extra = map[string]json.RawMessage{
		"lf": json.RawMessage("[1,\n2]"), "no": json.RawMessage("{"), "empty": nil, "utf8": json.RawMessage("\"\xff\""),
		"seq": json.RawMessage("9"), "worker": json.RawMessage(`"w"`), "text": json.RawMessage(`"kept: no field of this kind"`),
	}
	want := []spec.Event{w.Record(e)}
	require.JSONEq(t, `{"a":1}`, string(want[0].Hooks))
	require.Len(t, want[0].Extra, 2)
	e = noteN
	e.Extra = map[string]json.RawMessage{"x": json.RawMessage("nonsense")}
	e.Text = "\xff\x00\n\u2028<"
	want = append(want, w.Record(e))
	require.NoError(t, w.Seal())
	got := withoutPos(readFile(t, dir, "P.jsonl.zst").Events)
	require.Equal(t, want[0], got[0])
	require.Equal(t, "\uFFFD\x00\n\u2028<", got[1].Text)
	require.Nil(t, got[1].Extra)
}

func TestOverflowIsTold(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, "P", traces.WriterOptions{Flush: time.Hour, BufferBytes: 20_000})
	w.Record(sourceP)
	big := spec.Event{K: spec.KindNote, Text: strings.Repeat("x", 5000)}
	for range 10 {
		w.Record(big)
	}
	require.NotZero(t, w.Lost())
	w.Record(spec.Event{K: spec.KindPool, Pool: "kv", Count: 1}) // empties the buffer
	w.Record(spec.Event{K: spec.KindNote, Text: strings.Repeat("x", traces.MaxLineBytes)})
	w.Record(noteN)
	require.NoError(t, w.Seal())

	got := readFile(t, dir, "P.jsonl.zst")
	require.NotEmpty(t, got.Losses)
	var told int64
	for i, e := range got.Events {
		require.EqualValues(t, i, e.Seq, "what is lost used no seq")
		told += e.Count * int64(btoi(e.K == spec.KindLost))
	}
	require.EqualValues(t, w.Lost(), told)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// anyEvent draws a valid event of one kind, with fields by the table of the
// format. The pools of a mutation exist.
func anyEvent(t *rapid.T, n int) spec.Event {
	kinds := spec.Kinds()
	k := rapid.SampledFrom(kinds).Filter(func(k spec.Kind) bool {
		return k != spec.KindSource && k != spec.KindPool && k != spec.KindSeal && k != spec.KindLost
	}).Draw(t, "kind")
	fields := map[string]any{"src": "P", "seq": 0, "t": rapid.Int64Range(-5, 5).Draw(t, "t"), "k": k}
	for _, f := range spec.Fields(k) {
		if _, common := fields[f.Name]; common || f.Name == "t2" {
			continue
		}
		if f.Required || rapid.Bool().Draw(t, "has "+f.Name) {
			fields[f.Name] = anyValue(t, f)
		}
	}
	unique := fmt.Sprint(n)
	switch k {
	case spec.KindBegin:
		fields["access"], fields["target"], fields["pool"], fields["req"] = "b"+unique, "p0", "kv", "r"
	case spec.KindEnd:
		fields["access"] = "e" + unique
	case spec.KindEmit:
		fields["sig"] = "s" + unique
	case spec.KindExpire:
		fields["req"] = "r"
	case spec.KindClockCmp:
		fields["lo"], fields["hi"] = -3, 3
	}
	if k.Mutates() {
		fields["pool"] = "kv"
	}
	fields["unknown"] = map[string]any{"x": 1}
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	e, err := spec.ParseEvent(b)
	if err != nil {
		t.Fatal(string(b), err)
	}
	return e
}

func anyValue(t *rapid.T, f spec.Field) any {
	switch f.Type {
	case spec.TypeString:
		if f.Enum != nil {
			return rapid.SampledFrom(f.Enum).Draw(t, f.Name)
		}
		return rapid.String().Draw(t, f.Name)
	case spec.TypeInt:
		return rapid.Int64().Draw(t, f.Name)
	case spec.TypeUint:
		return rapid.Int64Range(0, math.MaxInt64).Draw(t, f.Name)
	case spec.TypeBool:
		return rapid.Bool().Draw(t, f.Name)
	case spec.TypeStrings:
		return rapid.SliceOf(rapid.String()).Draw(t, f.Name)
	case spec.TypeBlocks:
		first := rapid.Int64Range(0, 99).Draw(t, "first")
		return []any{first, []int64{first, rapid.Int64Range(first, 99).Draw(t, "last")}}
	case spec.TypeObject:
		return map[string]any{"x": rapid.String().Draw(t, f.Name)}
	}
	t.Fatalf("no generator for %s", f.Type)
	return nil
}

// What is recorded is read, event by event.
func TestRandomEventsSurvive(t *testing.T) {
	root := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		dir := filepath.Join(root, fmt.Sprint(run))
		w, err := traces.Create(dir, "P", traces.WriterOptions{Clock: counter(), Flush: -1})
		if err != nil {
			t.Fatal(err)
		}
		want := []spec.Event{w.Record(sourceP), w.Record(spec.Event{K: spec.KindPool, Pool: "kv", Count: 100})}
		for n := range rapid.IntRange(0, 20).Draw(t, "events") {
			want = append(want, w.Record(anyEvent(t, n)))
		}
		if err := errors.Join(w.Seal(), traces.WriteManifest(dir, traces.Manifest{})); err != nil {
			t.Fatal(err)
		}
		got, err := traces.Read(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		require.Empty(t, got.Losses)
		require.Equal(t, want, withoutPos(got.Events[:len(got.Events)-1]))
	})
}
