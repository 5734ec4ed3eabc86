package certify

import (
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkVerify checks a certificate of a million events: the fixture's runs, over
// and over. The bar is 3 s on two cores.
func BenchmarkVerify(b *testing.B) {
	in := fixture(b)
	small, err := Verify(b.Context(), certificate(b, in), in.check())
	require.NoError(b, err)
	in = in.copied(b)
	one := in
	one.Runs = in.Runs[:1]
	for events := small.Events; events < 1_000_000; events += small.Events / 2 {
		run := one.copied(b).Runs[0]
		later(b, run, time.Duration(len(in.Runs)))
		in.Runs = append(in.Runs, run)
	}
	path := filepath.Join(b.TempDir(), "big.cert")
	_, err = Certify(b.Context(), in, path)
	require.NoError(b, err)
	c := in.check()
	var rep *Report
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as conform verify does
	before := processorTime(b)
	b.ResetTimer()
	for b.Loop() {
		rep, err = Verify(b.Context(), path, c)
		require.NoError(b, err)
	}
	b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "processor-s/op")
	b.ReportMetric(float64(rep.Events), "events")
	b.ReportMetric(float64(rep.Attempts), "attempts")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys>>20), "MB-from-system")
}

// processorTime is what this process has computed so far, on all cores.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
