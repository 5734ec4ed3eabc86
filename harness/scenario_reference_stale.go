package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func referenceStale() Scenario {
	const late, again = "a reference came to decode after its lease had run out", "its key named another request by then"
	return Scenario{
		ID: "reference-stale", Title: "A reference to prefill's blocks comes to decode after they were given to others, and its key too",
		Why: "A reference is a right for a time. What ends the time must end the right, and nothing that comes later may open it again.",
		shapes: map[string]shape{onReference: {
			modes: []string{modePull}, branches: []string{late, again},
			plans: map[string]string{modePull: `rules:
  - name: ` + ruleHold + `
    when: {http: POST /generate, to: decode, nth: 1}
    do: hold
    until: {event: idle}
    limit: 5s
`},
			limits: adapters.Limits{Lease: 500 * time.Millisecond, Heartbeat: 30 * time.Millisecond},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{
					{name: partLoser, prompt: 40, output: 4, handoff: sameKey}, {name: partAgain, prompt: 40, output: 4, handoff: sameKey},
				}, chorus(partAfter, afterwards, 40, 3)...)
			},
			play: playReferenceStale, hears: []spec.Kind{spec.KindExpire, spec.KindGrant},
		}, onVLLM: staleRead()},
		reach: map[string]func(*recorded) bool{
			late: referenceLate, again: keyGrantedAgain,
			leaseEnded: kindAt(spec.RolePrefill, spec.KindExpire), blocksReused: readAfterReuse,
		},
	}
}

// playReferenceStale keeps a reference from decode until its lease has run out and
// another request has come and gone under its key.
func playReferenceStale(ctx context.Context, d *director) error {
	loser, err := d.sendHeld(ctx, partLoser, 1)
	if err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RolePrefill, spec.KindExpire, ofHandoff(sameKey))); err != nil {
		return err
	}
	if err := d.serve(ctx, partAgain); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	if _, err := loser.wait(ctx); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}

// referenceLate looks for a reference that decode took in after the lease that it is
// to had expired. All processes of one machine share a clock.
func referenceLate(r *recorded) bool {
	over := map[string]int64{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindExpire && r.role[e.Src] == spec.RolePrefill {
			over[e.Handoff] = e.T
		}
	}
	return r.any(func(e *spec.Event) bool {
		t, expired := over[e.Handoff]
		return expired && e.K == spec.KindObserve && e.Signal == "KV_PARAMS" && t < e.T
	})
}

// keyGrantedAgain looks for a grant under a further use ("key#1") of a key whose first
// lease had expired.
func keyGrantedAgain(r *recorded) bool {
	over := map[string]bool{}
	return r.any(func(e *spec.Event) bool {
		if e.K == spec.KindExpire && r.role[e.Src] == spec.RolePrefill {
			over[e.Handoff+"#1"] = true
		}
		return e.K == spec.KindGrant && over[e.Handoff]
	})
}
