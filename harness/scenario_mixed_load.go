package harness

import (
	"time"

	"conform/spec"
)

func mixedLoad() Scenario {
	sglang := engineWorkload()
	sglang.clients, sglang.requests, sglang.output = 4, 300, [2]int{1, 48}
	sglang.pause, sglang.prefixEvery = [2]time.Duration{0, 20 * time.Millisecond}, 3
	vllm := sglang
	vllm.clients = 3
	reference := plainWorkload()
	reference.requests, reference.prefixEvery = 300, 3
	return Scenario{
		ID: "mixed-load", Title: "Hundreds of requests of every size, prompts that share their beginnings, no faults",
		Why:      "A judge that cries wolf is not listened to. Nothing is in the way here: what is found must be there.",
		Branches: []string{"a block was reused", "answers were streamed"},
		shapes: map[string]shape{
			onReference: {workload: reference},
			onSGLang:    {workload: sglang, branches: []string{"a request read another's pages from the prefix cache"}},
			onVLLM:      {workload: vllm},
		},
		reach: map[string]func(*recorded) bool{
			"a block was reused":    reused(time.Hour),
			"answers were streamed": kindAt(spec.RoleDecode, spec.KindOutput),
			"a request read another's pages from the prefix cache": func(r *recorded) bool {
				return r.any(func(e *spec.Event) bool {
					return e.K == spec.KindHold && e.Req != "" && r.role[e.Src] == spec.RolePrefill
				})
			},
		},
	}
}
