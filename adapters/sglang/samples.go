package sglang

import (
	"encoding/json"
	"fmt"

	"conform/adapters"
	"conform/spec"
)

// sampled asks for several answers to the one prompt.
func sampled(body generateBody, r adapters.Request) error {
	switch {
	case r.Samples <= 1:
	case r.Stream:
		return fmt.Errorf("request %s wants a stream of %d answers: %w", r.ID, r.Samples, adapters.ErrUnsupported)
	default:
		body.Sampling["n"] = r.Samples
	}
	return nil
}

// readSamples reads the answers to one prompt. One that failed makes the whole fail,
// and one that is missing makes it short.
func readSamples(b []byte, a *adapters.Answer, body generateBody) error {
	var all []part
	if err := json.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("the answers are no JSON: %w", err)
	}
	status, outcome := a.Status, spec.OutcomeOK
	for _, p := range all {
		one := adapters.Answer{Status: status, Tokens: p.Output, Outcome: spec.OutcomeError}
		conclude(&one, p, body)
		a.Tokens = append(a.Tokens, p.Output...)
		if one.Outcome != spec.OutcomeOK && outcome == spec.OutcomeOK {
			outcome, a.Status = one.Outcome, one.Status
		}
	}
	if n, _ := body.Sampling["n"].(int); outcome == spec.OutcomeOK && n != len(all) {
		outcome = spec.OutcomeLength
	}
	a.Outcome = outcome
	return nil
}
