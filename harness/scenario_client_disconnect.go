package harness

import (
	"time"

	"conform/spec"
)

func clientDisconnect() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: leave}
	w.leaveEvery, w.streamEvery = 5, 2
	w.cancelAfter = [2]time.Duration{time.Millisecond, 12 * time.Millisecond}
	return Scenario{
		ID: "client-disconnect", Title: "Clients close their connections at any time",
		Why:      "Nobody waits for the answer any more, and everything that was reserved on every stage must come back all the same.",
		Branches: []string{"a transfer was open when its client left", "a request gave its blocks back after its client had left"},
		shapes: map[string]shape{onReference: {
			plans: map[string]string{
				"push": "rules:" + holdTransfer("w", "prefill", "60ms"),
				"pull": "rules:" + holdTransfer("r", "decode", "60ms"),
			},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"a transfer was open when its client left":                 openAt(isKind(spec.KindCancel)),
			"a request gave its blocks back after its client had left": freedFor("cancel"),
		},
	}
}
