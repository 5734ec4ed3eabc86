package reference

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"conform/adapters"
	"conform/spec"
)

// maxAnswer bounds what a client reads of one answer, in bytes.
const maxAnswer = 16 << 20

// Generate sends POST /generate to the router and reads the answer's lines.
func (s *stack) Generate(ctx context.Context, r adapters.Request) (adapters.Answer, error) {
	if r.Prefill != 0 || r.Decode != 0 || r.Samples > maxSamples {
		return adapters.Answer{}, fmt.Errorf("request %s chooses its workers, or wants more than %d answers: %w", r.ID, maxSamples, adapters.ErrUnsupported)
	}
	resp, err := adapters.PostJSON(ctx, s.users, s.clientHTTP.Addr(), "/generate", clientRequest{Req: r.ID, Prompt: r.Prompt, MaxNew: r.Output, Stream: r.Stream, Handoff: r.Handoff, Samples: r.Samples})
	if err != nil {
		return adapters.Answer{Outcome: spec.OutcomeError}, err
	}
	defer resp.Body.Close()
	a := adapters.Answer{Status: resp.StatusCode, Outcome: spec.OutcomeError}
	lines := bufio.NewReader(io.LimitReader(resp.Body, maxAnswer))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return a, fmt.Errorf("the answer ends without its last line: %w", err)
		}
		var l legAnswer
		if err := json.Unmarshal(line, &l); err != nil {
			return a, errors.Join(errors.New("a line of the answer is no JSON"), err)
		}
		a.Tokens = append(a.Tokens, l.Tokens...)
		if !l.Done && l.Error == "" {
			continue
		}
		if l.Status != 0 {
			a.Status = l.Status
		}
		a.Outcome = told(a.Status, spec.Outcome(l.Outcome))
		return a, nil
	}
}

// told is what a client takes an answer for.
func told(status int, outcome spec.Outcome) spec.Outcome {
	switch {
	case status < 300 && outcome == spec.OutcomeLength:
		return spec.OutcomeLength
	case status < 300:
		return spec.OutcomeOK
	case outcome == spec.OutcomeRejected:
		return spec.OutcomeRejected
	case status == statusCancelled:
		return spec.OutcomeCancelled
	}
	return spec.OutcomeError
}

// statusCancelled is what a client is told whose request was given up.
const statusCancelled = 499

// Abort sends POST /abort to the router, or to one stage as the router does.
func (s *stack) Abort(ctx context.Context, id string, at spec.Role) error {
	switch at {
	case "", spec.RoleRouter:
		return s.abortAt(ctx, s.clientHTTP.Addr(), id, clientRequest{Req: id})
	case spec.RolePrefill, spec.RoleDecode:
		for _, rank := range s.places(at) {
			if err := s.abortAt(ctx, s.http[rank].Addr(), id, leg{Req: id}); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("abort at %q: %w", at, adapters.ErrUnsupported)
}

func (s *stack) abortAt(ctx context.Context, addr, id string, body any) error {
	resp, err := adapters.PostJSON(ctx, s.users, addr, "/abort", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("abort %s: %s", id, resp.Status)
	}
	return nil
}
