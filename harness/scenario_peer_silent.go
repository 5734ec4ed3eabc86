package harness

import (
	"time"

	"conform/adapters"
)

func peerSilent() Scenario {
	w := plainWorkload()
	w.requests = 60
	return Scenario{
		ID: "peer-silent", Title: "Prefill falls silent for longer than decode waits, then goes on",
		Why:      "Missed heartbeats do not prove that a peer's writes have stopped. The peer that was held for dead comes back and carries on where it was.",
		Branches: []string{"decode gave its blocks back", "prefill was stopped"},
		shapes: map[string]shape{onReference: {
			plans: map[string]string{
				"push": "rules:" + silence("w", "prefill", "decode"),
				"pull": "rules:" + silence("r", "decode", "prefill"),
			},
			limits:   adapters.Limits{PeerTimeout: 200 * time.Millisecond, HandoffTimeout: time.Second, AbortTimeout: 300 * time.Millisecond, Lease: 400 * time.Millisecond},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"decode gave its blocks back": freedFor("peer_lost"),
			"prefill was stopped":         func(r *recorded) bool { return r.faults["silence"] > 0 },
		},
	}
}

// silence holds one transfer and stops prefill's process meanwhile.
func silence(access, from, to string) string {
	return `
  - name: hold-the-transfer-meanwhile
    when: {access: ` + access + `, pool: kv, from: ` + from + `, nth: 18}
    do: hold
    until: {event: free, why: peer_lost, same: handoff}
    limit: 800ms
  - name: silence
    when: {event: begin, mode: ` + access + `, pool: kv, from: ` + from + `, to: ` + to + `, nth: 26}
    do: pause
    worker: prefill
    for: 500ms
`
}
