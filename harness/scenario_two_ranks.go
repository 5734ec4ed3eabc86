package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

const ruleFailRank = "fail-one-rank"

func twoRanks() Scenario {
	const held = "a rank's transfer was open when its request was cancelled"
	const open = "a rank's transfer was open when the request ended at decode"
	return Scenario{
		ID: "two-ranks", Title: "A request ends while one prefill rank still writes and another has stopped",
		Why: "A word of one rank says nothing of the others. Pages are reusable when each rank that was let in has stopped.",
		shapes: map[string]shape{onReference: {
			modes: []string{modePush},
			plans: map[string]string{modePush: `rules:
  - name: ` + ruleHold + `
    when: {access: w, pool: kv, from: prefill-0.r1, nth: 1}
    do: hold
    until: {event: alloc, pool: kv, same: block}
    limit: 500ms
  - name: ` + ruleHoldSlot + `
    when: {access: w, pool: aux, from: prefill, nth: 1}
    do: hold
    until: {event: cancel, from: decode, same: handoff}
    limit: 2s
`},
			topology: adapters.Topology{PrefillTP: 2},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partLoser, prompt: 40, output: 4}}, chorus(partAfter, afterwards, 40, 3)...)
			},
			play: playRanksReference, branches: []string{held}, hears: []spec.Kind{spec.KindCancel},
		}, onSGLang: {
			branches: []string{open},
			// The first rule that acts on a transfer acts alone.
			plans: map[string]string{"": `rules:
  - name: ` + ruleFailRank + `
    when: {access: w, pool: kv, from: prefill-0.r1}
    do: fail
  - name: ` + ruleHold + `
    when: {access: w, pool: kv, from: prefill-0, count: 1}
    do: hold
    until: {event: idle}
    limit: 40s
`},
			limits:   adapters.Limits{HandoffTimeout: 90 * time.Second, AbortTimeout: 6 * time.Second},
			topology: adapters.Topology{PrefillTP: 2, DecodeTP: 2},
			cast:     castHeld(fifthOfDecode), play: playRanks,
			hears: []spec.Kind{spec.KindAccept, spec.KindFinish, spec.KindFree},
		}},
		reach: map[string]func(*recorded) bool{open: openAtStage(spec.RoleDecode, spec.KindFinish), held: openAtStage(spec.RoleDecode, spec.KindCancel)},
	}
}

// ruleHoldSlot holds what the first rank alone writes, so that it too is not done.
const ruleHoldSlot = "hold-the-slot"

// playRanksReference cancels a request while both ranks write; the first goes on at
// once, the other does not.
func playRanksReference(ctx context.Context, d *director) error {
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	for _, rule := range []string{ruleHold, ruleHoldSlot} {
		if err := d.acted(ctx, rule, 1); err != nil {
			return err
		}
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}

// playRanks warms the ranks up, then fails one rank's transfer and holds the other's.
func playRanks(ctx context.Context, d *director) error {
	for _, name := range []string{ruleFailRank, ruleHold} {
		if err := d.rule(name, false); err != nil {
			return err
		}
	}
	if err := d.serve(ctx, partWarm); err != nil {
		return err
	}
	if err := d.churn(ctx, 2, d.limits().DecodeBlocks*7/8); err != nil {
		return err
	}
	for _, name := range []string{ruleFailRank, ruleHold} {
		if err := d.rule(name, true); err != nil {
			return err
		}
	}
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	for _, name := range []string{ruleFailRank, ruleHold} {
		if err := d.acted(ctx, name, 1); err != nil {
			return err
		}
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindFinish, ofReq(loser.id))); err != nil {
		return err
	}
	if err := d.endedAtPrefill(ctx, loser); err != nil {
		return err
	}
	if err := d.churn(ctx, 3, 7); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.waitAll(ctx)
}
