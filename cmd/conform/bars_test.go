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
// trace of 1,000,000 events beside merely decoding it with encoding/json, on one of
// 10,000,000, and on one of as many in which one request's blocks are freed while they
// are written: more than a judge holds. Each is run three times, and the best counts.
func BenchmarkBars(b *testing.B) {
	dir := b.TempDir()
	if d := os.Getenv("CONFORM_BARS_DIR"); d != "" {
		dir = d // keeps what takes long to write
	}
	conform := filepath.Join(b.TempDir(), "conform")
	build, err := exec.Command("go", "build", "-o", conform, ".").CombinedOutput()
	require.NoError(b, err, "%s", build)
	million := checkBar(b, conform, dir, 1_000_000, 0)
	b.Run("1M-events-encoding-json", func(b *testing.B) {
		start := time.Now()
		decodeOnly(b, filepath.Join(dir, "1M-events.jsonl.zst"))
		took := time.Since(start)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(took.Seconds(), "s")
		b.ReportMetric(million.Seconds()/took.Seconds(), "check-takes-of-it")
	})
	ten := checkBar(b, conform, dir, 10_000_000, 0)
	b.Logf("10 M events take %.1f times as long as 1 M", ten.Seconds()/million.Seconds())
	checkBar(b, conform, dir, 10_000_000, 300_000)
}

// checkBar checks a trace in which one request in so many as spoil says frees its
// blocks too early; none for 0.
func checkBar(b *testing.B, conform, dir string, events, spoil int) time.Duration {
	name, status := fmt.Sprintf("%dM-events", events/1_000_000), 0
	if spoil > 0 {
		name, status = name+"-one-cancel-race", 1
	}
	path := filepath.Join(dir, name+".jsonl.zst")
	if _, err := os.Stat(path); err != nil {
		writeBigTrace(b, path, events, 1, spoil)
	}
	var best time.Duration
	b.Run(name, func(b *testing.B) {
		var peak int64
		for i := range 3 {
			cmd := exec.Command(conform, "check", path)
			start := time.Now()
			out, err := cmd.CombinedOutput()
			took := time.Since(start)
			require.Equal(b, status, cmd.ProcessState.ExitCode(), "%s %v", out, err)
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
