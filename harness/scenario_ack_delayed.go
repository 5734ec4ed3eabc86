package harness

import (
	"time"

	"conform/adapters"
)

func ackDelayed() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	sglang := ackLate(2*time.Second, `
  - name: `+ruleAck+`
    when: {signal: ABORT_ACK}
    do: hold
    ordered: true
    until: {event: free, why: timeout, from: decode, same: handoff}
    limit: 6s
`)
	sglang.reach = map[string]func(*recorded) bool{"the word came after the end": afterEnd(ofFamily("ABORT_ACK"))}
	return Scenario{
		ID: "ack-delayed", Title: "The acknowledgement comes after the clock has decided",
		Why:      "Two paths can end one lease, the clock's and the word's. Exactly one of them may, and the late word must change nothing.",
		Branches: []string{"the word came after the end"},
		shapes: map[string]shape{onReference: {
			branches: []string{"blocks were given back behind a fence"},
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
		}, onSGLang: sglang},
		reach: map[string]func(*recorded) bool{
			"blocks were given back behind a fence": fencedRelease,
			"the word came after the end":           lateWord,
		},
	}
}
