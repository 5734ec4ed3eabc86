package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func ackLost() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	return Scenario{
		ID: "ack-lost", Title: "The acknowledgement never comes",
		Why: "A clock that runs out proves that time has passed. Memory may go back only when the peer can no longer reach it.",
		shapes: map[string]shape{onReference: {
			branches: []string{"a clock ended a handoff", "blocks were given back behind a fence"},
			plans: map[string]string{
				"push": "rules:" + holdTransfer("w", "prefill", "30ms") + `
  - name: lose-the-ack
    when: {signal: ABORT_ACK}
    do: drop
`,
				"pull": `rules:
  - name: lose-the-word
    when: {signal: READ_DONE, nth: 3, every: 6}
    do: drop
`,
			},
			limits:   adapters.Limits{AbortTimeout: 150 * time.Millisecond, Lease: 250 * time.Millisecond, Heartbeat: 40 * time.Millisecond},
			workload: w,
		}, onSGLang: ackLate(2*time.Second, `
  - name: `+ruleAck+`
    when: {signal: ABORT_ACK}
    do: drop
`, "blocks were given back by a clock")},
		reach: map[string]func(*recorded) bool{
			"a clock ended a handoff":               func(r *recorded) bool { return r.any(isKind(spec.KindExpire)) },
			"blocks were given back behind a fence": fencedRelease,
			"blocks were given back by a clock":     freedFor("timeout"),
		},
	}
}

// ruleAck is what keeps an acknowledgement from decode.
const ruleAck = "keep-the-ack-away"

// ackLate cancels a request whose transfer is held, lets the transfer end, and keeps
// prefill's acknowledgement of it from decode by a rule; decode has only its clock.
func ackLate(clock time.Duration, rule string, branches ...string) shape {
	return shape{
		plans: map[string]string{"": holdOpen("kv", 3) + rule[1:]}, limits: adapters.Limits{AbortTimeout: clock},
		cast: castHeld(fifthOfDecode), play: playAckLate, branches: branches,
		hears: []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree, spec.KindEnd},
	}
}

func playAckLate(ctx context.Context, d *director) error {
	loser, err := d.cancelLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	if err := d.acted(ctx, ruleAck, 1); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.freedAtDecode(loser)); err != nil {
		return err
	}
	if err := d.churn(ctx, 3, 7); err != nil {
		return err
	}
	return d.stillServes(ctx)
}
