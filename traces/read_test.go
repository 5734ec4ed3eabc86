package traces_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/traces"
)

// lines builds the text of a trace. Each line is "src rest"; the sequence numbers
// are given unless rest has its own.
func lines(list ...string) string {
	next := map[string]int{}
	var b strings.Builder
	for _, l := range list {
		src, rest, _ := strings.Cut(l, " ")
		seq := fmt.Sprintf(`"seq":%d,`, next[src])
		if strings.Contains(rest, `"seq":`) {
			seq = ""
		}
		next[src]++
		if !strings.Contains(rest, `"t":`) {
			seq += `"t":0,`
		}
		fmt.Fprintf(&b, `{"src":%q,%s%s}`+"\n", src, seq, rest)
	}
	return b.String()
}

// sealOf is the seal of a source whose earlier lines are text.
func sealOf(src, text string) string {
	sum := sha256.Sum256([]byte(text))
	n := strings.Count(text, "\n")
	return fmt.Sprintf(`{"src":%q,"seq":%d,"t":0,"k":"seal","events":%d,"sum":%q}`+"\n", src, n, n, hex.EncodeToString(sum[:]))
}

const (
	srcD  = `D "k":"source","worker":"d0","role":"decode","host":"h","clock":"m"`
	srcD2 = `D2 "k":"source","worker":"d0","role":"decode","host":"h","clock":"m"`
	srcP  = `P "k":"source","worker":"p0","role":"prefill","host":"h","clock":"m"`
	pool  = `D "k":"pool","pool":"kv","blocks":4`
	alloc = `D "k":"alloc","pool":"kv","blocks":[3],"holder":"r"`
	note  = `D "k":"note","text":"n"`
	begin = `P "k":"begin","access":"a1","mode":"w","target":"d0","pool":"kv","blocks":[3],"req":"r"`
	end   = `P "k":"end","access":"a1"`
	emit  = `P "k":"emit","sig":"s1","signal":"S"`
)

func read(text string) (*spec.Trace, error) { return traces.Read("-", strings.NewReader(text)) }

func TestBadInput(t *testing.T) {
	sealed := lines(srcD, note)
	sealed += sealOf("D", sealed)
	sealedLines := func(more ...string) string { return sealed + lines(more...) }
	tests := []struct {
		name, text string
		line       int
		found      string // a part of it
	}{
		{"no source line", lines(note), 1, "before its source line"},
		{"second source line", lines(srcD, srcD), 2, "second source line"},
		{"duplicate seq", lines(srcD, `D "seq":0,"k":"note","text":""`), 2, "seq 0"},
		{"decreasing seq", lines(srcD, `D "seq":5,"k":"note","text":""`, `D "seq":4,"k":"note","text":""`), 3, "seq 4"},
		{"negative seq", lines(`D "seq":-1,"k":"note","text":""`), 1, `"seq"`},
		{"t decreases in a thread", lines(srcD, `D "t":-1,"k":"note","text":""`), 2, "t -1"},
		{"t2 below t", lines(srcD, `D "t":2,"t2":1,"k":"note","text":""`), 2, "t2 1"},
		{"blank line", lines(srcD) + "\n" + lines(srcP), 2, "blank"},
		{"blank last line without a line feed", lines(srcD) + " ", 2, "blank"},
		{"CR LF", strings.ReplaceAll(lines(srcD, note), "\n", "\r\n"), 1, "CR LF"},
		{"CR at the very end", lines(srcD, note) + "\r", 3, "blank"},
		{"last line with CR only", strings.TrimSuffix(lines(srcD, note), "\n") + "\r", 2, "CR LF"},
		{"not JSON in the middle", lines(srcD) + "{\n" + lines(srcP), 2, "no JSON object"},
		{"a complete value that is no object", lines(srcD) + "5", 2, "no JSON object"},
		{"byte order mark", "\ufeff" + lines(srcD), 1, "no JSON object"},
		{"NUL bytes as a line", lines(srcD) + "\x00\x00\n", 2, "no JSON object"},
		{"not UTF-8", lines(srcD, "D \"k\":\"note\",\"text\":\"\xff\""), 2, "UTF-8"},
		{"second begin of an access", lines(srcD, pool, srcP, begin, begin), 5, "second begin"},
		{"second end of an access", lines(srcP, end, end), 3, "second end"},
		{"second emit of a sig", lines(srcP, emit, emit), 3, "second emit"},
		{"sig twice in two sources", lines(srcP, emit, srcD, `D "k":"emit","sig":"s1","signal":"S"`), 4, "second emit"},
		{"undeclared pool", lines(srcD, alloc, note), 2, "declares"},
		{"undeclared pool of a target", lines(srcD, srcP, begin, end), 3, "declares"},
		{"pool declared after its use", lines(srcD, alloc, pool), 2, "declared later"},
		{"pool declared twice", lines(srcD, pool, pool), 3, "twice"},
		{"pool declared twice by two sources of a worker", lines(srcD, pool, srcD2, `D2 "k":"pool","pool":"kv","blocks":4`), 4, "twice"},
		{"block at the count", lines(srcD, pool, `D "k":"free","pool":"kv","blocks":[[2,4]]`), 3, "block 4"},
		{"block at the count of a target", lines(srcD, pool, srcP, strings.Replace(begin, "[3]", "[4]", 1)), 4, "block 4"},
		{"block at the count of a target declared later", lines(srcP, strings.Replace(begin, "[3]", "[4]", 1), srcD, pool), 2, "block 4"},
		{"reversed pair", lines(srcD, pool, `D "k":"free","pool":"kv","blocks":[[2,1]]`), 3, "[2,1]"},
		{"two sources mutate one pool", lines(srcD, pool, alloc, srcD2, `D2 "k":"free","pool":"kv","blocks":[3]`), 5, "by source"},
		{"access without handoff and req", lines(srcP, strings.Replace(begin, `"req"`, `"rid"`, 1)), 2, "neither"},
		{"event after the seal", sealedLines(`D "seq":9,"k":"note","text":""`), 4, "after its seal"},
		{"second seal", sealed + sealOf("D", sealed), 4, "after its seal"},
		{"torn line after the only seal", sealed + `{"src":`, 4, "after the seal"},
		{"torn line after all seals", sealed + lines(srcP) + sealOf("P", lines(srcP)) + `{"src":`, 6, "after the seal"},
		{"seal with a wrong count", strings.Replace(sealed, `"events":2`, `"events":3`, 1), 3, "seal of 3"},
		{"seal in capitals", sealedUpper(sealed), 3, "the sum"},
		{"null", lines(srcD, `D "k":"note","text":null`), 2, "null"},
		{"unknown kind", lines(srcD, `D "k":"notes","text":""`), 2, "notes"},
		{"lost without a count", lines(srcD, `D "k":"lost"`), 2, "count"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := read(tt.text)
			var bad *traces.BadInput
			require.ErrorAs(t, err, &bad)
			require.Equal(t, tt.line, bad.Line, bad)
			require.Equal(t, "-", bad.File)
			require.Contains(t, bad.Found, tt.found)
			require.NotEmpty(t, bad.Expected)
		})
	}
}

func sealedUpper(sealed string) string {
	head, sum, _ := strings.Cut(sealed, `"sum":`)
	return head + `"sum":` + strings.ToUpper(sum)
}

func TestGoodInput(t *testing.T) {
	sealed := lines(srcD, note)
	sealed += sealOf("D", sealed)
	tests := []struct {
		name, text string
		events     int
	}{
		{"empty", "", 0},
		{"complete last line without a line feed", strings.TrimSuffix(lines(srcD, note), "\n"), 2},
		{"seal without a line feed", strings.TrimSuffix(sealed, "\n"), 3},
		{"target declared later", lines(srcP, begin, end, srcD, pool), 5},
		{"target that recorded nothing", lines(srcP, begin, end), 3},
		{"pool declared by another source of the worker", lines(srcD2, srcD, alloc, `D2 "k":"pool","pool":"kv","blocks":4`), 4},
		{"end of an unknown access", lines(srcP, end), 2},
		{"end before its begin, in another thread", lines(srcD, pool, srcP, `P "k":"end","access":"a1","th":"x"`, begin), 5},
		{"observe of an unknown sig, twice", lines(srcP, `P "k":"observe","sig":"s"`, `P "k":"observe","sig":"s"`), 3},
		{"t decreases across threads", lines(srcD, `D "t":9,"th":"x","k":"note","text":""`, note), 3},
		{"t2 decreases", lines(srcD, `D "t":1,"t2":9,"k":"note","text":""`, `D "t":2,"k":"note","text":""`), 3},
		{"lost of nothing", lines(srcD, `D "k":"lost","count":0`), 2},
		{"one pool name, two workers", lines(srcD, pool, alloc, srcP, `P "k":"pool","pool":"kv","blocks":1`), 5},
		{"unknown fields", lines(srcD, `D "k":"note","text":"","x":{"a":[1,null]}`), 2},
		{"pool of a digest", lines(srcD, `D "k":"digest","handoff":"h","side":"source","part":0,"sum":"x","pool":"kv","blocks":[9]`), 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := read(tt.text)
			require.NoError(t, err)
			require.Len(t, got.Events, tt.events)
			require.Empty(t, got.Losses)
		})
	}
}

func TestLosses(t *testing.T) {
	sealed := lines(srcP)
	sealed += sealOf("P", sealed)
	type loss struct {
		src  string
		next uint64
		line int
		why  string
	}
	tests := []struct {
		name, text string
		events     int
		want       []loss
	}{
		{"gap", lines(srcD, `D "seq":4,"k":"note","text":""`), 2, []loss{{"D", 1, 2, "gap"}}},
		{"gap before the source line", lines(`D "seq":2,"k":"source","worker":"d0","role":"decode","host":"h","clock":"m"`), 1, []loss{{"D", 0, 1, "gap"}}},
		{"lost", lines(srcD, note, `D "k":"lost","count":7`, note), 4, []loss{{"D", 2, 3, "lost 7"}}},
		{"torn line of all that are not sealed", sealed + lines(srcD, note) + `{"src":"P","seq`, 4, []loss{{"D", 2, 5, "torn line"}}},
		{"torn line of two", lines(srcP, srcD, note) + `{`, 3, []loss{{"P", 1, 4, "torn line"}, {"D", 2, 4, "torn line"}}},
		{"torn line alone", `{"src":"P"`, 0, []loss{{"-", 0, 1, "torn line"}}},
		{"zeros at the end", lines(srcD) + "\x00\x00\x00", 1, []loss{{"D", 1, 2, "torn line"}}},
		{"cut within a letter", lines(srcD) + "{\"src\":\"\xc3", 1, []loss{{"D", 1, 2, "torn line"}}},
		{
			"undeclared pool after a gap", lines(srcD, `D "seq":3,"k":"free","pool":"kv","blocks":[3]`), 2,
			[]loss{{"D", 1, 2, "gap"}},
		},
		{
			"undeclared pool of a target with a loss", lines(srcP, begin, srcD) + `{`, 3,
			[]loss{{"P", 2, 4, "torn"}, {"D", 1, 4, "torn"}},
		},
		{
			"undeclared pool, declared perhaps by another source of the worker",
			lines(srcD, alloc, srcD2, `D2 "k":"lost","count":1`), 4,
			[]loss{{"D2", 1, 4, "lost 1"}},
		},
		{
			"seal of a source with a gap",
			func() string {
				s := lines(srcD, `D "seq":4,"k":"note","text":""`)
				return s + strings.Replace(sealOf("D", s), `"seq":2`, `"seq":5`, 1)
			}(), 3,
			[]loss{{"D", 1, 2, "gap"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := read(tt.text)
			require.NoError(t, err)
			require.Len(t, got.Events, tt.events)
			require.Len(t, got.Losses, len(tt.want))
			for i, want := range tt.want {
				l := got.Losses[i]
				require.Equal(t, want.src, l.Src)
				require.Equal(t, want.next, l.Next)
				require.Equal(t, spec.Position{File: "-", Line: want.line}, l.Pos)
				require.Contains(t, l.Why, want.why)
			}
		})
	}
}

// A loss excuses only what it may have taken.
func TestLossAfterwardsExcusesNothing(t *testing.T) {
	_, err := read(lines(srcD, alloc, `D "seq":9,"k":"note","text":""`))
	var bad *traces.BadInput
	require.ErrorAs(t, err, &bad)
	require.Equal(t, 2, bad.Line)
}

// frames compresses each text as one frame.
func frames(t testing.TB, texts ...string) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, enc.Close()) }()
	var b []byte
	for _, text := range texts {
		b = enc.EncodeAll([]byte(text), b)
	}
	return b
}

// Wherever a file of frames is cut, what is whole is read, and the cut is a loss
// unless it is between two frames.
func TestZstdCutAnywhere(t *testing.T) {
	first, second := lines(srcD, note, note), lines(srcD, note, note, note)[len(lines(srcD, note, note)):]
	whole := frames(t, first, second)
	boundary := len(frames(t, first))
	dir := t.TempDir()
	path := filepath.Join(dir, "D.jsonl.zst")
	for cut := range len(whole) + 1 {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		got, err := traces.Read(path, nil)
		require.NoError(t, err, cut)
		switch {
		case cut == 0:
			require.Empty(t, got.Losses)
		case cut == boundary:
			require.Len(t, got.Events, 3)
			require.Empty(t, got.Losses)
		case cut == len(whole):
			require.Len(t, got.Events, 4)
			require.Empty(t, got.Losses)
		default:
			require.Len(t, got.Losses, 1, cut)
			require.Contains(t, got.Losses[0].Why, "torn zstd frame")
			require.Equal(t, "D", got.Losses[0].Src)
			require.EqualValues(t, len(got.Events), got.Losses[0].Next)
			if cut > boundary {
				require.GreaterOrEqual(t, len(got.Events), 3)
			}
		}
	}
}

func TestZstdTornAfterTheSeal(t *testing.T) {
	text := lines(srcD, note)
	whole := frames(t, text+sealOf("D", text), text)
	_, err := traces.Read("-", bytes.NewReader(whole[:len(whole)-3]))
	var bad *traces.BadInput
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Found, "after the seal")
}

// A line may go over the end of a frame.
func TestZstdLineInTwoFrames(t *testing.T) {
	text := lines(srcD, note)
	for cut := range len(text) {
		got, err := traces.Read("-", bytes.NewReader(frames(t, text[:cut], text[cut:])))
		require.NoError(t, err)
		require.Len(t, got.Events, 2)
	}
}

// A frame may be torn right behind a line that is complete but for its line feed.
func TestZstdTornBehindACompleteLine(t *testing.T) {
	tornAfter := func(text string) []byte {
		var b bytes.Buffer
		enc, err := zstd.NewWriter(&b)
		require.NoError(t, err)
		_, err = enc.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, enc.Flush())
		size := b.Len()
		_, err = enc.Write([]byte("\n"))
		require.NoError(t, err)
		require.NoError(t, enc.Close())
		return b.Bytes()[:size]
	}
	got, err := traces.Read("-", bytes.NewReader(tornAfter(strings.TrimSuffix(lines(srcD, note), "\n"))))
	require.NoError(t, err)
	require.Len(t, got.Events, 2)
	require.Len(t, got.Losses, 1)
	require.EqualValues(t, 2, got.Losses[0].Next)

	_, err = traces.Read("-", bytes.NewReader(tornAfter(lines(srcD)+`{"src":"D"}`)))
	var bad *traces.BadInput
	require.ErrorAs(t, err, &bad)
	require.Equal(t, 2, bad.Line)
}

func TestZstdDamaged(t *testing.T) {
	good := frames(t, lines(srcD, note, note))
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1 // the checksum
	for name, content := range map[string][]byte{
		"checksum": append(flipped, good...),
		"garbage":  append(bytes.Clone(good), "plain text"...),
		"plain":    []byte(lines(srcD)),
	} {
		path := filepath.Join(t.TempDir(), "x.jsonl.zst")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		_, err := traces.Read(path, nil)
		var bad *traces.BadInput
		require.ErrorAs(t, err, &bad, name)
		require.Contains(t, bad.Found, "damaged zstd stream", name)
		require.Equal(t, "x.jsonl.zst", bad.File)
	}
}

func TestLimits(t *testing.T) {
	text := lines(srcD, note, note)
	longest := len(strings.Split(text, "\n")[0])
	tests := []struct {
		name     string
		lim      traces.Limits
		line     int
		expected string
	}{
		{"line", traces.Limits{LineBytes: longest - 1}, 1, "bytes"},
		{"total", traces.Limits{TotalBytes: int64(len(text)) - 1}, 3, "bytes, decompressed"},
		{"events", traces.Limits{Events: 2}, 3, "2 events"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := traces.ReadLimited("-", strings.NewReader(text), tt.lim)
			var bad *traces.BadInput
			require.ErrorAs(t, err, &bad)
			require.Equal(t, tt.line, bad.Line)
			require.Contains(t, bad.Expected, tt.expected)
		})
	}
	_, err := traces.ReadLimited("-", strings.NewReader(text),
		traces.Limits{LineBytes: longest, TotalBytes: int64(len(text)), Events: 3})
	require.NoError(t, err, "a limit may be reached")
}

// Lines longer than the reader's buffer are read up to the limit, with and
// without a line feed.
func TestLongLines(t *testing.T) {
	line := func(size int) string {
		rest := lines(srcD, `D "k":"note","text":""`)[len(lines(srcD)):]
		return strings.Replace(rest, `"text":""`, `"text":"`+strings.Repeat("x", size-len(rest)+1)+`"`, 1)
	}
	for _, size := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000, traces.MaxLineBytes} {
		for _, text := range []string{line(size), strings.TrimSuffix(line(size), "\n")} {
			got, err := read(lines(srcD) + text)
			require.NoError(t, err, size)
			require.Len(t, got.Events, 2)
		}
	}
	for _, text := range []string{line(traces.MaxLineBytes + 1), strings.TrimSuffix(line(traces.MaxLineBytes+1), "\n")} {
		_, err := read(lines(srcD) + text)
		var bad *traces.BadInput
		require.ErrorAs(t, err, &bad)
		require.Equal(t, 2, bad.Line)
		require.Contains(t, bad.Found, "longer line")
	}
}

// zeros is an endless stream of one byte.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestDecompressionBomb(t *testing.T) {
	var b bytes.Buffer
	enc, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	_, err = io.CopyN(enc, zeros{}, 64<<20)
	require.NoError(t, err)
	require.NoError(t, enc.Close())
	_, err = traces.Read("-", &b)
	var bad *traces.BadInput
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Found, "longer line")
}

func TestWindowIsBounded(t *testing.T) {
	var b bytes.Buffer
	enc, err := zstd.NewWriter(&b, zstd.WithWindowSize(64<<20), zstd.WithSingleSegment(false))
	require.NoError(t, err)
	_, err = enc.Write([]byte(lines(srcD)))
	require.NoError(t, err)
	require.NoError(t, enc.Flush())
	require.NoError(t, enc.Close())
	_, err = traces.Read("-", &b)
	var bad *traces.BadInput
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Found, "zstd")
}

func TestReadFailures(t *testing.T) {
	_, err := traces.Read(filepath.Join(t.TempDir(), "none.jsonl"), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = traces.Read("-", nil)
	require.ErrorContains(t, err, "no standard input")

	broken := errors.New("broken")
	_, err = traces.Read("-", io.MultiReader(strings.NewReader(lines(srcD)), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	_, err = traces.Read("-", io.MultiReader(bytes.NewReader(frames(t, lines(srcD))), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

func TestReadByteByByte(t *testing.T) {
	text := lines(srcD, note, note)
	for _, content := range [][]byte{[]byte(text), frames(t, text)} {
		got, err := traces.Read("-", iotest.OneByteReader(bytes.NewReader(content)))
		require.NoError(t, err)
		require.Len(t, got.Events, 3)
	}
}

// writeRunDir makes a run directory with {} as its manifest.
func writeRunDir(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "events"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte("{}"), 0o600))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "events", name), []byte(text), 0o600))
	}
	return dir
}

func TestRunDir(t *testing.T) {
	dir := writeRunDir(t, map[string]string{
		"P.jsonl":     lines(srcP, begin, end) + `{"sr`,
		"D.jsonl.zst": string(frames(t, lines(srcD, pool, alloc))),
		"torn.jsonl":  `{"src":"X","seq":0`,
		"empty.jsonl": "",
		".tmp.jsonl":  "not read",
		"P.jsonl.bak": "not read",
	})
	got, err := traces.Read(dir, nil)
	require.NoError(t, err)
	require.Len(t, got.Events, 6)
	require.Equal(t, "D", got.Events[0].Src)
	require.Equal(t, spec.Position{File: "P.jsonl", Line: 3}, got.Events[5].Pos)
	require.Equal(t, []spec.Loss{
		{Src: "P", Next: 3, Why: "a torn line", Pos: spec.Position{File: "P.jsonl", Line: 4}},
		{Src: "torn", Next: 0, Why: "a torn line before any source line", Pos: spec.Position{File: "torn.jsonl", Line: 1}},
	}, got.Losses)
}

func TestRunDirBad(t *testing.T) {
	sealed := lines(srcP) + sealOf("P", lines(srcP))
	tests := []struct {
		name  string
		files map[string]string
		file  string
		line  int
		found string
	}{
		{"two sources in a file", map[string]string{"D.jsonl": lines(srcD, srcP)}, "D.jsonl", 2, `source "P"`},
		{"one source in two files", map[string]string{"1.jsonl": lines(srcD), "2.jsonl": lines(srcD)}, "2.jsonl", 1, "second source line"},
		{
			"a source goes on in another file",
			map[string]string{"1.jsonl": lines(srcD), "2.jsonl": lines(srcD, note)[len(lines(srcD)):]},
			"2.jsonl", 1, "holds already",
		},
		{"torn after the seal", map[string]string{"D.jsonl": lines(srcD), "P.jsonl": sealed + "{"}, "P.jsonl", 3, "after the seal"},
		{"undeclared pool of a target", map[string]string{"D.jsonl": lines(srcD), "P.jsonl": lines(srcP, begin)}, "P.jsonl", 2, "declares"},
		{
			"block at the count of a target that comes later",
			map[string]string{"A.jsonl": lines(srcP, strings.Replace(begin, "[3]", "[4]", 1)), "D.jsonl": lines(srcD, pool)},
			"A.jsonl", 2, "block 4",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := traces.Read(writeRunDir(t, tt.files), nil)
			var bad *traces.BadInput
			require.ErrorAs(t, err, &bad)
			require.Equal(t, tt.file, bad.File)
			require.Equal(t, tt.line, bad.Line)
			require.Contains(t, bad.Found, tt.found)
		})
	}
}

// A run directory in which nothing was recorded is an empty trace.
func TestRunDirShape(t *testing.T) {
	tr, err := traces.Read(writeRunDir(t, nil), nil)
	require.NoError(t, err)
	require.Empty(t, tr.Events)

	dir := writeRunDir(t, nil)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "events")))
	tr, err = traces.Read(dir, nil)
	require.NoError(t, err)
	require.Empty(t, tr.Events)

	_, err = traces.Read(t.TempDir(), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "no run directory")

	dir = writeRunDir(t, nil)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "events", "D.jsonl"), 0o700))
	_, err = traces.Read(dir, nil)
	var bad *traces.BadInput
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Found, "no regular file")
}
