package harness

import "conform/spec"

const ruleOvertake = "hold-the-grant"

func cancelBeforeGrant() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleOvertake: abort}
	return Scenario{
		ID: "cancel-before-grant", Title: "A cancellation overtakes the grant that it cancels",
		Why:      "Who takes in a cancellation for something that it has not seen must remember it, or the grant that comes later starts a transfer for a request that has ended.",
		Branches: []string{"the end of a handoff was known before its grant came"},
		shapes: map[string]shape{onReference: {
			plans: map[string]string{
				"push": `rules:
  - name: ` + ruleOvertake + `
    when: {signal: METADATA, nth: 4, every: 8}
    do: hold
    until: {event: observe, signal: ABORT, same: handoff}
    limit: 300ms
`,
				"pull": `rules:
  - name: ` + ruleOvertake + `
    when: {http: POST /generate, to: decode, nth: 4, every: 8}
    do: hold
    until: {event: fence, same: handoff}
    limit: 300ms
`,
			},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{"the end of a handoff was known before its grant came": cancelledFirst},
	}
}

// cancelledFirst looks for a handoff that prefill knew to have ended (an ABORT in
// push mode, a fence in pull mode) before its grant was taken in.
func cancelledFirst(r *recorded) bool {
	over := map[string]int64{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindFence || e.K == spec.KindObserve && e.Signal == "ABORT" {
			over[e.Handoff] = e.T
		}
	}
	return r.any(func(e *spec.Event) bool {
		t, ended := over[e.Handoff]
		return ended && e.K == spec.KindObserve && (e.Signal == "METADATA" || e.Signal == "KV_PARAMS") && t < e.T
	})
}
