package export_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/harness/export"
	"conform/spec"
)

// BenchmarkForms prints what writing a trace of 1,000,000 events takes, and the most
// memory that was live at a time: requests that lease, write, signal and free in turn.
func BenchmarkForms(b *testing.B) {
	const million = 1_000_000
	peak := uint64(0)
	events := func(each func(*spec.Event) error) error {
		if err := each(&spec.Event{Src: "s", K: spec.KindSource, Worker: "decode-0", Role: spec.RoleDecode, Host: "h", Clock: "c"}); err != nil {
			return err
		}
		kinds := []spec.Kind{spec.KindAlloc, spec.KindBegin, spec.KindEmit, spec.KindObserve, spec.KindEnd, spec.KindFree}
		for i := int64(1); i < million; i++ {
			n := (i - 1) / int64(len(kinds))
			name := fmt.Sprintf("req-%d", n)
			e := spec.Event{
				Src: "s", Seq: uint64(i), T: i * 1000, T2: i * 1000, Th: "main", K: kinds[(i-1)%int64(len(kinds))], Pool: "kv", Blocks: spec.MakeBlocks(n%4096, n%4096+1),
				Holder: name, Req: name, Access: name, Mode: "w", Target: "decode-0", Sig: name, Signal: "DONE",
			}
			if err := each(&e); err != nil {
				return err
			}
			if i%100_000 == 0 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
		return nil
	}
	for _, form := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"csv", func(w io.Writer) error { return export.CSV(w, events) }},
		{"parquet", func(w io.Writer) error { return export.Parquet(w, events) }},
		{"perfetto", func(w io.Writer) error { return export.Perfetto(w, events, nil) }},
	} {
		b.Run(form.name, func(b *testing.B) {
			for b.Loop() {
				peak = 0
				var size counted
				start := time.Now()
				require.NoError(b, form.write(&size))
				b.ReportMetric(time.Since(start).Seconds(), "s")
				b.ReportMetric(float64(size)/(1<<20), "MB-written")
				b.ReportMetric(float64(peak)/(1<<20), "MB-live")
			}
		})
	}
}

// counted counts bytes.
type counted int64

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}
