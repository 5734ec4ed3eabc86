package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func decodeRestarted() Scenario {
	const open, served = "a worker died with a transfer open", "its next incarnation served a request"
	return Scenario{
		ID: "decode-restarted", Title: "Decode is restarted at the same address while a write to it is on the way",
		Why:      "The worker that comes back has the same address, the same pages and the same numbers for them, and none of the earlier one's obligations.",
		Branches: []string{open, served},
		shapes: map[string]shape{onReference: {
			modes: []string{modePush},
			plans: map[string]string{modePush: `rules:
  - name: ` + ruleHold + `
    when: {access: w, pool: kv, from: prefill, nth: 1}
    do: hold
    until: {event: idle}
    limit: 10s
`},
			limits: adapters.Limits{Step: 3 * time.Millisecond, HandoffTimeout: 2 * time.Second},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partLoser, prompt: 40, output: 4}, {name: partVictim, prompt: 40, output: 100}}, chorus(partAfter, 3, 40, 3)...)
			},
			play: playDecodeRestarted, hears: []spec.Kind{spec.KindAccept},
		}},
		reach: map[string]func(*recorded) bool{open: diedInTransfer, served: secondDecode},
	}
}

// playDecodeRestarted restarts decode while a write to it is held, and lets the write
// go on while the new incarnation computes from the same blocks.
func playDecodeRestarted(ctx context.Context, d *director) error {
	if _, err := d.sendHeld(ctx, partLoser, 1); err != nil {
		return err
	}
	if err := d.restart(ctx, "decode"); err != nil {
		return err
	}
	if _, err := d.sendAccepted(ctx, partVictim); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, 3)
}

// secondDecode reports whether the second incarnation of decode finished a request.
func secondDecode(r *recorded) bool {
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindFinish && r.worker[e.Src] == "decode-0.1" && e.Result == spec.OutcomeOK
	})
}
