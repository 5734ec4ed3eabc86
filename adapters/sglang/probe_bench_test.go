//go:build engines

package sglang

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/faults"
	"conform/faults/failpoint"
)

// The size of the benchmark: pairs of workers, rounds of four turns on each, and
// requests of a turn.
const (
	benchTrials = 5
	benchRounds = 6
	benchSize   = 12
)

// BenchmarkProbe serves requests on a pair of workers in turns, one with the probe's
// hooks in place and one with the engine's own functions, and reports what the probe
// costs: the throughput lost, the median latency and the processor time gained, in
// percent. Two pairs of one build differ by up to 20 % without any probe, so a pair is
// compared with itself; a turn differs from the next by up to 10 %, so four make a
// round (with, without, without, with, or the other way round), in which a drift
// cancels itself. Each trial takes a new pair. The figures are the medians over all
// rounds; the quartiles (25 and 75 %) show how much a single round says, the load what
// else the machine did. Several clients share two cores with four processes that poll:
// then a round says little, and one client shows the probe's cost best.
//
//	go test -tags engines -run - -bench Probe -benchtime 1x -timeout 30m ./adapters/sglang
func BenchmarkProbe(b *testing.B) {
	for _, clients := range []int{1, 3} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) { benchProbe(b, clients) })
	}
}

func benchProbe(b *testing.B, clients int) {
	a := New()
	cfg := adapters.Config{Version: "0.5.23", Device: engines.CPU, Mode: Mooncake}
	if err := a.Open(context.Background(), cfg); err != nil {
		b.Skipf("sglang@%s: %v", cfg.Version, err)
	}
	defer a.Close()
	var all benchCost
	for b.Loop() {
		for trial := range benchTrials {
			before := loadAverage(b)
			cost := benchTrial(b, a, cfg, clients, uint64(trial))
			b.Logf("trial %d, load average %.1f before and %.1f after: %v", trial, before, loadAverage(b), &cost)
			all.add(cost)
		}
	}
	b.Logf("%d rounds: %v", len(all.lost), &all)
	b.ReportMetric(quartile(all.lost, 2), "%throughput-lost")
	b.ReportMetric(quartile(all.gained, 2), "%median-latency-gained")
	b.ReportMetric(quartile(all.worked, 2), "%processor-time-gained")
	b.ReportMetric(quartile(all.on, 2), "ms-on")
	b.ReportMetric(quartile(all.off, 2), "ms-off")
	b.ReportMetric(loadAverage(b), "load-average")
}

// benchCost is what turns with the hooks cost beside turns without, in percent, and
// the median latencies in milliseconds, round by round.
type benchCost struct{ lost, gained, worked, on, off []float64 }

func (c *benchCost) add(d benchCost) {
	c.lost = append(c.lost, d.lost...)
	c.gained = append(c.gained, d.gained...)
	c.worked = append(c.worked, d.worked...)
	c.on = append(c.on, d.on...)
	c.off = append(c.off, d.off...)
}

func (c *benchCost) String() string {
	var parts []string
	for _, p := range []struct {
		name   string
		values []float64
	}{{"throughput lost", c.lost}, {"median latency gained", c.gained}, {"processor time gained", c.worked}} {
		parts = append(parts, fmt.Sprintf("%s %.1f %% (%.1f to %.1f)", p.name, quartile(p.values, 2), quartile(p.values, 1), quartile(p.values, 3)))
	}
	return strings.Join(parts, ", ")
}

// quartile is the n-th quartile of values: the second is the median.
func quartile(values []float64, n int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)*n/4]
}

// benchTrial compares turns of one new pair.
func benchTrial(b *testing.B, a *Adapter, cfg adapters.Config, clients int, seed uint64) benchCost {
	b.Helper()
	pair := benchStack(b, a, cfg)
	var cost benchCost
	for round := range benchRounds + 1 {
		var took, worked [2]float64 // without, with
		var latencies [2][]time.Duration
		for turn := range 4 {
			on := (round + (turn+1)/2) % 2
			pair.hooks(b, on == 1)
			sizes := rand.New(rand.NewPCG(seed, uint64(round))) // the same in each turn
			d, l, cpu := pair.serve(b, clients, sizes, fmt.Sprintf("t%d-%d-%d", seed, round, turn))
			took[on] += d.Seconds()
			worked[on] += cpu
			latencies[on] = append(latencies[on], l...)
		}
		if round == 0 { // warms up
			continue
		}
		var median [2]float64
		for i, l := range latencies {
			slices.Sort(l)
			median[i] = 1000 * l[len(l)/2].Seconds()
		}
		cost.lost = append(cost.lost, 100*(1-took[0]/took[1]))
		cost.gained = append(cost.gained, 100*(median[1]/median[0]-1))
		cost.worked = append(cost.worked, 100*(worked[1]/worked[0]-1))
		cost.on, cost.off = append(cost.on, median[1]), append(cost.off, median[0])
	}
	require.NoError(b, pair.end())
	return cost
}

// benchPair is a pair of workers whose hooks can be taken out and put in.
type benchPair struct {
	*stack
	dir      string
	switches int // of the hooks, so far
	pids     []int
	end      func() error
}

func benchStack(b *testing.B, a *Adapter, cfg adapters.Config) *benchPair {
	b.Helper()
	plan, err := faults.ParsePlan("none", []byte("rules: []"))
	require.NoError(b, err)
	cfg.Engine, err = faults.NewEngine(plan, 1, faults.EngineOptions{})
	require.NoError(b, err)
	cfg.Probes, err = failpoint.Serve("127.0.0.1:0", cfg.Engine)
	require.NoError(b, err)
	cfg.Failpoint, cfg.Dir, cfg.Host = cfg.Probes.Addr(), b.TempDir(), "h"
	s := newStack(a, cfg)
	for _, m := range s.members {
		m.worker.switched = true
	}
	require.NoError(b, s.start(context.Background()))
	pair := &benchPair{stack: s, dir: cfg.Dir, end: func() error {
		cfg.Engine.Close()
		return errors.Join(s.Stop(context.Background()), cfg.Probes.Close())
	}}
	for _, source := range pair.sources(b) { // the processes that record: those with the hooks
		line, _, _ := bytes.Cut(source, []byte("\n"))
		var first struct {
			PID int `json:"pid"`
		}
		require.NoError(b, json.Unmarshal(line, &first))
		pair.pids = append(pair.pids, first.PID)
	}
	require.Len(b, pair.pids, 2)
	return pair
}

func (p *benchPair) sources(b *testing.B) [][]byte {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(p.dir, "events", "*.jsonl"))
	require.NoError(b, err)
	var all [][]byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(b, err)
		all = append(all, text)
	}
	return all
}

// hooks puts the hooks in or takes them out, and waits until each worker says so.
func (p *benchPair) hooks(b *testing.B, in bool) {
	b.Helper()
	require.Eventually(b, func() bool {
		idle, _, err := p.Idle(context.Background())
		return err == nil && idle
	}, time.Minute, 5*time.Millisecond)
	sig, word := syscall.SIGUSR1, "hooks out"
	if in {
		sig, word = syscall.SIGUSR2, "hooks in"
	}
	p.switches++
	for _, pid := range p.pids {
		require.NoError(b, syscall.Kill(pid, sig))
	}
	require.Eventually(b, func() bool {
		for _, source := range p.sources(b) {
			if bytes.Count(source, []byte(`"text":"hooks `)) != p.switches || bytes.LastIndex(source, []byte(word)) < bytes.LastIndex(source, []byte(`"text":"hooks `)) {
				return false
			}
		}
		return true
	}, time.Minute, 5*time.Millisecond)
}

// serve sends requests by so many clients, and gives the time for all and for each, and
// the seconds that the workers computed. No two prompts are alike.
func (p *benchPair) serve(b *testing.B, clients int, sizes *rand.Rand, prefix string) (time.Duration, []time.Duration, float64) {
	b.Helper()
	reqs := make([]adapters.Request, benchSize)
	for i := range reqs {
		prompt := make([]int32, 20+sizes.IntN(380))
		for j := range prompt {
			prompt[j] = 3 + rand.Int32N(1000)
		}
		reqs[i] = adapters.Request{ID: fmt.Sprintf("%s-%03d", prefix, i), Prompt: prompt, Output: 8 + sizes.IntN(56)}
	}
	latencies := make([]time.Duration, len(reqs))
	computed := p.computed(b)
	start := time.Now()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := c; i < len(reqs); i += clients {
				began := time.Now()
				answer, err := p.Generate(context.Background(), reqs[i])
				if err != nil || answer.Status != 200 {
					b.Errorf("request %s: %v, status %d", reqs[i].ID, err, answer.Status)
				}
				latencies[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	return time.Since(start), latencies, p.computed(b) - computed
}

// computed is how many seconds the recording processes have computed.
func (p *benchPair) computed(b *testing.B) float64 {
	b.Helper()
	total := 0.0
	for _, pid := range p.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(b, err)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, ticks := range fields[11:13] { // in user mode and in the kernel
			n, err := strconv.ParseFloat(ticks, 64)
			require.NoError(b, err)
			total += n / 100
		}
	}
	return total
}

// loadAverage is how many threads wanted to run in the last minute.
func loadAverage(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	require.NoError(b, err)
	load, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	require.NoError(b, err)
	return load
}
