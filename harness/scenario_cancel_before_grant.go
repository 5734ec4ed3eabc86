package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

const ruleOvertake = "hold-the-grant"

func cancelBeforeGrant() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleOvertake: abort}
	return Scenario{
		ID: "cancel-before-grant", Title: "A cancellation overtakes the grant that it cancels",
		Why: "Who takes in a cancellation for something that it has not seen must remember it, or the grant that comes later starts a transfer for a request that has ended.",
		shapes: map[string]shape{onReference: {
			branches: []string{"the end of a handoff was known before its grant came"},
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
		}, onSGLang: {
			limits: adapters.Limits{HandoffTimeout: 8 * time.Second},
			cast: func(l adapters.Limits, _ adapters.Pace) []part {
				return []part{
					{name: partWarm, prompt: 30, output: 4},
					{name: partVictim, prompt: l.DecodeTokens * 3 / 4, output: l.DecodeTokens / 5},
					{name: partLoser, prompt: l.DecodeTokens / 2, output: 8},
					{name: partAfter, prompt: 60, output: 8},
				}
			},
			play: playNoRoom, hears: []spec.Kind{spec.KindAccept, spec.KindAdmit, spec.KindCancel, spec.KindFinish, spec.KindFree},
			branches: []string{"a request was cancelled before decode granted anything"},
		}},
		reach: map[string]func(*recorded) bool{
			"the end of a handoff was known before its grant came":   cancelledFirst,
			"a request was cancelled before decode granted anything": cancelledUngranted,
		},
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

// playNoRoom cancels a request that both stages have admitted, and that decode has no
// room for: it waits for what the bystander holds. Nothing has been granted, so
// nothing has to be waited for.
func playNoRoom(ctx context.Context, d *director) error {
	if err := d.serve(ctx, partWarm); err != nil {
		return err
	}
	if _, err := d.sendAccepted(ctx, partVictim); err != nil {
		return err
	}
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	for _, role := range []spec.Role{spec.RolePrefill, spec.RoleDecode} {
		if _, err := d.soon(ctx, d.at(role, spec.KindAdmit, ofReq(loser.id))); err != nil {
			return err
		}
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	if err := d.waitAll(ctx); err != nil {
		return err
	}
	return d.serve(ctx, partAfter)
}

// cancelledUngranted looks for a request that decode took in as cancelled and never
// granted a block for.
func cancelledUngranted(r *recorded) bool {
	granted := map[string]bool{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindGrant {
			granted[e.Req] = true
		}
	}
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindCancel && r.role[e.Src] == spec.RoleDecode && !granted[e.Req]
	})
}
