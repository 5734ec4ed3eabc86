package sglang

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/adapters/engines/fleet"
	"conform/faults"
	"conform/spec"
)

// stage is a worker as far as its clients see it.
type stage struct {
	mu     sync.Mutex
	bodies []map[string]any // of /generate
	aborts []string
	answer http.HandlerFunc // of /generate
}

func (g *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	g.mu.Lock()
	if r.URL.Path == "/abort_request" {
		g.aborts = append(g.aborts, fmt.Sprint(body["rid"]))
		g.mu.Unlock()
		return
	}
	g.bodies = append(g.bodies, body)
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

const whole = `{"output_ids":[5,6],"meta_info":{"completion_tokens":2,"finish_reason":{"type":"length"}}}`

// clients is a stack without processes: proxies, and stages behind them.
func clients(t *testing.T, topology adapters.Topology) (*stack, map[string]*stage) {
	t.Helper()
	plan, err := faults.ParsePlan("none", []byte("rules: []"))
	require.NoError(t, err)
	engine, err := faults.NewEngine(plan, 1, faults.EngineOptions{})
	require.NoError(t, err)
	s := newStack(&Adapter{}, adapters.Config{Mode: Mooncake, Engine: engine, Topology: topology, Dir: t.TempDir()})
	stages := map[string]*stage{}
	for _, m := range s.members {
		g := &stage{answer: says(200, whole)}
		server := httptest.NewServer(g)
		t.Cleanup(server.Close)
		_, port, err := net.SplitHostPort(server.Listener.Addr().String())
		require.NoError(t, err)
		m.worker.ports.http, err = strconv.Atoi(port)
		require.NoError(t, err)
		m.worker.ports.bootstrap = 1 // nobody
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

func TestBothLegs(t *testing.T) {
	s, stages := clients(t, adapters.Topology{Prefill: 2, Decode: 2})
	stages["prefill-1"].answer = says(400, `{"error":{"message":"too long"}}`)
	answer, err := s.Generate(t.Context(), adapters.Request{ID: "r-0001", Prompt: []int32{1, 2}, Output: 2, Prefill: 1, Decode: 1, Handoff: "room-77"})
	require.NoError(t, err)
	require.Equal(t, adapters.Answer{Status: 200, Tokens: []int32{5, 6}, Outcome: spec.OutcomeOK}, answer, "decode answers; what prefill says, decode must learn by itself")
	p, d := stages["prefill-1"].bodies, stages["decode-1"].bodies
	require.Len(t, p, 1)
	require.Len(t, d, 1)
	require.Empty(t, stages["prefill-0"].bodies)
	require.EqualValues(t, 1, p[0]["bootstrap_port"])
	_, proxy, err := net.SplitHostPort(s.members[1].between.Bootstrap("decode-1"))
	require.NoError(t, err)
	require.Equal(t, proxy, fmt.Sprint(d[0]["bootstrap_port"]))
	delete(p[0], "bootstrap_port")
	delete(d[0], "bootstrap_port")
	require.Equal(t, p[0], d[0])
	require.EqualValues(t, 77, p[0]["bootstrap_room"])
	require.Equal(t, "r-0001", p[0]["rid"])

	for _, r := range []adapters.Request{{Prefill: 2}, {Decode: 2}, {Prefill: -1}, {Decode: -1}, {Handoff: "x"}} {
		_, err := s.Generate(t.Context(), r)
		require.ErrorIs(t, err, adapters.ErrUnsupported, r)
	}
}

func TestAnswersOfALeg(t *testing.T) {
	s, stages := clients(t, adapters.Topology{})
	ask := func(stream bool, h http.HandlerFunc) (adapters.Answer, error) {
		stages["decode-0"].mu.Lock()
		stages["decode-0"].answer = h
		stages["decode-0"].mu.Unlock()
		return s.Generate(t.Context(), adapters.Request{ID: "r-0001", Prompt: []int32{1}, Output: 2, Stream: stream})
	}
	finish := func(text string) string { return `{"output_ids":[5],"meta_info":{"finish_reason":` + text + `}}` }
	for text, want := range map[string]adapters.Answer{
		whole:                                        {Status: 200, Tokens: []int32{5, 6}, Outcome: spec.OutcomeOK},
		finish(`{"type":"length"}`):                  {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeLength},
		finish(`{"type":"stop"}`):                    {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeOK},
		finish(`{"type":"abort"}`):                   {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeCancelled},
		finish(`null`):                               {Status: 200, Tokens: []int32{5}, Outcome: spec.OutcomeError},
		`{"error":{"code":400}}`:                     {Status: 400, Outcome: spec.OutcomeRejected},
		`{"error":{"code":503}}`:                     {Status: 503, Outcome: spec.OutcomeError},
		`{"error":"in words"}`:                       {Status: 500, Outcome: spec.OutcomeError},
		`{"error":null,` + whole[1:]:                 {Status: 200, Tokens: []int32{5, 6}, Outcome: spec.OutcomeOK},
		finish(`{"type":"abort","status_code":503}`): {Status: 503, Tokens: []int32{5}, Outcome: spec.OutcomeError},
	} {
		got, err := ask(false, says(200, text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for status, outcome := range map[int]spec.Outcome{400: spec.OutcomeRejected, 500: spec.OutcomeError, 503: spec.OutcomeError} {
		for _, stream := range []bool{false, true} {
			got, err := ask(stream, says(status, "no JSON at all"))
			require.NoError(t, err)
			require.Equal(t, adapters.Answer{Status: status, Outcome: outcome}, got)
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"no JSON": says(200, "<html>"), "nothing": says(200, ""),
		"too long": says(200, `"`+strings.Repeat("x", fleet.MaxAnswer)),
		"torn": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, whole)
		},
	} {
		_, err := ask(false, h)
		require.Error(t, err, name)
	}
}

func event(tokens string, count int, finish string) string {
	if finish != "" {
		finish = `,"finish_reason":{"type":"` + finish + `"}`
	}
	return fmt.Sprintf("data: {\"output_ids\":%s,\"meta_info\":{\"completion_tokens\":%d%s}}\n\n", tokens, count, finish)
}

func TestStreams(t *testing.T) {
	const done = "data: [DONE]\n\n"
	body := generateBody{Sampling: greedy(3)}
	for name, c := range map[string]struct {
		text string
		want []int32
	}{
		"cumulative":          {event("[5]", 1, "") + ": a comment\n\n" + event("[5,5]", 2, "") + event("[5,5,6]", 3, "length") + done, []int32{5, 5, 6}},
		"incremental":         {event("[5]", 1, "") + event("[5]", 2, "") + event("[5]", 3, "length") + done, []int32{5, 5, 5}},
		"incremental, longer": {event("[5]", 1, "") + event("[5,6]", 3, "length") + done, []int32{5, 5, 6}},
		"without a count":     {event("[5]", 0, "") + event("[5,6]", 0, "") + event("[7]", 0, "length") + done, []int32{5, 6, 7}},
		"an empty last one":   {event("[5,6,7]", 3, "") + event("[]", 3, "length") + done, []int32{5, 6, 7}},
	} {
		a := adapters.Answer{Status: 200}
		require.NoError(t, readStream(strings.NewReader(c.text), &a, body), name)
		require.Equal(t, adapters.Answer{Status: 200, Tokens: c.want, Outcome: spec.OutcomeOK}, a, name)
	}
	a := adapters.Answer{Status: 200}
	require.NoError(t, readStream(strings.NewReader(event("[5]", 1, "")+`data: {"error":{"code":400}}`+"\n\n"+done), &a, body))
	require.Equal(t, adapters.Answer{Status: 400, Tokens: []int32{5}, Outcome: spec.OutcomeRejected}, a)
	for name, text := range map[string]string{"torn": event("[5]", 1, ""), "no JSON": "data: {\n", "nothing": ""} {
		a := adapters.Answer{Status: 200, Outcome: spec.OutcomeError}
		require.Error(t, readStream(strings.NewReader(text), &a, body), name)
		require.Equal(t, spec.OutcomeError, a.Outcome)
	}
	require.ErrorIs(t, readStream(io.MultiReader(strings.NewReader("data: "), endless{}), &a, body), fleet.ErrTooLong)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// When a client goes away, both of its connections are closed.
func TestCancellationClosesBothLegs(t *testing.T) {
	s, stages := clients(t, adapters.Topology{})
	reached, closed := make(chan string, 2), make(chan string, 2)
	for id, g := range stages {
		g.answer = func(_ http.ResponseWriter, r *http.Request) {
			reached <- id
			<-r.Context().Done()
			closed <- id
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		<-reached
		cancel()
	}()
	answer, err := s.Generate(ctx, adapters.Request{ID: "r-0001", Prompt: []int32{1}, Output: 2})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, adapters.Answer{Outcome: spec.OutcomeError}, answer)
	require.ElementsMatch(t, []string{"prefill-0", "decode-0"}, []string{<-closed, <-closed})
	require.Zero(t, s.active.Load())
}

func TestAbort(t *testing.T) {
	s, stages := clients(t, adapters.Topology{Decode: 2})
	require.NoError(t, s.Abort(t.Context(), "r-0001", ""))
	require.NoError(t, s.Abort(t.Context(), "r-0002", spec.RolePrefill))
	require.Equal(t, []string{"r-0001"}, stages["decode-0"].aborts)
	require.Equal(t, []string{"r-0001"}, stages["decode-1"].aborts)
	require.Equal(t, []string{"r-0002"}, stages["prefill-0"].aborts)
	require.ErrorIs(t, s.Abort(t.Context(), "r-0001", spec.RoleStore), adapters.ErrUnsupported)
	require.NoError(t, s.members[1].http.Close())
	err := s.Abort(t.Context(), "r-0003", spec.RoleDecode)
	require.ErrorContains(t, err, "decode-0")
	require.Equal(t, []string{"r-0001", "r-0003"}, stages["decode-1"].aborts, "one that is gone keeps it from no other")
}

func TestFill(t *testing.T) {
	s, stages := clients(t, adapters.Topology{})
	require.NoError(t, s.Fill(t.Context(), "decode", 20, 3))
	require.NoError(t, s.Fill(t.Context(), "prefill-0", 20, 1))
	body := stages["decode-0"].bodies[0]
	require.Equal(t, fakeHost, body["bootstrap_host"])
	require.Len(t, body["input_ids"], 20)
	require.NotEqual(t, body["input_ids"], stages["prefill-0"].bodies[0]["input_ids"], "no two share a beginning")
	stages["decode-0"].answer = says(503, "")
	require.ErrorContains(t, s.Fill(t.Context(), "decode-0", 20, 3), "503")
	require.Error(t, s.Fill(t.Context(), "nobody", 20, 3))
	require.ErrorIs(t, s.Fill(t.Context(), "decode-0", -1, 3), adapters.ErrUnsupported)
}

func TestProcessesThatAreNotThere(t *testing.T) {
	s, _ := clients(t, adapters.Topology{})
	require.Empty(t, s.Workers())
	for name, call := range map[string]func(context.Context, string) error{"pause": s.Pause, "resume": s.Resume, "kill": s.Kill, "restart": s.Restart} {
		require.ErrorContains(t, call(t.Context(), "decode"), "not started", name)
		require.ErrorContains(t, call(t.Context(), "nobody"), "nobody", name)
	}
	_, _, err := s.Idle(t.Context())
	require.Error(t, err)
	require.Empty(t, s.Served())
}

func TestAdapterThatIsNotOpen(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := New()
	_, err := a.Start(t.Context(), adapters.Config{})
	require.ErrorIs(t, err, fleet.ErrNotOpen)
	require.ErrorIs(t, a.Baseline(t.Context(), adapters.Config{}, nil), fleet.ErrNotOpen)
	require.NoError(t, a.Close())
	require.Error(t, a.Open(t.Context(), adapters.Config{Version: "9.9.9", Device: engines.CPU}))
	if _, err := engines.Find(t.Context(), "sglang@0.5.23", engines.CPU); err == nil {
		cfg := adapters.Config{Version: "0.5.23", Device: engines.CPU, Model: t.TempDir()}
		require.ErrorIs(t, a.Open(t.Context(), cfg), os.ErrNotExist)
		ctx, cancel := context.WithCancelCause(t.Context())
		cfg.Model = ""
		cancel(errors.New("the user has no patience"))
		require.Error(t, a.Open(ctx, cfg))
	}
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left of an Open that failed")
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
}
