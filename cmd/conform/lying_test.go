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
		{"each access of any lease", "x.jsonl", manyChoices, 3, "leases that accesses may belong to"},
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

// manyChoices leases one block again and again to a request, each of whose accesses
// may be of any of these leases.
func manyChoices(w io.Writer) {
	fmt.Fprint(w, lyingSource+`{"src":"D","seq":1,"t":0,"k":"pool","pool":"kv","blocks":2}`+"\n")
	for i := range 12_000 {
		fmt.Fprintf(w, `{"src":"D","seq":%d,"t":%d,"k":`, i+2, i)
		switch {
		case i >= 8000:
			fmt.Fprintf(w, `"begin","access":"a%d","mode":"w","target":"d0","pool":"kv","blocks":[1],"req":"r"}`+"\n", i)
		case i%2 == 0:
			fmt.Fprintln(w, `"alloc","pool":"kv","blocks":[1],"holder":"r","req":"r"}`)
		default:
			fmt.Fprintln(w, `"free","pool":"kv","blocks":[1]}`)
		}
	}
	fmt.Fprintln(w, `{"src":"D","seq":12002,"t":12002,"k":"fence","handoff":"x"}`) // for the exact judge
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
	out, took, peakMB := measure(tb, nil, l.status, conform, "check", l.put(tb, tb.TempDir()))
	require.Contains(tb, out, l.says)
	require.Less(tb, len(out), 10_000)
	return took, peakMB
}

// measure runs a program, which must end with the status, and says what it wrote
// and took.
func measure(tb testing.TB, in io.Reader, status int, args ...string) (out string, took time.Duration, peakMB int64) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	peak := filepath.Join(tb.TempDir(), "peak")
	cmd := exec.CommandContext(ctx, "measured", append([]string{peak}, args...)...)
	cmd.Stdin, cmd.WaitDelay = in, time.Second
	begun := time.Now()
	all, _ := cmd.CombinedOutput() // the status says more
	took = time.Since(begun)
	require.Equal(tb, status, cmd.ProcessState.ExitCode(), "%s", all)
	kib, err := os.ReadFile(peak)
	require.NoError(tb, err)
	n, err := strconv.ParseInt(string(kib), 10, 64)
	require.NoError(tb, err)
	return string(all), took, n >> 10
}

// measured is a program: it runs another one, and writes the most memory that this
// took, in KiB, into a file. It is a process of its own since Linux counts for a
// program also what the process had that started it.
func measured() {
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run() // the status says more
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if err := os.WriteFile(os.Args[1], strconv.AppendInt(nil, peak, 10), 0o600); err != nil {
		panic(err)
	}
	os.Exit(cmd.ProcessState.ExitCode())
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

// A run directory whose files are not what their names say is refused in one line,
// whichever command reads it.
func TestLyingFolders(t *testing.T) {
	link := func(to string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { require.NoError(t, os.Symlink(to, path)) }
	}
	pipe := func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }
	for _, l := range []struct {
		name, path string
		put        func(t *testing.T, path string)
		says       string
	}{
		{"a link to zeros", "events/d.jsonl", link("/dev/zero"), "no regular file"},
		{"a link to itself", "events/d.jsonl", link("d.jsonl"), "too many levels of symbolic links"},
		{"a link to nothing", "events/d.jsonl", link("nowhere"), "no such file"},
		{"a link to the folder", "events/d.jsonl", link(".."), "no regular file"},
		{"a pipe", "events/d.jsonl", pipe, "no regular file"},
		{"a name that moves the cursor", "events/\x1b[2J\nPASS.jsonl", func(t *testing.T, path string) {
			require.NoError(t, os.WriteFile(path, []byte("x\n"), 0o600))
		}, `\x1b[2J`},
		{"too many files", "events/d.jsonl", func(t *testing.T, path string) {
			for i := range 10_001 {
				require.NoError(t, os.WriteFile(fmt.Sprintf("%s.%d.jsonl", path, i), nil, 0o600))
			}
		}, "events: 10001 files"},
		{"a manifest that is a pipe", "manifest.json", pipe, "manifest.json: no regular file"},
		{"a manifest of zeros", "manifest.json", link("/dev/zero"), "manifest.json: no regular file"},
	} {
		t.Run(l.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "events"), 0o700))
			l.put(t, filepath.Join(dir, l.path))
			if l.path != "manifest.json" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte("{}"), 0o600))
			}
			for _, command := range []string{"check", "explain", "shrink"} {
				c := newCall(realBackend())
				require.Equal(t, statusUsage, c.main(t.Context(), []string{command, dir}), c.errs)
				require.Contains(t, c.errs.String(), l.says)
				require.Equal(t, 1, strings.Count(c.errs.String(), "\n"), c.errs)
				require.NotContains(t, c.errs.String(), "\x1b")
			}
		})
	}
}

// endless gives the same text again and again.
type endless string

func (e endless) Read(p []byte) (n int, err error) {
	for n+len(e) <= len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// Standard input that never ends is refused at the first line that is wrong.
func TestEndlessInput(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	conform := buildConform(t)
	for says, in := range map[string]io.Reader{
		"a longer line": io.MultiReader(strings.NewReader(lyingSource+`{"src":"`), endless("d")),
		"a blank line":  io.MultiReader(strings.NewReader(lyingSource), endless("\n")),
		"-:1: ":         endless("\x00\n"),
	} {
		out, _, peak := measure(t, in, statusUsage, conform, "check", "-")
		require.Contains(t, out, says)
		require.LessOrEqual(t, peak, int64(500), "MB")
	}
}

// What is torn is no lie, wherever it is: it is judged as far as it goes.
func TestTornFrames(t *testing.T) {
	var b bytes.Buffer
	for range 2 {
		enc, err := zstd.NewWriter(&b)
		require.NoError(t, err)
		_, err = io.WriteString(enc, lyingSource)
		require.NoError(t, err)
		require.NoError(t, enc.Close())
	}
	for cut := 5; cut < b.Len()/2; cut++ { // within the second frame, which is a second line
		path := filepath.Join(t.TempDir(), "x.jsonl.zst")
		require.NoError(t, os.WriteFile(path, b.Bytes()[:b.Len()/2+cut], 0o600))
		c := newCall(realBackend())
		require.Equal(t, 2, c.main(t.Context(), []string{"check", path}), "cut at %d: %s", cut, c.errs)
		require.Contains(t, c.out.String(), "a torn zstd frame", "cut at %d", cut)
	}
}
