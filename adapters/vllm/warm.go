package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"conform/adapters/engines/fleet"
	"conform/spec"
)

// warmName begins the ids of the requests below. No fault plan is about them: the
// probe leaves them out.
const warmName = "w-"

// warmTokens is the length of their prompts: two blocks and a part of one.
const warmTokens = 2*pageTokens + 5

// warm lets every worker do its first passes, which take seconds, and every pair its
// handshake, before a lease of a client's request depends on how long they take. A
// worker that can't serve is found here.
func (s *stack) warm(ctx context.Context) error {
	passes := make([]error, len(s.members))
	var first sync.WaitGroup
	for i, m := range s.members {
		first.Go(func() {
			passes[i] = s.warmLeg(ctx, m, i, 3, nil, nil)
		})
	}
	first.Wait()
	for _, err := range passes {
		if err != nil {
			return err
		}
	}
	if s.cfg.Mode != NIXL {
		return nil
	}
	n := len(s.members)
	for _, p := range fleet.Of(s.members, spec.RolePrefill) {
		for _, d := range fleet.Of(s.members, spec.RoleDecode) {
			var reference json.RawMessage
			if err := s.warmLeg(ctx, p, n, 1, json.RawMessage(askReference), &reference); err != nil {
				return err
			}
			if err := s.warmLeg(ctx, d, n, 3, reference, nil); err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

// warmLeg sends one request to one worker, past its proxy, and keeps the reference that
// it answers.
func (s *stack) warmLeg(ctx context.Context, m *member, n, output int, params json.RawMessage, reference *json.RawMessage) error {
	prompt := make([]int32, warmTokens)
	for i := range prompt {
		prompt[i] = int32(3 + (31*n+7*i)%1000)
	}
	b := newBody(fmt.Sprintf("%s%04d", warmName, n), prompt, output, false)
	b.KVParameters = params
	answer, given, err := s.leg(ctx, fleet.Local(m.worker.ports.http), b)
	for errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil { // older builds say that they serve before they listen
		time.Sleep(20 * time.Millisecond)
		answer, given, err = s.leg(ctx, fleet.Local(m.worker.ports.http), b)
	}
	if err == nil && answer.Outcome != spec.OutcomeOK {
		err = fmt.Errorf("it answered with status %d and outcome %q: %w", answer.Status, answer.Outcome, errUnfit)
	}
	if err != nil {
		return fmt.Errorf("the first request to %s: %w", m.Name(), err)
	}
	if reference != nil {
		*reference = given
	}
	return nil
}

// errUnfit is a worker that has started and does not serve.
var errUnfit = errors.New("the worker does not serve")
