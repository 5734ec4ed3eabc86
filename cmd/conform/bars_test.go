package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// BenchmarkBars prints what `conform check` takes as a process of its own: on a
// trace of 1,000,000 events beside merely decoding it with encoding/json, and on
// one of 10,000,000. Each is run three times, and the best counts.
func BenchmarkBars(b *testing.B) {
	dir := b.TempDir()
	if d := os.Getenv("CONFORM_BARS_DIR"); d != "" {
		dir = d // keeps what takes long to write
	}
	conform := filepath.Join(b.TempDir(), "conform")
	build, err := exec.Command("go", "build", "-o", conform, ".").CombinedOutput()
	require.NoError(b, err, "%s", build)
	million := checkBar(b, conform, dir, 1_000_000)
	b.Run("1M-events-encoding-json", func(b *testing.B) {
		start := time.Now()
		decodeOnly(b, filepath.Join(dir, "1000000.jsonl.zst"))
		took := time.Since(start)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(took.Seconds(), "s")
		b.ReportMetric(million.Seconds()/took.Seconds(), "check-takes-of-it")
	})
	ten := checkBar(b, conform, dir, 10_000_000)
	b.Logf("10 M events take %.1f times as long as 1 M", ten.Seconds()/million.Seconds())
}

func checkBar(b *testing.B, conform, dir string, events int) time.Duration {
	path := filepath.Join(dir, fmt.Sprintf("%d.jsonl.zst", events))
	if _, err := os.Stat(path); err != nil {
		writeBigTrace(b, path, events, 1, 0)
	}
	var best time.Duration
	b.Run(fmt.Sprintf("%dM-events", events/1_000_000), func(b *testing.B) {
		var peak int64
		for i := range 3 {
			cmd := exec.Command(conform, "check", path)
			start := time.Now()
			out, err := cmd.CombinedOutput()
			took := time.Since(start)
			require.NoError(b, err, "%s", out)
			if i == 0 || took < best {
				best = took
			}
			peak = max(peak, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
			if i == 0 {
				b.Logf("%s", out)
			}
			b.Logf("%v, of it on the processors %v, %d MB", took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), peak>>10)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(best.Seconds(), "s")
		b.ReportMetric(float64(peak)/1024, "MB-peak")
	})
	return best
}

// decodeOnly decodes each line of a trace and does nothing with it.
func decodeOnly(b *testing.B, path string) {
	f, err := os.Open(path)
	require.NoError(b, err)
	defer f.Close()
	dec, err := zstd.NewReader(f)
	require.NoError(b, err)
	defer dec.Close()
	lines := bufio.NewScanner(dec)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e map[string]any
		require.NoError(b, json.Unmarshal(lines.Bytes(), &e))
	}
	require.NoError(b, lines.Err())
}
