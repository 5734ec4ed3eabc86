package harness

import (
	"time"

	"conform/adapters"
	"conform/spec"
)

func holdTimeout() Scenario {
	sglang := cancelHeld()
	sglang.limits = adapters.Limits{AbortTimeout: 300 * time.Millisecond}
	sglang.branches = []string{"blocks were given back by a clock"}
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	return Scenario{
		ID: "hold-timeout", Title: "The clock that ends a hold is shorter than the transfer that it waits for",
		Why:      "Memory is reusable when its writers can no longer affect the next owner. A clock says nothing about that.",
		Branches: []string{"a transfer was open when its request was cancelled"},
		shapes: map[string]shape{
			onReference: {
				modes:    []string{"push"},
				plans:    map[string]string{"push": "rules:" + holdTransfer("w", "prefill", "150ms")},
				limits:   adapters.Limits{AbortTimeout: 20 * time.Millisecond},
				branches: []string{"blocks were given back behind a fence"},
				workload: w,
			},
			onSGLang: sglang,
		},
		reach: map[string]func(*recorded) bool{
			"a transfer was open when its request was cancelled": openAt(isKind(spec.KindCancel)),
			"blocks were given back behind a fence":              fencedRelease,
			"blocks were given back by a clock":                  freedFor("timeout"),
		},
	}
}
