package reference

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/faults"
	"conform/spec"
	"conform/traces"
)

// The workers of the stack are this test's program executed again.
func TestMain(m *testing.M) {
	if Main() {
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=1 "+os.Getenv("GORACE")) // else each worker sleeps 1 s at its end
	os.Exit(m.Run())
}

type testStack struct {
	adapters.Stack
	t     *testing.T
	dir   string
	mu    sync.Mutex
	exits []adapters.Exit
}

func startStack(t *testing.T, cfg adapters.Config) *testStack {
	t.Helper()
	s := &testStack{t: t, dir: t.TempDir()}
	engine, err := faults.NewEngine(&faults.Plan{Name: "none"}, 1, faults.EngineOptions{Record: func(spec.Event) {}})
	require.NoError(t, err)
	cfg.Dir, cfg.Engine, cfg.Host = s.dir, engine, "h"
	cfg.OnExit = func(e adapters.Exit) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.exits = append(s.exits, e)
	}
	require.NoError(t, traces.WriteManifest(s.dir, traces.Manifest{}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.Stack, err = Adapter{}.Start(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Stop(ctx)
		engine.Close()
	})
	return s
}

// generate asks for tokens and returns the answer.
func (s *testStack) generate(id string, prompt []int32, n int, stream bool) adapters.Answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	a, err := s.Generate(ctx, adapters.Request{ID: id, Prompt: prompt, Output: n, Stream: stream})
	if err != nil {
		require.ErrorContains(s.t, err, "the answer ends without its last line")
	}
	return a
}

func (s *testStack) awaitIdle() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		idle, _, err := s.Idle(s.t.Context())
		return err == nil && idle
	}, 15*time.Second, 5*time.Millisecond)
}

// serves waits until a request is answered rightly again.
func (s *testStack) serves(id string) {
	s.t.Helper()
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	require.Eventually(s.t, func() bool {
		a := s.generate(id, prompt, 3, false)
		id += "x"
		if a.Status == http.StatusOK {
			require.Equal(s.t, s.Reference(prompt, 3), a.Tokens)
		}
		return a.Status == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond)
}

func (s *testStack) trace() *spec.Trace {
	s.t.Helper()
	tr, err := traces.Read(s.dir, nil)
	require.NoError(s.t, err)
	return tr
}

func TestStackAnswersAndSealsItsTrace(t *testing.T) {
	for _, mode := range []string{Push, Pull} {
		t.Run(mode, func(t *testing.T) {
			s := startStack(t, adapters.Config{Mode: mode})
			for _, stream := range []bool{false, true} {
				prompt := make([]int32, 37)
				a := s.generate("r-"+mode+map[bool]string{true: "s"}[stream], prompt, 5, stream)
				require.Equal(t, adapters.Answer{Status: http.StatusOK, Tokens: s.Reference(prompt, 5), Outcome: spec.OutcomeOK}, a)
			}
			s.awaitIdle()
			require.NoError(t, s.Stop(t.Context()))
			seals := map[string]bool{}
			for _, e := range s.trace().Events {
				if e.K == spec.KindSeal {
					seals[e.Src] = true
				}
			}
			require.Equal(t, map[string]bool{"router-0": true, "prefill-0": true, "decode-0": true}, seals)
			for _, e := range s.exits {
				require.True(t, e.Expected)
				require.Zero(t, e.Code)
			}
		})
	}
}

// A request may be given up at one stage alone; the client is told so all the same.
func TestAbortAtOneStage(t *testing.T) {
	for _, mode := range []string{Push, Pull} {
		for _, at := range []spec.Role{"", spec.RolePrefill, spec.RoleDecode} {
			t.Run(mode+" "+string(at), func(t *testing.T) {
				s := startStack(t, adapters.Config{Mode: mode, Limits: adapters.Limits{Step: 20 * time.Millisecond}})
				told := make(chan adapters.Answer, 1)
				go func() { told <- s.generate("r", make([]int32, 60), 180, true) }()
				require.Eventually(t, func() bool { // whichever stage it has come to
					require.NoError(t, s.Abort(t.Context(), "r", at))
					select {
					case a := <-told:
						require.NotEqual(t, spec.OutcomeOK, a.Outcome)
						return true
					default:
						return false
					}
				}, 20*time.Second, 10*time.Millisecond)
				s.awaitIdle()
			})
		}
	}
}

func TestWhatTheStackCannotDoIsRefused(t *testing.T) {
	s := startStack(t, adapters.Config{Mode: Push})
	for _, r := range []adapters.Request{{ID: "r", Prompt: []int32{1}, Output: 1, Samples: maxSamples + 1}, {ID: "r", Prompt: []int32{1}, Output: 1, Decode: 1}} {
		_, err := s.Generate(t.Context(), r)
		require.ErrorIs(t, err, adapters.ErrUnsupported)
	}
	require.ErrorIs(t, s.Abort(t.Context(), "r", spec.RoleStore), adapters.ErrUnsupported)
	require.Error(t, s.Abort(t.Context(), "", ""), "the router refuses an abort of nothing")
	_, err := Adapter{}.Start(t.Context(), adapters.Config{Mode: Push, Topology: adapters.Topology{Prefill: 2}})
	require.ErrorIs(t, err, ErrConfig)
	for _, cfg := range []adapters.Config{
		{Mode: Push, Topology: adapters.Topology{PrefillTP: maxRanks + 1}}, {Mode: Pull, Topology: adapters.Topology{DecodeTP: 2}}, {Mode: Push, Args: []string{"--no-such"}},
	} {
		_, err = Adapter{}.Start(t.Context(), cfg)
		require.ErrorIs(t, err, ErrConfig)
	}
}

func TestRefusalsKeepTheirStatus(t *testing.T) {
	for _, mode := range []string{Push, Pull} {
		t.Run(mode, func(t *testing.T) {
			s := startStack(t, adapters.Config{Mode: mode})
			l := s.Limits()
			a := s.generate("too-long", make([]int32, l.PrefillTokens+1), 2, true)
			require.Equal(t, http.StatusBadRequest, a.Status)
			require.Equal(t, spec.OutcomeRejected, a.Outcome)
			a = s.generate("too-much", []int32{1}, l.DecodeTokens, false)
			require.Equal(t, http.StatusBadRequest, a.Status)
			require.Equal(t, spec.OutcomeRejected, a.Outcome)
			a = s.generate("", []int32{1}, 1, false)
			require.Equal(t, http.StatusBadRequest, a.Status)
			require.Equal(t, spec.OutcomeError, a.Outcome)
			s.awaitIdle()
		})
	}
}

func TestEachWorkerMayBeKilledAndRestarted(t *testing.T) {
	for _, mode := range []string{Push, Pull} {
		t.Run(mode, func(t *testing.T) {
			s := startStack(t, adapters.Config{Mode: mode, Limits: adapters.Limits{PeerTimeout: 300 * time.Millisecond, HandoffTimeout: time.Second}})
			for _, role := range []string{"prefill", "decode", "router"} {
				require.NoError(t, s.Kill(t.Context(), role))
				require.NoError(t, s.Restart(t.Context(), role))
				s.serves(role + "-back-")
			}
			s.awaitIdle()
			require.NoError(t, s.Stop(t.Context()))
			ids := map[string]bool{}
			for _, e := range s.trace().Events {
				if e.K == spec.KindSource {
					ids[e.Worker] = true
				}
			}
			for _, id := range []string{"router-0", "router-0.1", "prefill-0", "prefill-0.1", "decode-0", "decode-0.1"} {
				require.True(t, ids[id], id)
			}
			killed := 0
			for _, e := range s.exits {
				require.True(t, e.Expected)
				if e.SignalNo == int(syscall.SIGKILL) {
					killed++
				}
			}
			require.Equal(t, 3, killed)
		})
	}
}

func TestUnexpectedDeathIsReportedWithTheLog(t *testing.T) {
	s := startStack(t, adapters.Config{Mode: Push})
	for _, w := range s.Workers() {
		if w.Role == spec.RoleDecode {
			require.NoError(t, syscall.Kill(w.PID, syscall.SIGKILL))
		}
	}
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.exits) == 1 && !s.exits[0].Expected && s.exits[0].SignalNo == 9 && s.exits[0].Worker == "decode-0"
	}, 10*time.Second, 5*time.Millisecond)
}

func TestPausedWorkerIsEndedToo(t *testing.T) {
	s := startStack(t, adapters.Config{Mode: Push})
	require.NoError(t, s.Pause(t.Context(), "prefill"))
	require.NoError(t, s.Stop(t.Context()))
	require.Empty(t, s.Workers())
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	_, err := Adapter{}.Start(t.Context(), adapters.Config{Mode: "shove"})
	require.ErrorIs(t, err, ErrConfig)
	_, err = Adapter{}.Start(t.Context(), adapters.Config{Mode: Push, Defect: "no-such"})
	require.ErrorIs(t, err, ErrConfig)
	_, err = Adapter{}.Describe(adapters.Config{Mode: "shove"})
	require.ErrorIs(t, err, ErrConfig)
	text, err := Adapter{}.Describe(adapters.Config{Mode: Pull})
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(text, workerEnv))
}

func TestWorkerThatCannotWriteItsTraceSaysSo(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "events"), nil, 0o600)) // in the folder's place
	engine, err := faults.NewEngine(&faults.Plan{Name: "none"}, 1, faults.EngineOptions{Record: func(spec.Event) {}})
	require.NoError(t, err)
	defer engine.Close()
	_, err = Adapter{}.Start(t.Context(), adapters.Config{Mode: Push, Dir: dir, Engine: engine})
	require.ErrorContains(t, err, "worker prefill-0 did not come up")
	require.ErrorContains(t, err, "not a directory")
}

func TestOrphansEndAndKeepTheirTrace(t *testing.T) {
	s := startStack(t, adapters.Config{Mode: Push})
	s.serves("r")
	for _, p := range s.Stack.(*stack).all {
		require.NoError(t, p.stdin.Close()) // as when the harness dies
	}
	require.Eventually(t, func() bool { return len(s.Workers()) == 0 }, 10*time.Second, 5*time.Millisecond)
	n := 0
	for _, e := range s.trace().Events {
		require.NotEqual(t, spec.KindSeal, e.K, "a source that did not end in good order is not sealed")
		n++
	}
	require.Greater(t, n, 50)
}

// A client may choose a key, again too, and ask for several answers.
func TestKeysAndSamplesOfTheClientsChoice(t *testing.T) {
	for _, mode := range []string{Push, Pull} {
		t.Run(mode, func(t *testing.T) {
			s := startStack(t, adapters.Config{Mode: mode})
			prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
			right := s.Reference(prompt, 3)
			for i, id := range []string{"a", "b"} {
				a, err := s.Generate(t.Context(), adapters.Request{ID: id, Prompt: prompt, Output: 3, Handoff: "room-77"})
				require.NoError(t, err)
				require.Equal(t, right, a.Tokens, "use %d of the key", i)
			}
			a, err := s.Generate(t.Context(), adapters.Request{ID: "c", Prompt: prompt, Output: 3, Samples: 3})
			require.NoError(t, err)
			require.Equal(t, slices.Repeat(right, 3), a.Tokens)
			a, err = s.Generate(t.Context(), adapters.Request{ID: "d", Prompt: make([]int32, s.Limits().PrefillTokens+1), Output: 3, Samples: 2})
			require.NoError(t, err)
			require.Equal(t, spec.OutcomeRejected, a.Outcome, "the first sample's refusal is the answer")
			s.awaitIdle()
			require.NoError(t, s.Stop(t.Context()))
			keys := map[string]bool{}
			for _, e := range s.trace().Events {
				if e.K == spec.KindOffer {
					keys[e.Handoff] = true
				}
			}
			require.True(t, keys["room-77"] && keys["room-77#1"], "%v", keys)
			require.Len(t, keys, 7, "each sample has a key of its own")
		})
	}
}

// Each rank writes its share of every block, and each rank of decode has all of them.
func TestRanksShareTheWork(t *testing.T) {
	s := startStack(t, adapters.Config{Mode: Push, Topology: adapters.Topology{PrefillTP: 2, DecodeTP: 2}})
	for i, n := range []int{1, 3, 5, 8, 37, 64} {
		prompt := make([]int32, n)
		a := s.generate(fmt.Sprintf("r-%d", i), prompt, 5, i%2 == 0)
		require.Equal(t, adapters.Answer{Status: http.StatusOK, Tokens: s.Reference(prompt, 5), Outcome: spec.OutcomeOK}, a, "%d tokens", n)
	}
	a := s.generate("too-long", make([]int32, s.Limits().PrefillTokens+1), 2, false)
	require.Equal(t, spec.OutcomeRejected, a.Outcome)
	s.awaitIdle()
	require.NoError(t, s.Stop(t.Context()))
	wrote, took := map[string]bool{}, map[string]bool{}
	for _, e := range s.trace().Events {
		if e.K == spec.KindBegin && e.Mode == "w" && e.Pool == "kv" && e.Handoff != "" {
			wrote[e.Src], took[e.Target] = true, true
		}
	}
	require.Equal(t, map[string]bool{"prefill-0": true, "prefill-0.r1": true}, wrote)
	require.Equal(t, map[string]bool{"decode-0": true, "decode-0.r1": true}, took)
}
