package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func keyReuse() Scenario {
	const open, used = "a transfer was open when its request was cancelled", "its key named another request while it was open"
	return Scenario{
		ID: "key-reuse", Title: "The key of a cancelled handoff is used again while its transfer runs",
		Why:      "Chunks, grants and words name a handoff by its key. What was queued under the earlier use of it must not be carried out under the present one.",
		Branches: []string{open, used},
		shapes: map[string]shape{onReference: {
			modes: []string{modePush},
			plans: map[string]string{modePush: `rules:
  - name: ` + ruleHold + `
    when: {access: w, pool: kv, from: prefill, count: 4}
    do: hold
    until: {event: idle}
    limit: 3s
`},
			limits: adapters.Limits{AbortTimeout: 4 * time.Second},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{
					{name: partLoser, prompt: 128, output: 4, handoff: sameKey}, {name: partAgain, prompt: 128, output: 4, handoff: sameKey},
				}, chorus(partAfter, afterwards, 64, 3)...)
			},
			play: playKeyReuseReference, hears: []spec.Kind{spec.KindCancel, spec.KindEmit},
		}, onSGLang: {
			plans:  map[string]string{"": holdOpen("kv", 3)},
			limits: adapters.Limits{AbortTimeout: 5 * time.Second},
			args:   []string{"--chunked-prefill-size", "128"},
			cast:   castSameKey,
			play:   playKeyReuse, hears: []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree, spec.KindObserve, spec.KindEmit},
		}},
		reach: map[string]func(*recorded) bool{open: openAtStage(spec.RoleDecode, spec.KindCancel), used: keyUsedAgain},
	}
}

// playKeyReuse cancels a request of two chunks while the first is held and the second
// waits behind it, then sends another with its key.
func playKeyReuse(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	queued := d.at(spec.RolePrefill, spec.KindEmit, ofReq(loser.id), ofSignal("XFER_POST"))
	if _, err := d.soon(ctx, nth(2, queued)); err != nil {
		return err
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	if err := d.endedAtPrefill(ctx, loser); err != nil {
		return err
	}
	again, err := d.send(ctx, partAgain)
	if err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RolePrefill, spec.KindObserve, ofReq(again.id), ofSignal("METADATA"))); err != nil {
		return err
	}
	posted := d.at(spec.RolePrefill, spec.KindEmit, ofReq(again.id), ofSignal("XFER_POST"))
	if err := d.perhaps(ctx, nth(2, posted)); err != nil { // a stack may refuse the key
		return err
	}
	return d.letGo(ctx)
}

// playKeyReuseReference does the same on the reference stack, whose four transfer
// threads each hold a chunk of the first while four more wait behind them.
func playKeyReuseReference(ctx context.Context, d *director) error {
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	posted := func(s *sent) error {
		_, err := d.soon(ctx, nth(8, d.at(spec.RolePrefill, spec.KindEmit, ofReq(s.id), ofSignal("XFER_POST"))))
		return err
	}
	if err := d.acted(ctx, ruleHold, 4); err != nil {
		return err
	}
	if err := posted(loser); err != nil {
		return err
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	again, err := d.send(ctx, partAgain)
	if err != nil {
		return err
	}
	if err := posted(again); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}

// keyUsedAgain looks for a handoff that is a further use of a key ("key#1") under
// which decode sent a grant while a transfer of the earlier use was open.
func keyUsedAgain(r *recorded) bool {
	return r.any(func(begin *spec.Event) bool {
		if begin.K != spec.KindBegin || begin.Handoff == "" || !r.remote(begin) {
			return false
		}
		open := r.span(begin)
		return r.any(func(e *spec.Event) bool {
			return e.K == spec.KindEmit && e.Signal == "METADATA" && e.Handoff == begin.Handoff+"#1" && open.holds(e)
		})
	})
}
