//go:build engines

package sglang

import (
	"context"
	"errors"
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
// gained, in percent. Two pairs of one build differ by several percent without any
// probe, so it takes new ones for each trial and gives the median of the trials and
// their range.
//
//	go test -tags engines -run - -bench Probe -benchtime 1x -timeout 20m ./adapters/sglang
func BenchmarkProbe(b *testing.B) {
	a := New()
	cfg := adapters.Config{Version: "0.5.23", Device: engines.CPU, Mode: Mooncake}
	if err := a.Open(context.Background(), cfg); err != nil {
		b.Skipf("sglang@%s: %v", cfg.Version, err)
	}
	defer a.Close()
	const trials = 9
	var lost, gained, on, off []float64
	for b.Loop() {
		for trial := range trials {
			took, latency := benchTrial(b, a, cfg, uint64(trial))
			lost = append(lost, 100*(1-took[1].Seconds()/took[0].Seconds()))
			gained = append(gained, 100*(latency[0].Seconds()/latency[1].Seconds()-1))
			on, off = append(on, latency[0].Seconds()*1000), append(off, latency[1].Seconds()*1000)
			b.Logf("trial %d: throughput lost %.1f %%, median latency gained %.1f %%", trial, lost[trial], gained[trial])
		}
	}
	for _, l := range [][]float64{lost, gained, on, off} {
		slices.Sort(l)
	}
	b.ReportMetric(lost[trials/2], "%throughput-lost")
	b.ReportMetric(gained[trials/2], "%median-latency-gained")
	b.ReportMetric(on[trials/2], "ms-on")
	b.ReportMetric(off[trials/2], "ms-off")
}

// benchTrial takes the time of the same requests on a new recorded pair and on a new
// unrecorded one: in all, and the median latency.
func benchTrial(b *testing.B, a *Adapter, cfg adapters.Config, seed uint64) (took, median [2]time.Duration) {
	b.Helper()
	var pairs [2]benchPair
	for i := range pairs { // either comes up first in every other trial
		at := (i + int(seed)) % 2
		pairs[at] = benchStack(b, a, cfg, at == 1)
	}
	var latencies [2][]time.Duration
	for round := range 7 {
		for i := range pairs {
			at := (i + round) % 2
			d, l := serve(b, pairs[at].stack, rand.New(rand.NewPCG(seed, uint64(round))), fmt.Sprintf("%c%d%02d", 'a'+at, seed, round), 24)
			if round > 0 { // the first warms up
				took[at] += d
				latencies[at] = append(latencies[at], l...)
			}
		}
	}
	for i, s := range pairs {
		slices.Sort(latencies[i])
		median[i] = latencies[i][len(latencies[i])/2]
		require.NoError(b, s.end())
	}
	return took, median
}

type benchPair struct {
	*stack
	end func() error
}

func benchStack(b *testing.B, a *Adapter, cfg adapters.Config, unprobed bool) benchPair {
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
	return benchPair{s, func() error {
		cfg.Engine.Close()
		return errors.Join(s.Stop(context.Background()), cfg.Probes.Close())
	}}
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
