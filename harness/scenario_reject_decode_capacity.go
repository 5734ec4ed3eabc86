package harness

import (
	"context"
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
		}, onSGLang: {
			// Decode has a quarter of prefill's pool. Prefill learns of the refusal by no
			// message: its clock is short, so that the run sees how its part ends.
			limits: adapters.Limits{PrefillBlocks: 64, DecodeBlocks: 16, HandoffTimeout: 4 * time.Second},
			cast: func(l adapters.Limits, _ adapters.Pace) []part {
				return []part{
					{name: partWarm, prompt: 30, output: 4},
					{name: "too-long", prompt: l.DecodeTokens * 2, output: 8},
					{name: partAfter, prompt: 60, output: 8},
				}
			},
			play: func(ctx context.Context, d *director) error {
				for _, name := range []string{partWarm, "too-long", partAfter} {
					if err := d.serve(ctx, name); err != nil {
						return err
					}
				}
				return nil
			},
			branches: []string{"prefill had admitted a request that decode rejected"},
		}},
		reach: map[string]func(*recorded) bool{
			"prefill had admitted a request that decode rejected":       ofRejected(spec.RoleDecode, spec.RolePrefill, spec.KindAdmit),
			"decode rejected a request":                                 kindAt(spec.RoleDecode, spec.KindReject),
			"prefill had computed for a rejected request, and was told": observed(spec.RolePrefill, "READ_ABORT"),
		},
	}
}
