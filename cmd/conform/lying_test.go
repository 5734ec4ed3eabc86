package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// lie is a trace that lies about its own format, or asks for more than it is worth.
type lie struct {
	name   string
	file   string // in the folder that write fills, which is given to conform check
	write  func(w io.Writer)
	status int
	says   string
}

const lyingSource = `{"src":"D","seq":0,"t":0,"k":"source","worker":"d0","role":"decode","host":"h","clock":"m"}` + "\n"

func lines(of ...string) func(io.Writer) {
	return func(w io.Writer) { fmt.Fprint(w, lyingSource+strings.Join(of, "\n")+"\n") }
}

// repeated writes text over and over, up to so many bytes.
func repeated(first, text string, size int) func(io.Writer) {
	return func(w io.Writer) {
		fmt.Fprint(w, first)
		chunk := bytes.Repeat([]byte(text), 1<<20/len(text))
		for n := 0; n < size; n += len(chunk) {
			_, _ = w.Write(chunk)
		}
	}
}

func lies() []lie {
	const (
		big  = "9223372036854775807"
		deep = 5_000_000
	)
	pool := `{"src":"D","seq":1,"t":0,"k":"pool","pool":"kv","blocks":` + big + `}`
	note := `{"src":"D","seq":1,"t":0,"k":"note","text":"`
	return []lie{
		{"a range of all numbers", "x.jsonl", lines(pool, `{"src":"D","seq":2,"t":0,"k":"alloc","pool":"kv","blocks":[[0,`+"9223372036854775806"+`]],"holder":"x"}`), 3, "block numbers in one event"},
		{"billions of blocks", "x.jsonl", lines(pool, `{"src":"D","seq":2,"t":0,"k":"alloc","pool":"kv","blocks":[[0,3999999999]],"holder":"x"}`), 3, "block numbers in one event"},
		{"billions of blocks, read", "x.jsonl", lines(pool, `{"src":"D","seq":2,"t":0,"k":"begin","access":"a","target":"d0","pool":"kv","blocks":[[0,3999999999]],"mode":"r","handoff":"h"}`), 3, "block numbers in one event"},
		{"a number beyond 64 bits", "x.jsonl", lines(`{"src":"D","seq":1,"t":0,"k":"pool","pool":"kv","blocks":1` + big + `}`), 3, "x.jsonl:2"},
		{"a count of losses", "x.jsonl", lines(`{"src":"D","seq":1,"t":0,"k":"lost","count":` + big + `}`), 2, "lost"},
		{"a seq at the end of numbers", "x.jsonl", lines(`{"src":"D","seq":18446744073709551615,"t":0,"k":"note","text":"x"}`), 3, "x.jsonl:2"},
		{"deep lists", "x.jsonl", lines(`{"src":"D","seq":1,"t":0,"k":"note","text":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `}`), 3, "x.jsonl:2"},
		{"deep lists that never end", "x.jsonl", lines(strings.Repeat("[", deep)), 3, "x.jsonl:2"},
		{"deep objects in a source line", "x.jsonl", func(w io.Writer) {
			fmt.Fprint(w, `{"src":"D","seq":0,"t":0,"k":"source","worker":"d0","role":"decode","host":"h","clock":"m","hooks":`+strings.Repeat(`{"a":`, deep)+"1"+strings.Repeat("}", deep)+"}\n")
		}, 3, "x.jsonl:1"},
		{"a line that does not end", "x.jsonl", repeated(lyingSource+note, "a", 1<<30), 3, "longer line"},
		{"a line that does not end, packed", "x.jsonl.zst", repeated(lyingSource+note, "a", 4<<30), 3, "longer line"},
		{"zeros, packed", "x.jsonl.zst", repeated("", "\x00", 4<<30), 3, "longer line"},
		{"empty lines, packed", "x.jsonl.zst", repeated(lyingSource, "\n", 4<<30), 3, "x.jsonl.zst"},
		{"a frame that wants gigabytes", "x.jsonl.zst", func(w io.Writer) {
			// Magic number; a window of 2^41 bytes; a raw block of no bytes, the last.
			_, _ = w.Write([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 31 << 3, 0x01, 0x00, 0x00})
		}, 3, "x.jsonl.zst"},
		{"frames of nothing", "x.jsonl.zst", repeated("", "\x50\x2a\x4d\x18\x00\x00\x00\x00", 256<<20), 2, "0 events"},
		{"more parts of blocks than lines", "x.jsonl", manyParts, 3, "block numbers"},
		{"many blocks on few lines", "x.jsonl", manyBlocks, 2, "judged as one"},
		{"a manifest without end", "x/manifest.json", repeated(`{"version":1,"a":"`, "a", 64<<20), 3, "manifest.json"},
		{"a manifest that is deep", "x/manifest.json", repeated(`{"version":1,"a":`, "[", 8<<20), 3, "manifest.json"},
	}
}

func manyParts(w io.Writer) {
	fmt.Fprint(w, lyingSource+`{"src":"D","seq":1,"t":0,"k":"pool","pool":"kv","blocks":200000}`+"\n")
	var list []byte
	for n := range 200_000 {
		list = strconv.AppendInt(append(list, ','), int64(n), 10)
	}
	for i := range 20 {
		kind := []string{"alloc", "alloc"}[i%2] // the second breaks BLK-1: the whole is judged
		fmt.Fprintf(w, `{"src":"D","seq":%d,"t":%d,"k":"%s","pool":"kv","blocks":[%s],"holder":"x"}`+"\n", i+2, i, kind, list[1:])
	}
}

func manyBlocks(w io.Writer) {
	const each = 1 << 18
	fmt.Fprintf(w, lyingSource+`{"src":"D","seq":1,"t":0,"k":"pool","pool":"kv","blocks":%d}`+"\n", 1000*each)
	for i := range 1000 {
		fmt.Fprintf(w, `{"src":"D","seq":%d,"t":%d,"k":"alloc","pool":"kv","blocks":[[%d,%d]],"holder":"x"}`+"\n", i+2, i, i*each, i*each+each-1)
	}
	fmt.Fprintln(w, `{"src":"D","seq":1002,"t":2000,"k":"lost","count":1}`) // for the exact judge
}

// put writes a lie into dir and returns what conform check is to read.
func (l lie) put(tb testing.TB, dir string) string {
	path := filepath.Join(dir, l.file)
	require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path)
	require.NoError(tb, err)
	defer f.Close()
	if strings.HasSuffix(path, ".zst") && !strings.HasPrefix(l.name, "frame") && !strings.HasPrefix(l.name, "a frame") {
		enc, err := zstd.NewWriter(f)
		require.NoError(tb, err)
		l.write(enc)
		require.NoError(tb, enc.Close())
	} else {
		l.write(f)
	}
	if filepath.Base(path) == "manifest.json" {
		return filepath.Dir(path)
	}
	return path
}

// judgeLie runs conform check as a process of its own.
func judgeLie(tb testing.TB, conform string, l lie) (took time.Duration, peakMB int64) {
	path := l.put(tb, tb.TempDir())
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, conform, "check", path)
	begun := time.Now()
	out, _ := cmd.CombinedOutput() // the status says more
	took = time.Since(begun)
	require.Equal(tb, l.status, cmd.ProcessState.ExitCode(), "%s", out)
	require.Contains(tb, string(out), l.says)
	require.Less(tb, len(out), 10_000)
	return took, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
}

func buildConform(tb testing.TB) string {
	conform := filepath.Join(tb.TempDir(), "conform")
	out, err := exec.Command("go", "build", "-o", conform, ".").CombinedOutput()
	require.NoError(tb, err, "%s", out)
	return conform
}

// A trace that lies is bad input, and takes no more memory than an honest one.
func TestLyingTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	conform := buildConform(t)
	for _, l := range lies() {
		t.Run(l.name, func(t *testing.T) {
			_, peak := judgeLie(t, conform, l)
			require.LessOrEqual(t, peak, int64(500), "MB")
		})
	}
}

// BenchmarkLying prints what the worst lie takes (bars: 10 s, 500 MB).
func BenchmarkLying(b *testing.B) {
	conform := buildConform(b)
	for range b.N {
		var worst time.Duration
		var most int64
		for _, l := range lies() {
			took, peak := judgeLie(b, conform, l)
			b.Logf("%s: %v, %d MB", l.name, took.Round(time.Millisecond), peak)
			worst, most = max(worst, took), max(most, peak)
		}
		b.ReportMetric(worst.Seconds(), "s-worst")
		b.ReportMetric(float64(most), "MB-worst")
	}
	b.ReportMetric(0, "ns/op")
}
