package harness

import (
	"context"

	"conform/adapters"
	"conform/spec"
)

// The rules of the plan below, besides ruleHold.
const (
	rulePost = "hold-the-post"
	ruleDone = "hold-the-bystanders"
)

// partLate is a request whose read has not been posted when it is cancelled.
const partLate = "not-posted"

// bystanders are requests that together take nearly all of decode's pool.
const bystanders = 2

// cancelRead is the abort race where decode reads. One request's read is posted and held,
// another's is held before it is posted; both are cancelled at decode, which gives
// their blocks back, or keeps them. Where it gives them back, bystanders get them; their
// own reads have ended, and decode is told so only when the two old reads have landed.
// So whatever these overwrite, the bystanders then compute from.
func cancelRead() shape {
	return shape{
		plans: map[string]string{"": `rules:
  - name: ` + ruleHold + `
    when: {access: r, pool: kv, from: decode, nth: 1}
    do: hold
    until: {event: idle}
    limit: 120s
  - name: ` + rulePost + `
    when: {access: r.post, pool: kv, from: decode, nth: 2}
    do: hold
    until: {event: idle}
    limit: 120s
  - name: ` + ruleDone + `
    when: {access: r.done, pool: kv, from: decode, nth: 1, every: 1, count: 2}
    do: hold
    until: {event: idle}
    limit: 120s
`},
		limits: adapters.Limits{Lease: longTime},
		cast: func(l adapters.Limits, p adapters.Pace) []part {
			parts := []part{
				{name: partLoser, prompt: l.DecodeTokens * 3 / 10, output: 8},
				{name: partLate, prompt: l.DecodeTokens * 3 / 10, output: 8},
				{name: partAfter, prompt: 60, output: 8},
			}
			output := p.PageTokens - 4
			prompt := (l.DecodeBlocks/bystanders-2)*p.PageTokens - output
			return append(parts, chorus(partVictim, bystanders, prompt, output)...)
		},
		play:  playCancelRead,
		hears: []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree, spec.KindObserve},
	}
}

func playCancelRead(ctx context.Context, d *director) error {
	losers, err := d.cancelReads(ctx)
	if err != nil {
		return err
	}
	freed, err := d.givesBack(ctx, losers)
	if err != nil {
		return err
	}
	for i := range bystanders {
		if _, err := d.send(ctx, chorus(partVictim, bystanders, 0, 0)[i].name); err != nil {
			return err
		}
	}
	held := 1 // one alone fits beside what decode keeps
	if freed {
		held = bystanders
	}
	if err := d.acted(ctx, ruleDone, held); err != nil {
		return err
	}
	if err := d.rule(ruleDone, false); err != nil { // the losers' reads end next
		return err
	}
	for _, rule := range []string{ruleHold, rulePost} {
		if err := d.release(rule); err != nil {
			return err
		}
	}
	for _, s := range losers {
		if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindObserve, ofReq(s.id), ofSignal("XFER_STATE"))); err != nil {
			return err
		}
	}
	if err := d.release(ruleDone); err != nil {
		return err
	}
	if err := d.waitAll(ctx); err != nil {
		return err
	}
	return d.serve(ctx, partAfter)
}

// cancelReads brings two requests to where their reads are held, and cancels them.
func (d *director) cancelReads(ctx context.Context) ([]*sent, error) {
	var losers []*sent
	for _, step := range []struct{ part, rule string }{{partLoser, ruleHold}, {partLate, rulePost}} {
		s, err := d.send(ctx, step.part)
		if err != nil {
			return nil, err
		}
		if err := d.acted(ctx, step.rule, 1); err != nil {
			return nil, err
		}
		losers = append(losers, s)
	}
	for _, s := range losers {
		if err := d.abortAt(ctx, s, spec.RoleDecode); err != nil {
			return nil, err
		}
	}
	return losers, nil
}

// givesBack reports whether decode gives the blocks of all these requests back while it
// has the time to.
func (d *director) givesBack(ctx context.Context, losers []*sent) (bool, error) {
	short, cancel := context.WithTimeout(ctx, keepsFor)
	defer cancel()
	for _, s := range losers {
		if _, err := d.await(short, d.freedAtDecode(s)); err != nil {
			return false, ctx.Err()
		}
	}
	return true, nil
}
