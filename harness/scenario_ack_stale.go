package harness

import "conform/spec"

func ackStale() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	return Scenario{
		ID: "ack-stale", Title: "Acknowledgements come twice, the second one late",
		Why:      "Keys come round. A word about the earlier use of a key that is taken for the present one releases memory in use.",
		Branches: []string{"a signal was taken in twice", "a word came after the end"},
		shapes: map[string]shape{onReference: {
			plans: map[string]string{
				"push": "rules:" + holdTransfer("w", "prefill", "30ms") + `
  - name: repeat-the-status
    when: {signal: STATUS/Success, every: 3}
    do: duplicate
    for: 40ms
  - name: repeat-the-ack
    when: {signal: ABORT_ACK}
    do: duplicate
    for: 40ms
`,
				"pull": `rules:
  - name: repeat-the-word
    when: {signal: READ_DONE, every: 3}
    do: duplicate
    for: 40ms
`,
			},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"a signal was taken in twice": takenTwice,
			"a word came after the end":   lateWord,
		},
	}
}

func takenTwice(r *recorded) bool {
	seen := map[string]bool{}
	return r.any(func(e *spec.Event) bool {
		if e.K != spec.KindObserve {
			return false
		}
		twice := seen[e.Sig]
		seen[e.Sig] = true
		return twice
	})
}

// lateWord looks for a worker that took a signal about a handoff in after it had
// given back all that it held for that handoff.
func lateWord(r *recorded) bool {
	gone := map[string]int64{}
	for i := range r.events {
		key := r.events[i].Src + "\x00" + r.events[i].Handoff
		if e := &r.events[i]; e.K == spec.KindFree && e.Pool == "kv" && gone[key] == 0 {
			gone[key] = e.T // the first: a defect may free twice
		}
	}
	return r.any(func(e *spec.Event) bool {
		t, was := gone[e.Src+"\x00"+e.Handoff]
		return was && e.K == spec.KindObserve && e.Th == "main" && t < e.T
	})
}
