package harness

import (
	"time"

	"conform/spec"
)

func baseline() Scenario {
	return Scenario{
		ID: "baseline", Title: "Concurrent requests, no faults",
		Why: "The ground that all else stands on: many requests at once over small pools, blocks reused at once, prompts around block boundaries.",
		shapes: map[string]shape{
			onReference: {
				workload: plainWorkload(),
				branches: []string{"a block was reused within 10 ms", "a prompt went over in several chunks", "answers were streamed"},
			},
			onSGLang: {
				workload: engineWorkload(),
				branches: []string{"a block was reused"},
				reach:    map[string]func(*recorded) bool{"a block was reused": reused(time.Hour)},
			},
			onVLLM: {
				workload: engineWorkload(),
				branches: []string{"a block was reused", "an answer was compared with the right one"},
				reach:    map[string]func(*recorded) bool{"a block was reused": reused(time.Hour)},
			},
		},
		reach: map[string]func(*recorded) bool{
			"a block was reused within 10 ms":      reused(10 * time.Millisecond),
			"a prompt went over in several chunks": inChunks,
			"answers were streamed":                kindAt(spec.RoleDecode, spec.KindOutput),
			"an answer was compared with the right one": func(r *recorded) bool {
				return r.any(func(e *spec.Event) bool { return e.K == spec.KindAnswer && e.HasExp })
			},
		},
	}
}

func inChunks(r *recorded) bool {
	n := map[string]int{}
	return r.any(func(e *spec.Event) bool {
		if e.K == spec.KindBegin && e.Handoff != "" && e.Pool == "kv" && r.remote(e) {
			n[e.Handoff]++
		}
		return n[e.Handoff] > 1
	})
}
