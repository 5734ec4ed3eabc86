package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/spec"
)

// completions is the path that requests go to.
const completions = "/v1/completions"

// body is the body of a request to a stage. Its fields are those of vLLM's API.
type body struct {
	ID           string          `json:"request_id"`
	Model        string          `json:"model"`
	Prompt       []int32         `json:"prompt"`
	MaxTokens    int             `json:"max_tokens"`
	Temperature  float64         `json:"temperature"`
	IgnoreEOS    bool            `json:"ignore_eos"`
	TokenIDs     bool            `json:"return_token_ids"`
	Detokenize   bool            `json:"detokenize"`
	Stream       bool            `json:"stream,omitempty"`
	KVParameters json.RawMessage `json:"kv_transfer_params,omitempty"`
}

func newBody(id string, prompt []int32, output int, stream bool) body {
	return body{ID: id, Model: servedName, Prompt: prompt, MaxTokens: output, IgnoreEOS: true, TokenIDs: true, Stream: stream}
}

// Generate sends the legs of a request as the connector's own routers do, and answers
// with decode's answer.
func (s *stack) Generate(ctx context.Context, r adapters.Request) (adapters.Answer, error) {
	if r.Samples > 1 {
		return adapters.Answer{}, fmt.Errorf("request %s wants %d answers: %w", r.ID, r.Samples, adapters.ErrUnsupported)
	}
	p, d, err := fleet.Pair(s.members, r)
	if err != nil {
		return adapters.Answer{}, err
	}
	if s.cfg.Mode == Mooncake {
		return s.parallel(ctx, p, d, r)
	}
	return s.serial(ctx, p, d, r)
}

// askReference asks prefill for a reference to the blocks that it computes.
const askReference = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// errNoReference is an answer of prefill that decode can't be handed.
var errNoReference = errors.New("prefill's answer has no kv_transfer_params")

// serial asks prefill first and hands its reference on to decode. A request that names
// an earlier handoff is for decode alone, with the reference of that one.
func (s *stack) serial(ctx context.Context, p, d *member, r adapters.Request) (adapters.Answer, error) {
	reference, err := s.referenceOf(r)
	if err != nil {
		return adapters.Answer{}, err
	}
	if reference == nil {
		first := newBody(r.ID, r.Prompt, 1, false)
		first.KVParameters = json.RawMessage(askReference)
		answer, params, err := s.stage(ctx, p, r.ID, first)
		if err != nil || answer.Outcome != spec.OutcomeOK {
			return adapters.Answer{Status: answer.Status, Outcome: answer.Outcome}, err // without tokens: the client's answer is decode's
		}
		if len(params) == 0 || string(params) == "null" {
			return adapters.Answer{Status: http.StatusBadGateway, Outcome: spec.OutcomeError}, errNoReference
		}
		s.keep(handoffOf(r.ID), params)
		reference = params
	}
	second := newBody(r.ID, r.Prompt, r.Output, r.Stream)
	if second.KVParameters, err = led(reference, p.between.Side(d.worker.id)); err != nil {
		return adapters.Answer{}, err
	}
	answer, _, err := s.stage(ctx, d, r.ID, second)
	return answer, err
}

// led is a reference that leads decode's handshake through a proxy. A reference that names
// no place stays as it is.
func led(reference json.RawMessage, proxy string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(reference, &fields); err != nil {
		return nil, fmt.Errorf("prefill's kv_transfer_params: %w", err)
	}
	if fields["remote_host"] == nil || fields["remote_port"] == nil {
		return reference, nil
	}
	host, port, err := net.SplitHostPort(proxy)
	if err != nil {
		return nil, err
	}
	fields["remote_host"], fields["remote_port"] = json.RawMessage(strconv.Quote(host)), json.RawMessage(port)
	return json.Marshal(fields)
}

// maxKept is how many references are kept for requests that use one again.
const maxKept = 1024

// keep remembers what prefill answered.
func (s *stack) keep(handoff string, reference json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.references[handoff]; !known {
		s.kept = append(s.kept, handoff)
	}
	s.references[handoff] = reference
	if len(s.kept) > maxKept {
		delete(s.references, s.kept[0])
		s.kept = s.kept[1:]
	}
}

// referenceOf is the reference that a request is to use; nil if prefill is to be asked.
func (s *stack) referenceOf(r adapters.Request) (json.RawMessage, error) {
	if r.Handoff == "" {
		return nil, nil
	}
	name, _, _ := strings.Cut(r.Handoff, "#")
	s.mu.Lock()
	defer s.mu.Unlock()
	if reference, ok := s.references[name]; ok {
		return reference, nil
	}
	return nil, fmt.Errorf("request %s is to use handoff %q, and no reference of that name is known: %w", r.ID, r.Handoff, adapters.ErrUnsupported)
}

// parallel asks both stages at once, under a transfer_id of its own making.
func (s *stack) parallel(ctx context.Context, p, d *member, r adapters.Request) (adapters.Answer, error) {
	id := handoffOf(r.ID)
	if r.Handoff != "" {
		id, _, _ = strings.Cut(r.Handoff, "#")
	}
	first, second := newBody(r.ID, r.Prompt, 1, false), newBody(r.ID, r.Prompt, r.Output, r.Stream)
	var err error
	if first.KVParameters, err = json.Marshal(map[string]any{"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": id}); err != nil {
		return adapters.Answer{}, err
	}
	second.KVParameters, err = json.Marshal(map[string]any{
		"do_remote_decode": false, "do_remote_prefill": true, "transfer_id": id,
		"remote_engine_id": p.Name(), "remote_bootstrap_addr": "http://" + p.between.Side(d.worker.id),
	})
	if err != nil {
		return adapters.Answer{}, err
	}
	var answer adapters.Answer
	var failure error
	var legs sync.WaitGroup
	legs.Go(func() { _, _, _ = s.stage(ctx, p, r.ID, first) }) // what it says, decode must learn by itself
	legs.Go(func() { answer, _, failure = s.stage(ctx, d, r.ID, second) })
	legs.Wait()
	return answer, failure
}

// errAborted is the cause of a leg that Abort has ended.
var errAborted = errors.New("the router has given the request up")

// stage sends one leg to a stage, through its proxy, so that Abort finds it.
func (s *stack) stage(ctx context.Context, m *member, req string, b body) (adapters.Answer, json.RawMessage, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	key := leg{req, m.worker.role}
	s.mu.Lock()
	s.open[key] = cancel
	s.mu.Unlock()
	answer, params, err := s.leg(ctx, m.http.Addr(), b)
	s.mu.Lock()
	delete(s.open, key)
	s.mu.Unlock()
	if errors.Is(context.Cause(ctx), errAborted) {
		return adapters.Answer{Status: answer.Status, Tokens: answer.Tokens, Outcome: spec.OutcomeCancelled}, nil, nil
	}
	return answer, params, err
}

// leg sends one leg to an address and reads its answer: what the client is told, and
// the parameters for the other stage.
func (s *stack) leg(ctx context.Context, addr string, b body) (adapters.Answer, json.RawMessage, error) {
	s.active.Add(1)
	defer s.active.Add(-1)
	answer := adapters.Answer{Outcome: spec.OutcomeError}
	resp, err := adapters.PostJSON(ctx, s.client, addr, completions, b)
	if err != nil {
		return answer, nil, err
	}
	defer resp.Body.Close()
	answer.Status = resp.StatusCode
	switch {
	case resp.StatusCode == http.StatusBadRequest:
		answer.Outcome = spec.OutcomeRejected
		return answer, nil, nil
	case resp.StatusCode >= 300:
		return answer, nil, nil
	case b.Stream:
		err = readStream(resp.Body, &answer, b.MaxTokens)
		return answer, nil, err
	}
	params, err := readWhole(resp.Body, &answer, b.MaxTokens)
	return answer, params, err
}

// Abort asks a stage to give a request up. vLLM has no call for that in its own API: a
// client, or a router, closes its connection, and so this does. Without a stage it is
// each that is being asked.
func (s *stack) Abort(_ context.Context, id string, at spec.Role) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at != "" && at != spec.RoleRouter && len(fleet.Of(s.members, at)) == 0 {
		return fmt.Errorf("abort at %q: %w", at, adapters.ErrUnsupported)
	}
	for key, cancel := range s.open {
		if key.req == id && (at == "" || at == spec.RoleRouter || key.role == at) {
			cancel(errAborted)
		}
	}
	return nil
}

// Fill lets one worker serve a request by itself.
func (s *stack) Fill(ctx context.Context, worker string, tokens, output int) error {
	m, err := fleet.Find(s.members, worker)
	if err != nil {
		return err
	}
	return s.Fleet.Fill(worker, tokens, output, func(n int, prompt []int32) (adapters.Answer, error) {
		answer, _, err := s.leg(ctx, fleet.Local(m.worker.ports.http), newBody(fmt.Sprintf("f-%04d", n), prompt, output, false))
		return answer, err
	})
}
