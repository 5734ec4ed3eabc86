package harness

import (
	"context"
	"errors"
	"time"

	"conform/adapters"
	"conform/spec"
)

func leaseRenewed() Scenario {
	const renewed, expired = "a lease was renewed after a later one had run out", "a lease ran out"
	return Scenario{
		ID: "lease-renewed", Title: "A lease is renewed for long, and a later one runs out meanwhile",
		Why:      "Leases end in another order than they begin. Nobody reads what the later one keeps, and nobody will say so but the clock.",
		Branches: []string{renewed, expired},
		shapes: map[string]shape{onReference: {
			modes: []string{modePull},
			plans: map[string]string{modePull: `rules:
  - name: ` + ruleNoDecode + `
    when: {http: POST /generate, to: decode, nth: 2}
    do: fail
`},
			limits: adapters.Limits{DecodeBlocks: 16, Lease: 500 * time.Millisecond, Heartbeat: 25 * time.Millisecond, HandoffTimeout: 5 * time.Second},
			cast: func(l adapters.Limits, _ adapters.Pace) []part {
				return append([]part{
					{name: partVictim, prompt: 40, output: l.DecodeTokens - 40}, {name: partLoser, prompt: 40, output: 4},
				}, chorus(partAfter, afterwards, 40, 3)...)
			},
			play: playRenewed, hears: []spec.Kind{spec.KindAdmit, spec.KindGrant, spec.KindExpire},
		}},
		reach: map[string]func(*recorded) bool{renewed: renewedLater, expired: kindAt(spec.RolePrefill, spec.KindExpire)},
	}
}

// playRenewed lets a request that decode has no room for renew its lease, and loses the
// way of another to decode. When nothing has moved at prefill for longer than a lease
// lasts, what it holds, it keeps.
func playRenewed(ctx context.Context, d *director) error {
	victim, err := d.send(ctx, partVictim)
	if err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindAdmit, ofReq(victim.id))); err != nil {
		return err
	}
	if err := d.serve(ctx, partLoser); err != nil {
		return err
	}
	sleep(ctx, 2*d.limits().Lease)
	for _, w := range d.stack.Workers() {
		if w.Role == spec.RolePrefill {
			d.l.own.record(spec.Event{K: spec.KindIdle, Workers: []string{w.ID}})
		}
	}
	if err := d.abort(ctx, victim, ""); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	if _, err := victim.wait(ctx); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}

// renewedLater looks for a renewal that prefill took in for one handoff after the
// grant of another that has never been renewed.
func renewedLater(r *recorded) bool {
	renewed := map[string]int64{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindObserve && e.Signal == "HEARTBEAT" {
			renewed[e.Handoff] = max(renewed[e.Handoff], e.T)
		}
	}
	return r.any(func(e *spec.Event) bool {
		if e.K != spec.KindGrant || r.role[e.Src] != spec.RolePrefill || renewed[e.Handoff] != 0 {
			return false
		}
		for _, t := range renewed {
			if t > e.T {
				return true
			}
		}
		return false
	})
}
