package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func twoDecodeRanks() Scenario {
	const both = "two ranks of decode gave up one handoff, and each asked for an acknowledgement"
	return Scenario{
		ID: "two-decode-ranks", Title: "Both ranks of decode ask prefill to stop, while its transfer runs",
		Why:      "Each rank of decode has granted blocks of its own to the one writer. Each waits for its word, and none of them for the other's.",
		Branches: []string{both},
		shapes: map[string]shape{onReference: {
			modes: []string{modePush},
			plans: map[string]string{modePush: `rules:
  - name: ` + ruleHold + `
    when: {access: w, pool: kv, from: prefill, nth: 1}
    do: hold
    until: {event: idle}
    limit: 3s
`},
			limits:   adapters.Limits{HandoffTimeout: 2 * time.Second},
			topology: adapters.Topology{DecodeTP: 2},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partLoser, prompt: 40, output: 4}}, chorus(partAfter, afterwards, 40, 3)...)
			},
			play: playDecodeRanks, hears: []spec.Kind{spec.KindObserve},
		}},
		reach: map[string]func(*recorded) bool{both: askedByBoth},
	}
}

// playDecodeRanks holds a transfer, cancels its request at both ranks of decode, and
// lets it go when prefill has taken both questions in.
func playDecodeRanks(ctx context.Context, d *director) error {
	loser, err := d.sendHeld(ctx, partLoser, 1)
	if err != nil {
		return err
	}
	if err := d.abort(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	if _, err := d.soon(ctx, nth(2, d.at(spec.RolePrefill, spec.KindObserve, ofSignal("ABORT")))); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}

// askedByBoth looks for a handoff that two workers have asked prefill to give up.
func askedByBoth(r *recorded) bool {
	asked := map[string]string{}
	return r.any(func(e *spec.Event) bool {
		if e.K != spec.KindEmit || e.Signal != "ABORT" {
			return false
		}
		other, was := asked[e.Handoff]
		asked[e.Handoff] = r.worker[e.Src]
		return was && other != r.worker[e.Src]
	})
}
