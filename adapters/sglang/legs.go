package sglang

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/spec"
)

// fakeHost is the bootstrap host of a request that one worker serves alone.
const fakeHost = "2.2.2.2"

// generateBody is the body of POST /generate, the same for both legs but for the port.
type generateBody struct {
	ID       string         `json:"rid"`
	InputIDs []int32        `json:"input_ids"`
	Sampling map[string]any `json:"sampling_params"`
	Stream   bool           `json:"stream,omitempty"`
	Host     string         `json:"bootstrap_host,omitempty"`
	Port     int            `json:"bootstrap_port,omitempty"`
	Room     *uint64        `json:"bootstrap_room,omitempty"`
}

func greedy(n int) map[string]any {
	return map[string]any{"temperature": 0, "max_new_tokens": n, "ignore_eos": true}
}

// roomOf is the room of a request: a number that its id decides, so that a seed
// gives the same rooms again.
func roomOf(id string) uint64 {
	sum := sha256.Sum256([]byte("room of " + id))
	return binary.LittleEndian.Uint64(sum[:])>>2 | 1
}

// Generate sends both legs at once and answers with decode's, when both have
// ended, as SGLang's own small router does.
func (s *stack) Generate(ctx context.Context, r adapters.Request) (adapters.Answer, error) {
	room, err := roomFor(r)
	if err != nil {
		return adapters.Answer{}, err
	}
	p, d, err := fleet.Pair(s.members, r)
	if err != nil {
		return adapters.Answer{}, err
	}
	p.between.Name(room, r.ID)
	body := generateBody{ID: r.ID, InputIDs: r.Prompt, Sampling: greedy(r.Output), Stream: r.Stream, Host: "127.0.0.1", Room: &room}
	if err := sampled(body, r); err != nil {
		return adapters.Answer{}, err
	}
	var answer adapters.Answer
	var failure error
	var legs sync.WaitGroup
	legs.Go(func() {
		_, _ = s.leg(ctx, p.http.Addr(), body, p.worker.ports.bootstrap) // what it says, decode must learn by itself
	})
	legs.Go(func() {
		_, port, _ := strings.Cut(p.between.Bootstrap(d.worker.id), ":")
		n, _ := strconv.Atoi(port)
		answer, failure = s.leg(ctx, d.http.Addr(), body, n)
	})
	legs.Wait()
	return answer, failure
}

// roomFor is the room to use: room-7, or an earlier use of it such as room-7#1, is 7.
func roomFor(r adapters.Request) (uint64, error) {
	if r.Handoff == "" {
		return roomOf(r.ID), nil
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(r.Handoff, "room-"), "#")
	room, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("request %s is to use handoff %q: expected room-NUMBER: %w", r.ID, r.Handoff, adapters.ErrUnsupported)
	}
	return room, nil
}

// leg sends one leg and reads its answer.
func (s *stack) leg(ctx context.Context, addr string, body generateBody, port int) (adapters.Answer, error) {
	s.active.Add(1)
	defer s.active.Add(-1)
	body.Port = port
	resp, err := adapters.PostJSON(ctx, s.legs, addr, "/generate", body)
	if err != nil {
		return adapters.Answer{Outcome: spec.OutcomeError}, err
	}
	defer resp.Body.Close()
	answer := adapters.Answer{Status: resp.StatusCode, Outcome: spec.OutcomeError}
	if body.Stream && resp.StatusCode < 300 {
		err = readStream(resp.Body, &answer, body)
	} else {
		err = readWhole(resp.Body, &answer, body)
	}
	return answer, err
}

// part is an answer, or one piece of a stream of them.
type part struct {
	Output []int32 `json:"output_ids"`
	Meta   struct {
		Count  int `json:"completion_tokens"` // so far
		Finish *struct {
			Type   string `json:"type"`
			Status int    `json:"status_code"`
		} `json:"finish_reason"`
	} `json:"meta_info"`
	Error json.RawMessage `json:"error"`
}

func readWhole(r io.Reader, a *adapters.Answer, body generateBody) error {
	b, err := fleet.ReadAnswer(r)
	if err != nil {
		return err
	}
	if a.Status >= 300 {
		if a.Status == http.StatusBadRequest {
			a.Outcome = spec.OutcomeRejected
		}
		return nil
	}
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
		return readSamples(b, a, body)
	}
	var p part
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	a.Tokens = p.Output
	conclude(a, p, body)
	return nil
}

// readStream reads server-sent events: each holds all tokens so far, or those that
// are new, as the engine's options have it.
func readStream(r io.Reader, a *adapters.Answer, body generateBody) error {
	var last part
	err := fleet.ReadPieces(r, func(p part) {
		last = p
		a.Tokens = joined(a.Tokens, p)
	})
	if err == nil {
		conclude(a, last, body)
	}
	return err
}

// joined is what has come with the next piece. How many tokens there are says whether
// it repeats the earlier ones; where that is not said, it does if it begins with them.
func joined(before []int32, next part) []int32 {
	n := len(next.Output)
	all := n >= len(before) && slices.Equal(next.Output[:len(before)], before)
	switch next.Meta.Count {
	case n:
		all = true
	case len(before) + n:
		all = false
	}
	if all && n > 0 {
		return next.Output
	}
	return append(before, next.Output...)
}

// conclude is what a client takes a whole answer for.
func conclude(a *adapters.Answer, p part, body generateBody) {
	wanted, _ := body.Sampling["max_new_tokens"].(int)
	switch finish := p.Meta.Finish; {
	case len(p.Error) > 0 && string(p.Error) != "null":
		var e struct {
			Code int `json:"code"`
		}
		_ = json.Unmarshal(p.Error, &e)
		a.Status = max(e.Code, http.StatusInternalServerError)
		if e.Code == http.StatusBadRequest {
			a.Status, a.Outcome = e.Code, spec.OutcomeRejected
		}
	case finish == nil:
	case finish.Type == "abort":
		a.Outcome = spec.OutcomeCancelled
		if finish.Status != 0 {
			a.Status, a.Outcome = finish.Status, spec.OutcomeError
		}
	case finish.Type == "length" && len(a.Tokens) < wanted:
		a.Outcome = spec.OutcomeLength
	default:
		a.Outcome = spec.OutcomeOK
	}
}

// Abort asks a stage to give a request up. The client's own API is decode's: the
// stage that answers it.
func (s *stack) Abort(ctx context.Context, id string, at spec.Role) error {
	if at == "" || at == spec.RoleRouter {
		at = spec.RoleDecode
	}
	to := fleet.Of(s.members, at)
	if len(to) == 0 {
		return fmt.Errorf("abort at %q: %w", at, adapters.ErrUnsupported)
	}
	errs := make([]error, len(to)) // one that is gone must not keep it from the others
	for i, m := range to {
		resp, err := adapters.PostJSON(ctx, s.legs, m.http.Addr(), "/abort_request", map[string]any{"rid": id})
		if err != nil {
			errs[i] = fmt.Errorf("abort %s at %s: %w", id, m.Name(), err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode >= 300 {
			errs[i] = fmt.Errorf("abort %s at %s: %s", id, m.Name(), resp.Status)
		}
	}
	return errors.Join(errs...)
}

// Fill lets one worker serve a request by itself.
func (s *stack) Fill(ctx context.Context, worker string, tokens, output int) error {
	m, err := fleet.Find(s.members, worker)
	if err != nil {
		return err
	}
	return s.Fleet.Fill(worker, tokens, output, func(n int, prompt []int32) (adapters.Answer, error) {
		room := uint64(n)
		body := generateBody{ID: fmt.Sprintf("f-%04d", n), InputIDs: prompt, Sampling: greedy(output), Host: fakeHost, Port: 1, Room: &room}
		return s.leg(ctx, fleet.Local(m.worker.ports.http), body, 1)
	})
}
