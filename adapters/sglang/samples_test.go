package sglang

import (
	"testing"

	"conform/adapters"
	"conform/spec"

	"github.com/stretchr/testify/require"
)

func TestSeveralAnswersToOnePrompt(t *testing.T) {
	const ok, short = `{"output_ids":[1,2],"meta_info":{"finish_reason":{"type":"length"}}}`, `{"output_ids":[1],"meta_info":{"finish_reason":{"type":"length"}}}`
	const aborted, failed = `{"output_ids":[],"meta_info":{"finish_reason":{"type":"abort"}}}`, `{"output_ids":[],"meta_info":{"finish_reason":{"type":"abort","status_code":500}}}`
	for name, c := range map[string]struct {
		text    string
		outcome spec.Outcome
		status  int
		tokens  []int32
	}{
		"both whole":    {"[" + ok + "," + ok + "]", spec.OutcomeOK, 200, []int32{1, 2, 1, 2}},
		"one short":     {"[" + ok + "," + short + "]", spec.OutcomeLength, 200, []int32{1, 2, 1}},
		"one missing":   {"[" + ok + "]", spec.OutcomeLength, 200, []int32{1, 2}},
		"one cancelled": {"[" + aborted + "," + ok + "]", spec.OutcomeCancelled, 200, []int32{1, 2}},
		"one failed":    {"[" + ok + "," + failed + "]", spec.OutcomeError, 500, []int32{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			body := generateBody{Sampling: greedy(2)}
			require.NoError(t, sampled(body, adapters.Request{Samples: 2}))
			a := adapters.Answer{Status: 200}
			require.NoError(t, readSamples([]byte(c.text), &a, body))
			require.Equal(t, adapters.Answer{Status: c.status, Tokens: c.tokens, Outcome: c.outcome}, a)
		})
	}
	require.Error(t, readSamples([]byte("[1"), &adapters.Answer{}, generateBody{}))
	require.ErrorIs(t, sampled(generateBody{}, adapters.Request{Samples: 2, Stream: true}), adapters.ErrUnsupported)
	one := generateBody{Sampling: greedy(2)}
	require.NoError(t, sampled(one, adapters.Request{}))
	require.NotContains(t, one.Sampling, "n")
}
