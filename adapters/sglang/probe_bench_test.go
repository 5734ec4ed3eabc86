//go:build engines

package sglang

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/faults"
	"conform/faults/failpoint"
)

// BenchmarkProbe serves the same requests on two pairs, one recorded and one not, in
// turns, and reports what the probe costs: the throughput lost and the median latency
// gained, in percent.
//
//	go test -tags engines -run - -bench Probe -benchtime 1x -timeout 20m ./adapters/sglang
func BenchmarkProbe(b *testing.B) {
	ctx := context.Background()
	a := New()
	cfg := adapters.Config{Version: "0.5.23", Device: engines.CPU, Mode: Mooncake}
	if err := a.Open(ctx, cfg); err != nil {
		b.Skipf("sglang@%s: %v", cfg.Version, err)
	}
	defer a.Close()
	on, off := benchStack(b, a, cfg, false), benchStack(b, a, cfg, true)
	rng := rand.New(rand.NewPCG(1, 2))
	serve(b, on, rng, "w", 12)
	serve(b, off, rng, "v", 12)
	const rounds = 12
	var took [2]time.Duration
	var latencies [2][]time.Duration
	for b.Loop() {
		for round := range rounds {
			order := []int{0, 1}
			if round%2 == 1 {
				order = []int{1, 0}
			}
			for _, i := range order {
				s := []*stack{on, off}[i]
				d, l := serve(b, s, rand.New(rand.NewPCG(uint64(round), 3)), fmt.Sprintf("%c%02d", 'a'+i, round), 40)
				took[i] += d
				latencies[i] = append(latencies[i], l...)
			}
		}
	}
	for i := range latencies {
		slices.Sort(latencies[i])
	}
	median := func(i int) float64 { return latencies[i][len(latencies[i])/2].Seconds() * 1000 }
	b.ReportMetric(100*(1-took[1].Seconds()/took[0].Seconds()), "%throughput-lost")
	b.ReportMetric(100*(median(0)/median(1)-1), "%median-latency-gained")
	b.ReportMetric(median(0), "ms-on")
	b.ReportMetric(median(1), "ms-off")
	b.ReportMetric(float64(len(latencies[0]))/took[0].Seconds(), "req/s-on")
	b.ReportMetric(float64(len(latencies[1]))/took[1].Seconds(), "req/s-off")
}

func benchStack(b *testing.B, a *Adapter, cfg adapters.Config, unprobed bool) *stack {
	b.Helper()
	plan, err := faults.ParsePlan("none", []byte("rules: []"))
	require.NoError(b, err)
	cfg.Engine, err = faults.NewEngine(plan, 1, faults.EngineOptions{})
	require.NoError(b, err)
	cfg.Probes, err = failpoint.Serve("127.0.0.1:0", cfg.Engine)
	require.NoError(b, err)
	cfg.Failpoint, cfg.Dir, cfg.Host = cfg.Probes.Addr(), b.TempDir(), "h"
	s := newStack(a, cfg)
	s.unprobed = unprobed
	require.NoError(b, s.start(context.Background()))
	b.Cleanup(func() {
		cfg.Engine.Close()
		_ = s.Stop(context.Background())
		_ = cfg.Probes.Close()
	})
	return s
}

// serve sends n requests by three clients, and gives the time for all and for each.
func serve(b *testing.B, s *stack, rng *rand.Rand, prefix string, n int) (time.Duration, []time.Duration) {
	b.Helper()
	reqs := make([]adapters.Request, n)
	for i := range reqs {
		prompt := make([]int32, 20+rng.IntN(380))
		for j := range prompt {
			prompt[j] = 3 + rng.Int32N(1000)
		}
		reqs[i] = adapters.Request{ID: fmt.Sprintf("%s-%03d", prefix, i), Prompt: prompt, Output: 8 + rng.IntN(56)}
	}
	latencies := make([]time.Duration, n)
	start := time.Now()
	var wg sync.WaitGroup
	for c := range 3 {
		wg.Go(func() {
			for i := c; i < n; i += 3 {
				began := time.Now()
				answer, err := s.Generate(context.Background(), reqs[i])
				if err != nil || answer.Status != 200 {
					b.Errorf("request %s: %v, status %d", reqs[i].ID, err, answer.Status)
				}
				latencies[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	return time.Since(start), latencies
}
