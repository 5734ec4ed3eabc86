package harness

import (
	"time"

	"conform/adapters"
)

func ackDelayed() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	return Scenario{
		ID: "ack-delayed", Title: "The acknowledgement comes after the clock has decided",
		Why:      "Two paths can end one lease, the clock's and the word's. Exactly one of them may, and the late word must change nothing.",
		Branches: []string{"blocks were given back behind a fence", "the word came after the end"},
		shapes: map[string]shape{onReference: {
			plans: map[string]string{
				"push": "rules:" + holdTransfer("w", "prefill", "30ms") + `
  - name: delay-the-ack
    when: {signal: ABORT_ACK}
    do: delay
    for: 300ms
`,
				"pull": `rules:
  - name: delay-the-word
    when: {signal: READ_DONE, nth: 3, every: 6}
    do: delay
    for: 400ms
`,
			},
			limits:   adapters.Limits{AbortTimeout: 120 * time.Millisecond, Lease: 200 * time.Millisecond, Heartbeat: 30 * time.Millisecond},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"blocks were given back behind a fence": fencedRelease,
			"the word came after the end":           lateWord,
		},
	}
}
