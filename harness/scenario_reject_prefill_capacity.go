package harness

import (
	"time"

	"conform/adapters"
	"conform/spec"
)

func rejectPrefillCapacity() Scenario {
	w := plainWorkload()
	w.tooLongEvery = 6
	return Scenario{
		ID: "reject-prefill-capacity", Title: "Prompts above what prefill can process, below the configured context",
		Why:      "The incident: configured context is not processable capacity, and a rejection must be terminal on every path, not only in the answer.",
		Branches: []string{"prefill rejected a prompt"},
		shapes: map[string]shape{onReference: {
			modal: map[string][]string{"push": {"decode had reserved blocks for a rejected request"}},
			// Room for all that the defect reject-leaks-peer leaks: the leak is to show, not
			// a stack that is out of memory.
			limits:   adapters.Limits{DecodeBlocks: 256, HandoffTimeout: time.Second},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"prefill rejected a prompt":                         kindAt(spec.RolePrefill, spec.KindReject),
			"decode had reserved blocks for a rejected request": reservedForRejected,
		},
	}
}

func reservedForRejected(r *recorded) bool {
	rejected := map[string]bool{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindReject && r.role[e.Src] == spec.RolePrefill {
			rejected[e.Req] = true
		}
	}
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindAlloc && r.role[e.Src] == spec.RoleDecode && rejected[e.Req]
	})
}
