package harness

import (
	"context"
	"fmt"
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
		}, onSGLang: {
			// Prefill has a quarter of decode's pool. Decode learns of the refusal by no
			// message: its clock is short, so that the run sees how the reservation ends.
			limits:   adapters.Limits{PrefillBlocks: 16, DecodeBlocks: 64, HandoffTimeout: 6 * time.Second},
			cast:     castRejectPrefill,
			play:     playRejectPrefill,
			hears:    []spec.Kind{spec.KindReject},
			branches: []string{"decode had reserved blocks for a rejected request"},
		}},
		reach: map[string]func(*recorded) bool{
			"prefill rejected a prompt":                         kindAt(spec.RolePrefill, spec.KindReject),
			"decode had reserved blocks for a rejected request": ofRejected(spec.RolePrefill, spec.RoleDecode, spec.KindAlloc),
		},
	}
}

// ofRejected looks for an event of a kind at one role for a request that the other
// role rejected.
func ofRejected(by, at spec.Role, k spec.Kind) func(*recorded) bool {
	return func(r *recorded) bool {
		rejected := map[string]bool{}
		for i := range r.events {
			if e := &r.events[i]; e.K == spec.KindReject && r.role[e.Src] == by {
				rejected[e.Req] = true
			}
		}
		return r.any(func(e *spec.Event) bool { return e.K == k && r.role[e.Src] == at && rejected[e.Req] })
	}
}

// tooLong are the requests whose prompt prefill can't process, each after tenants
// of its own: where their answer follows the tenants, it was never computed.
const tooLong = 2

func castRejectPrefill(l adapters.Limits, _ adapters.Pace) []part {
	var parts []part
	for i := range tooLong {
		parts = append(parts, chorus(fmt.Sprintf("tenant-%d", i), 4, l.PrefillTokens*3/4, 8)...)
		parts = append(parts, part{name: fmt.Sprintf("too-long-%d", i), prompt: l.PrefillTokens*3/2 + i, output: 8})
	}
	return append(parts, part{name: "after", prompt: l.PrefillTokens / 2, output: 8})
}

// playRejectPrefill lets tenants write decode's pages, then asks for more than
// prefill can process, and looks whether the stack still serves.
func playRejectPrefill(ctx context.Context, d *director) error {
	for i := range tooLong {
		for j := range 4 {
			if err := d.serve(ctx, fmt.Sprintf("tenant-%d-%d", i, j)); err != nil {
				return err
			}
		}
		if err := d.serve(ctx, fmt.Sprintf("too-long-%d", i)); err != nil {
			return err
		}
	}
	return d.serve(ctx, "after")
}

// serve sends a part and waits until it has been answered.
func (d *director) serve(ctx context.Context, name string) error {
	s, err := d.send(ctx, name)
	if err != nil {
		return err
	}
	_, err = s.wait(ctx)
	return err
}
