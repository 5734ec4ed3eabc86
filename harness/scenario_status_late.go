package harness

import (
	"context"

	"conform/adapters"
	"conform/spec"
)

func statusLate() Scenario {
	const late = "prefill's word that all is there came after the cancellation"
	return Scenario{
		ID: "status-late", Title: "The word that a transfer is complete comes after its request was cancelled",
		Why:      "What was true when a word was sent need not be when it is taken in. An ended request stays ended, whatever is said of it later.",
		Branches: []string{late},
		shapes: map[string]shape{onReference: {
			modes: []string{modePush},
			plans: map[string]string{modePush: `rules:
  - name: ` + ruleHold + `
    when: {signal: STATUS/Success, nth: 1}
    do: hold
    ordered: true
    until: {event: cancel, from: decode, same: handoff}
    limit: 2s
`},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partLoser, prompt: 40, output: 12}}, chorus(partAfter, afterwards, 40, 3)...)
			},
			play: playStatusLate, hears: []spec.Kind{spec.KindCancel},
		}},
		reach: map[string]func(*recorded) bool{late: successAfterCancel},
	}
}

// successAfterCancel looks for a request that decode took in as cancelled before it
// took in that its transfer is complete.
func successAfterCancel(r *recorded) bool {
	cancelled := map[string]bool{}
	return r.any(func(e *spec.Event) bool {
		if r.role[e.Src] != spec.RoleDecode {
			return false
		}
		if e.K == spec.KindCancel {
			cancelled[e.Req] = true
		}
		return e.K == spec.KindObserve && e.Signal == "STATUS/Success" && cancelled[e.Req]
	})
}

// playStatusLate cancels a request at decode whose last word is on the way.
func playStatusLate(ctx context.Context, d *director) error {
	loser, err := d.sendHeld(ctx, partLoser, 1)
	if err != nil {
		return err
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}
