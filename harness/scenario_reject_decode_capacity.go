package harness

import (
	"time"

	"conform/adapters"
	"conform/spec"
)

func rejectDecodeCapacity() Scenario {
	w := plainWorkload()
	w.outputEvery = 5
	return Scenario{
		ID: "reject-decode-capacity", Title: "More output than decode can process",
		Why:      "Each stage's own limit counts. What one stage has computed or queued must come back when the other refuses.",
		Branches: []string{"decode rejected a request"},
		shapes: map[string]shape{onReference: {
			modal: map[string][]string{"pull": {"prefill had computed for a rejected request, and was told"}},
			// Room for all that the defect reject-leaks-peer leaks.
			limits:   adapters.Limits{PrefillBlocks: 128, HandoffTimeout: time.Second},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"decode rejected a request":                                 kindAt(spec.RoleDecode, spec.KindReject),
			"prefill had computed for a rejected request, and was told": observed(spec.RolePrefill, "READ_ABORT"),
		},
	}
}
