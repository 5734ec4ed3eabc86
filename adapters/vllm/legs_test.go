package vllm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/faults"
	"conform/spec"
)

// stage is a worker as far as the router sees it.
type stage struct {
	mu     sync.Mutex
	bodies []map[string]any
	answer http.HandlerFunc
}

func (g *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b map[string]any
	_ = json.NewDecoder(r.Body).Decode(&b)
	g.mu.Lock()
	g.bodies = append(g.bodies, b)
	answer := g.answer
	g.mu.Unlock()
	answer(w, r)
}

func says(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

const (
	whole     = `{"choices":[{"token_ids":[5,6],"finish_reason":"length"}]}`
	prefilled = `{"choices":[{"token_ids":[5],"finish_reason":"length"}],"kv_transfer_params":{"remote_block_ids":[[1,2]],"remote_request_id":"x"}}`
)

// routed is a stack without processes: proxies, and stages behind them.
func routed(t *testing.T, mode string) (*stack, map[string]*stage) {
	t.Helper()
	plan, err := faults.ParsePlan("none", []byte("rules: []"))
	require.NoError(t, err)
	engine, err := faults.NewEngine(plan, 1, faults.EngineOptions{})
	require.NoError(t, err)
	s := newStack(&Adapter{}, adapters.Config{Mode: mode, Engine: engine, Topology: adapters.Topology{Decode: 2}, Dir: t.TempDir()})
	stages := map[string]*stage{}
	for _, m := range s.members {
		g := &stage{answer: says(200, whole)}
		if m.worker.role == spec.RolePrefill {
			g.answer = says(200, prefilled)
		}
		server := httptest.NewServer(g)
		t.Cleanup(server.Close)
		_, port, err := net.SplitHostPort(server.Listener.Addr().String())
		require.NoError(t, err)
		m.worker.ports.http, err = strconv.Atoi(port)
		require.NoError(t, err)
		m.worker.ports.side = 99
		stages[m.worker.id] = g
	}
	require.NoError(t, s.openProxies())
	t.Cleanup(func() {
		engine.Close()
		require.NoError(t, s.Stop(context.Background()))
		require.NoError(t, s.Stop(context.Background()), "it may be called again")
	})
	return s, stages
}

// NIXL: what prefill answered is what decode is handed, letter by letter.
func TestSerialLegs(t *testing.T) {
	s, stages := routed(t, NIXL)
	answer, err := s.Generate(t.Context(), adapters.Request{ID: "r-0001", Prompt: []int32{1, 2}, Output: 2, Decode: 1})
	require.NoError(t, err)
	require.Equal(t, adapters.Answer{Status: 200, Tokens: []int32{5, 6}, Outcome: spec.OutcomeOK}, answer)
	p, d := stages["prefill-0"].bodies[0], stages["decode-1"].bodies[0]
	require.Empty(t, stages["decode-0"].bodies)
	require.EqualValues(t, 1, p["max_tokens"])
	require.EqualValues(t, 2, d["max_tokens"])
	require.Equal(t, true, p["kv_transfer_params"].(map[string]any)["do_remote_decode"])
	require.Equal(t, map[string]any{"remote_block_ids": []any{[]any{1.0, 2.0}}, "remote_request_id": "x"}, d["kv_transfer_params"])
	require.Equal(t, []any{"r-0001", "r-0001"}, []any{p["request_id"], d["request_id"]})

	_, err = s.Generate(t.Context(), adapters.Request{ID: "r-0002", Prompt: []int32{1, 2}, Output: 2, Handoff: "kv-r-0001"})
	require.NoError(t, err)
	require.Len(t, stages["prefill-0"].bodies, 1, "a reference that is used again asks nobody")
	require.Equal(t, d["kv_transfer_params"], stages["decode-0"].bodies[0]["kv_transfer_params"])
	for _, r := range []adapters.Request{{Handoff: "kv-r-0009"}, {Prefill: 1}, {Decode: 2}, {Decode: -1}, {Samples: 2}} {
		_, err := s.Generate(t.Context(), r)
		require.ErrorIs(t, err, adapters.ErrUnsupported, r)
	}
}

// A request that prefill does not serve never reaches decode, and the client is told so.
func TestSerialLegsEndAtPrefill(t *testing.T) {
	s, stages := routed(t, NIXL)
	for text, want := range map[string]adapters.Answer{
		`400 {}`: {Status: 400, Outcome: spec.OutcomeRejected},
		`503 {}`: {Status: 503, Outcome: spec.OutcomeError},
		`200 {"choices":[{"token_ids":[],"finish_reason":"abort"}]}`: {Status: 200, Outcome: spec.OutcomeCancelled},
	} {
		status, _ := strconv.Atoi(text[:3])
		stages["prefill-0"].answer = says(status, text[4:])
		got, err := s.Generate(t.Context(), adapters.Request{ID: "r-0001", Prompt: []int32{1}, Output: 2})
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	stages["prefill-0"].answer = says(200, whole[:len(whole)-1]+`,"kv_transfer_params":null}`)
	got, err := s.Generate(t.Context(), adapters.Request{ID: "r-0001", Prompt: []int32{1}, Output: 1})
	require.ErrorIs(t, err, errNoReference)
	require.Equal(t, spec.OutcomeError, got.Outcome)
	require.Empty(t, stages["decode-0"].bodies)
}

// Mooncake: both stages are told the same transfer, and decode where prefill is.
func TestParallelLegs(t *testing.T) {
	s, stages := routed(t, Mooncake)
	stages["prefill-0"].answer = says(500, "")
	answer, err := s.Generate(t.Context(), adapters.Request{ID: "r-0001", Prompt: []int32{1, 2}, Output: 2})
	require.NoError(t, err)
	require.Equal(t, spec.OutcomeOK, answer.Outcome, "what prefill says, decode must learn by itself")
	require.Equal(t, map[string]any{"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": "kv-r-0001"}, stages["prefill-0"].bodies[0]["kv_transfer_params"])
	require.Equal(t, map[string]any{
		"do_remote_decode": false, "do_remote_prefill": true, "transfer_id": "kv-r-0001",
		"remote_engine_id": "prefill-0", "remote_bootstrap_addr": "http://" + s.members[0].between.Side("decode-0"),
	}, stages["decode-0"].bodies[0]["kv_transfer_params"])
	_, err = s.Generate(t.Context(), adapters.Request{ID: "r-0002", Prompt: []int32{1, 2}, Output: 2, Handoff: "kv-r-0001"})
	require.NoError(t, err)
	require.Equal(t, "kv-r-0001", stages["decode-0"].bodies[1]["kv_transfer_params"].(map[string]any)["transfer_id"])
}

func TestAnswersOfALeg(t *testing.T) {
	finish := func(tokens, reason string) string {
		return `{"choices":[{"token_ids":` + tokens + `,"finish_reason":` + reason + `}]}`
	}
	for text, want := range map[string]adapters.Answer{
		whole:                             {Status: 200, Tokens: []int32{5, 6}, Outcome: spec.OutcomeOK},
		finish("[5]", `"length"`):         {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeLength},
		finish("[5]", `"stop"`):           {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeOK},
		finish("[5]", `"abort"`):          {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeCancelled},
		finish("[5]", `"error"`):          {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeError},
		finish("[5]", `null`):             {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeError},
		`{"choices":[]}`:                  {Status: 200, Outcome: spec.OutcomeError},
		`{"error":{"code":400}}`:          {Status: 400, Outcome: spec.OutcomeRejected},
		`{"error":{"code":503}}`:          {Status: 503, Outcome: spec.OutcomeError},
		`{"error":{"message":"no code"}}`: {Status: 500, Outcome: spec.OutcomeError},
	} {
		a := adapters.Answer{Status: 200, Outcome: spec.OutcomeError}
		_, err := readWhole(strings.NewReader(text), &a, 2)
		require.NoError(t, err, text)
		require.Equal(t, want, a, text)
	}
	for name, text := range map[string]string{"no JSON": "<html>", "nothing": "", "too long": `"` + strings.Repeat("x", fleet.MaxAnswer)} {
		a := adapters.Answer{}
		_, err := readWhole(strings.NewReader(text), &a, 2)
		require.Error(t, err, name)
	}
}

func event(tokens, finish string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"token_ids\":%s,\"finish_reason\":%s}]}\n\n", tokens, finish)
}

func TestStreams(t *testing.T) {
	const done = "data: [DONE]\n\n"
	for text, want := range map[string]adapters.Answer{
		event("[5]", "null") + ": a comment\n\n" + event("[6]", `"length"`) + done: {Status: 200, Tokens: []int32{5, 6}, Outcome: spec.OutcomeOK},
		event("[5]", `"length"`) + "data: {\"choices\":[]}\n\n" + done:             {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeLength},
		event("[5]", "null") + done:                                                {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeError},
		event("[5]", "null") + "data: {\"error\":{\"code\":500}}\n\n" + done:       {Status: 500, Tokens: []int32{5}, Outcome: spec.OutcomeError},
	} {
		a := adapters.Answer{Status: 200, Outcome: spec.OutcomeError}
		require.NoError(t, readStream(strings.NewReader(text), &a, 2), text)
		require.Equal(t, want, a, text)
	}
	for name, text := range map[string]string{"torn": event("[5]", "null"), "no JSON": "data: {\n", "nothing": "", "too long": "data: " + strings.Repeat("x", fleet.MaxAnswer+1)} {
		a := adapters.Answer{Status: 200, Outcome: spec.OutcomeError}
		require.Error(t, readStream(strings.NewReader(text), &a, 2), name)
		require.Equal(t, spec.OutcomeError, a.Outcome)
	}
}

// hangs answers a leg only when its connection is closed.
func hangs(reached, closed chan<- string, id string) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		reached <- id
		<-r.Context().Done()
		closed <- id
	}
}

// When a client goes away, both of its connections are closed; Abort closes one.
func TestGivingUpClosesConnections(t *testing.T) {
	s, stages := routed(t, Mooncake)
	reached, closed := make(chan string, 2), make(chan string, 2)
	for _, id := range []string{"prefill-0", "decode-0"} {
		stages[id].answer = hangs(reached, closed, id)
	}
	type told struct {
		answer adapters.Answer
		err    error
	}
	ask := func(ctx context.Context) <-chan told {
		done := make(chan told, 1)
		go func() {
			a, err := s.Generate(ctx, adapters.Request{ID: "r-0001", Prompt: []int32{1}, Output: 2})
			done <- told{a, err}
		}()
		<-reached
		<-reached
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := ask(ctx)
	cancel()
	require.ErrorIs(t, (<-done).err, context.Canceled)
	require.ElementsMatch(t, []string{"prefill-0", "decode-0"}, []string{<-closed, <-closed})

	done = ask(t.Context())
	require.NoError(t, s.Abort(t.Context(), "r-0001", spec.RolePrefill))
	require.Equal(t, "prefill-0", <-closed, "that stage alone")
	require.NoError(t, s.Abort(t.Context(), "r-0002", ""), "of another request, nothing")
	require.Empty(t, closed)
	require.NoError(t, s.Abort(t.Context(), "r-0001", ""))
	require.Equal(t, "decode-0", <-closed)
	got := <-done
	require.NoError(t, got.err)
	require.Equal(t, spec.OutcomeCancelled, got.answer.Outcome)
	require.Zero(t, s.active.Load())
	require.Empty(t, s.open)
	require.ErrorIs(t, s.Abort(t.Context(), "r-0001", spec.RoleStore), adapters.ErrUnsupported)
}

func TestFill(t *testing.T) {
	s, stages := routed(t, NIXL)
	require.NoError(t, s.Fill(t.Context(), "decode", 20, 3))
	require.NoError(t, s.Fill(t.Context(), "prefill-0", 20, 1))
	filled := stages["decode-0"].bodies[0]
	require.Nil(t, filled["kv_transfer_params"])
	require.Len(t, filled["prompt"], 20)
	require.NotEqual(t, filled["prompt"], stages["prefill-0"].bodies[0]["prompt"], "no two share a beginning")
	stages["decode-0"].answer = says(503, "")
	require.ErrorContains(t, s.Fill(t.Context(), "decode-0", 20, 3), "503")
	require.Error(t, s.Fill(t.Context(), "nobody", 20, 3))
	require.ErrorIs(t, s.Fill(t.Context(), "decode-0", -1, 3), adapters.ErrUnsupported)
}

// References are not kept for ever.
func TestReferencesAreForgotten(t *testing.T) {
	s, _ := routed(t, NIXL)
	for i := range maxKept + 5 {
		s.keep(fmt.Sprint("kv-", i), json.RawMessage("{}"))
	}
	require.Len(t, s.references, maxKept)
	require.Len(t, s.kept, maxKept)
	require.NotContains(t, s.references, "kv-0")
	require.Contains(t, s.references, fmt.Sprint("kv-", maxKept+4))
}

func TestPointOf(t *testing.T) {
	require.Equal(t, faults.Point{Req: "r-0001", Handoff: "kv-r-0001"}, pointOf(nil, []byte(`{"request_id":"r-0001"}`)))
	require.Equal(t, faults.Point{}, pointOf(nil, []byte(`{"request_id":7}`)))
	require.Equal(t, faults.Point{}, pointOf(nil, []byte(`{}`)))
}
