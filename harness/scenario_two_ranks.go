package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

const ruleFailRank = "fail-one-rank"

func twoRanks() Scenario {
	const open = "a rank's transfer was open when the request ended at decode"
	return Scenario{
		ID: "two-ranks", Title: "One prefill rank's transfer fails while another's runs",
		Why:      "A word of one rank says nothing of the others. Pages are reusable when each rank that was let in has stopped.",
		Branches: []string{open},
		shapes: map[string]shape{onSGLang: {
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
		reach: map[string]func(*recorded) bool{open: openAtStage(spec.RoleDecode, spec.KindFinish)},
	}
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
