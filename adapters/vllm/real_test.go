//go:build engines

package vllm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/faults"
	"conform/spec"
)

// real opens the adapter on an installed build, or skips the test.
func real(t *testing.T, release string) (*Adapter, adapters.Config, <-chan adapters.Exit) {
	t.Helper()
	plan, err := faults.ParsePlan("none", []byte("rules: []"))
	require.NoError(t, err)
	engine, err := faults.NewEngine(plan, 1, faults.EngineOptions{})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	exits := make(chan adapters.Exit, 16)
	cfg := adapters.Config{
		Mode: NIXL, Version: release, Device: engines.CPU, Engine: engine, Dir: t.TempDir(), Topology: adapters.Topology{Decode: 2},
		OnExit: func(e adapters.Exit) { exits <- e },
	}
	a := New()
	began := time.Now()
	err = a.Open(t.Context(), cfg)
	if _, missing := errors.AsType[*engines.NotInstalledError](err); missing {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	t.Logf("the fork server is ready after %.1f s", time.Since(began).Seconds())
	return a, cfg, exits
}

// One prefill and two decode workers hand over for real: the answers are those of one
// worker alone. A worker that dies is noticed at once and comes back, and nothing is left.
func TestRealPair(t *testing.T) {
	for _, release := range []string{"0.15.1", "0.32.0"} {
		t.Run(release, func(t *testing.T) {
			a, cfg, exits := real(t, release)
			ctx, cancel := context.WithTimeout(t.Context(), 7*time.Minute)
			defer cancel()
			prompt := make([]int32, 100)
			for i := range prompt {
				prompt[i] = int32(3 + i*7%1000)
			}
			require.NoError(t, a.Baseline(ctx, cfg, []adapters.Prompt{{Tokens: prompt, Output: 8}}))
			began := time.Now()
			started, err := a.Start(ctx, cfg)
			require.NoError(t, err)
			t.Logf("three workers serve after %.1f s", time.Since(began).Seconds())
			pids := map[string]int{}
			for _, w := range started.Workers() {
				pids[w.ID] = w.PID
			}
			require.Len(t, pids, 3)
			right := started.Reference(prompt, 8)
			require.Len(t, right, 8)
			for i, decode := range []int{0, 1} {
				answer, err := started.Generate(ctx, adapters.Request{ID: []string{"r-0001", "r-0002"}[i], Prompt: prompt, Output: 8, Decode: decode, Stream: decode == 1})
				require.NoError(t, err)
				require.Equal(t, adapters.Answer{Status: 200, Tokens: right, Outcome: spec.OutcomeOK}, answer)
			}

			died := time.Now()
			require.NoError(t, started.Kill(ctx, "decode-1"))
			require.Equal(t, "decode-1", (<-exits).Worker)
			t.Logf("the death of a worker was told after %v", time.Since(died).Round(time.Millisecond))
			require.NoError(t, started.Restart(ctx, "decode-1"))
			answer, err := started.Generate(ctx, adapters.Request{ID: "r-0003", Prompt: prompt, Output: 8, Decode: 1})
			require.NoError(t, err)
			require.Equal(t, right, answer.Tokens)

			require.NoError(t, started.Stop(ctx))
			require.NoError(t, a.Close())
			for id, pid := range pids {
				require.Empty(t, sessionOf(pid), "processes of %s", id)
			}
		})
	}
}

// sessionOf are the processes in the session of a worker's main process.
func sessionOf(pid int) []string {
	var left []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 3 && f[3] == strconv.Itoa(pid) {
			left = append(left, path)
		}
	}
	return left
}
