package harness

import (
	"context"
	"errors"
	"time"

	"conform/adapters"
	"conform/spec"
)

func samplesShareKey() Scenario {
	const shared, several, wanted = "a key named several requests of a stage", "the other client was served meanwhile", "a request became several of the engine's"
	return Scenario{
		ID: "samples-share-key", Title: "A client wants several answers to one prompt, and a stage makes them requests of one key",
		Why: "One request of the client's may be several of the engine's. Each has blocks of its own, and a key for two of them names neither.",
		shapes: map[string]shape{onReference: {
			plans: map[string]string{modePull: `rules:
  - name: ` + ruleHold + `
    when: {access: r, pool: kv, from: decode, nth: 1}
    do: hold
    until: {event: alloc, pool: kv, same: block}
    limit: 100ms
`},
			limits: adapters.Limits{HandoffTimeout: 2 * time.Second},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partSeveral, prompt: 40, output: 6, samples: 3}, {name: partVictim, prompt: 30, output: 6}}, chorus(partAfter, 4, 40, 3)...)
			},
			play: playSamplesReference, branches: []string{wanted},
		}, onSGLang: {
			branches: []string{shared, several},
			limits:   adapters.Limits{HandoffTimeout: 4 * time.Second, AbortTimeout: 3 * time.Second},
			cast: func(l adapters.Limits, _ adapters.Pace) []part {
				return []part{
					{name: partWarm, prompt: 30, output: 4},
					{name: partSeveral, prompt: l.DecodeTokens / 8, output: 16, samples: 3},
					{name: partVictim, prompt: l.DecodeTokens / 8, output: 16},
					{name: partAfter, prompt: 60, output: 8},
				}
			},
			play: playSamples, hears: []spec.Kind{spec.KindAccept},
		}},
		reach: map[string]func(*recorded) bool{shared: keyOfSeveral, several: servedAtDecode, wanted: offeredSeveral},
	}
}

// partSeveral wants several answers.
const partSeveral = "several"

// playSamples asks for several answers, and for one to another prompt at the same
// time. The client of the several waits for them for some time only.
func playSamples(ctx context.Context, d *director) error {
	if err := d.serve(ctx, partWarm); err != nil {
		return err
	}
	several, err := d.send(ctx, partSeveral)
	if err != nil {
		return err
	}
	if err := d.serve(ctx, partVictim); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, someTime)
	defer cancel()
	if _, err := several.wait(patience); err != nil && ctx.Err() == nil {
		if err := d.leave(ctx, several); err != nil && !errors.Is(err, errEnded) {
			return err
		}
	}
	return d.serve(ctx, partAfter)
}

// playSamplesReference asks for several answers, and for one to another prompt at the
// same time. The client of the several waits for a moment only.
func playSamplesReference(ctx context.Context, d *director) error {
	several, err := d.send(ctx, partSeveral)
	if err != nil {
		return err
	}
	if d.l.c.mode == modePull { // it is one of the several whose read is held
		if err := d.acted(ctx, ruleHold, 1); err != nil {
			return err
		}
	}
	if err := d.serve(ctx, partVictim); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := several.wait(patience); err != nil && ctx.Err() == nil {
		if err := d.leave(ctx, several); err != nil && !errors.Is(err, errEnded) {
			return err
		}
	}
	return d.serveAfterwards(ctx, 4)
}

// offeredSeveral looks for a request that the router made several of the engine's of.
func offeredSeveral(r *recorded) bool {
	offered := map[string]int{}
	return r.any(func(e *spec.Event) bool {
		if e.K == spec.KindOffer && r.role[e.Src] == spec.RoleRouter {
			offered[e.Req]++
		}
		return offered[e.Req] > 1
	})
}

// keyOfSeveral looks for a key that two requests of one stage had, one of them as a
// further use ("key#1").
func keyOfSeveral(r *recorded) bool {
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindAdmit && len(e.Handoff) > 2 && e.Handoff[len(e.Handoff)-2:] == "#1"
	})
}

func servedAtDecode(r *recorded) bool {
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindFinish && r.role[e.Src] == spec.RoleDecode && e.Result == spec.OutcomeOK
	})
}
