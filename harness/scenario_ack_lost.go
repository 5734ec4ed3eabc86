package harness

import (
	"time"

	"conform/adapters"
	"conform/spec"
)

func ackLost() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	return Scenario{
		ID: "ack-lost", Title: "The acknowledgement never comes",
		Why:      "A clock that runs out proves that time has passed. Memory may go back only when the peer can no longer reach it.",
		Branches: []string{"a clock ended a handoff", "blocks were given back behind a fence"},
		shapes: map[string]shape{onReference: {
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
		}},
		reach: map[string]func(*recorded) bool{
			"a clock ended a handoff":               func(r *recorded) bool { return r.any(isKind(spec.KindExpire)) },
			"blocks were given back behind a fence": fencedRelease,
		},
	}
}
