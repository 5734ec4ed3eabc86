package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func cancelBetweenStages() Scenario {
	const gone, back = "a request was given up that had finished at prefill and never came to decode", "prefill gave its blocks back"
	return Scenario{
		ID: "cancel-between-stages", Title: "A request is given up after prefill has finished it and before decode has it",
		Why:      "Prefill keeps the blocks of a finished request for a reader. When none will come, the word of that must end what the finish did not.",
		Branches: []string{gone, back},
		shapes: map[string]shape{onReference: {
			modes: []string{modePull},
			plans: map[string]string{modePull: `rules:
  - name: ` + ruleNoDecode + `
    when: {http: POST /generate, to: decode, nth: 1}
    do: fail
`},
			limits: adapters.Limits{HandoffTimeout: time.Second},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partLoser, prompt: 40, output: 4}}, chorus(partAfter, afterwards, 40, 3)...)
			},
			play: playBetween, hears: []spec.Kind{spec.KindCancel},
		}},
		reach: map[string]func(*recorded) bool{
			gone: cancelledBetween,
			back: freedFor("cancel"),
		},
	}
}

// cancelledBetween looks for a request that prefill took in as cancelled after it had
// offered its blocks, and that decode never admitted.
func cancelledBetween(r *recorded) bool {
	offered, admitted := map[string]bool{}, map[string]bool{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindAdmit && r.role[e.Src] == spec.RoleDecode {
			admitted[e.Req] = true
		}
	}
	return r.any(func(e *spec.Event) bool {
		if e.K == spec.KindGrant && r.role[e.Src] == spec.RolePrefill {
			offered[e.Req] = true
		}
		return e.K == spec.KindCancel && r.role[e.Src] == spec.RolePrefill && offered[e.Req] && !admitted[e.Req]
	})
}

const ruleNoDecode = "lose-the-second-leg"

// playBetween gives a request up at prefill whose way to decode has failed.
func playBetween(ctx context.Context, d *director) error {
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	if _, err := loser.wait(ctx); err != nil {
		return err
	}
	d.l.client.record(spec.Event{K: spec.KindCancel, Th: loser.name, Req: loser.id, Why: "abort at prefill"})
	if err := d.stack.Abort(ctx, loser.id, spec.RolePrefill); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}
