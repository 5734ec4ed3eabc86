package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"conform/adapters"
	"conform/spec"
)

// The rules of the plans below that clients react to.
const ruleHold = "hold-the-transfer"

// holdTransfer holds some transfers that the fabric has taken and not yet carried
// out: until their block has a new owner, which must not happen, or for a time.
func holdTransfer(access, from, limit string) string {
	return `
  - name: ` + ruleHold + `
    when: {access: ` + access + `, pool: kv, from: ` + from + `, nth: 3, every: 12}
    do: hold
    until: {event: alloc, pool: kv, same: block}
    limit: ` + limit + "\n"
}

func cancelDuringTransfer() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	return Scenario{
		ID: "cancel-during-transfer", Title: "A request is cancelled while its transfer runs",
		Why:      "A block has two owners at once, the request and the remote accessor. Ending the first must not hand it to a third.",
		Branches: []string{"a transfer was open when its request was cancelled", "a cancelled request gave its blocks back"},
		shapes: map[string]shape{onReference: {
			modal: map[string][]string{"push": {"an abort was acknowledged"}, "pull": {"a reader said that it had stopped"}},
			plans: map[string]string{
				"push": "rules:" + holdTransfer("w", "prefill", "120ms"),
				"pull": "rules:" + holdTransfer("r", "decode", "120ms"),
			},
			workload: w,
		}, onSGLang: cancelHeld("8s", 4)},
		reach: map[string]func(*recorded) bool{
			"a transfer was open when its request was cancelled": openAt(isKind(spec.KindCancel)),
			"a cancelled request gave its blocks back":           freedFor("cancel"),
			"an abort was acknowledged":                          observed(spec.RoleDecode, "ABORT_ACK"),
			"a reader said that it had stopped":                  observed(spec.RolePrefill, "READ_ABORT"),
		},
	}
}

func isKind(k spec.Kind) func(*spec.Event) bool {
	return func(e *spec.Event) bool { return e.K == k }
}

func freedFor(why string) func(*recorded) bool {
	return func(r *recorded) bool {
		return r.any(func(e *spec.Event) bool { return e.K == spec.KindFree && e.Why == why })
	}
}

// The parts of the play below.
const (
	partWarm   = "warm-up"
	partVictim = "bystander"
	partLoser  = "cancelled"
)

// cancelHeld is the abort race on a real engine, which hands a freed page out only
// when its free list is short. A bystander with a long answer runs; the transfer of
// another request is held when prefill has posted it; that request is cancelled at
// decode; the free list has been used up by then, so that the bystander grows into
// the pages that come back. The hold ends when it has got some of them, or after limit.
func cancelHeld(limit string, taken int) shape {
	return shape{
		plans: map[string]string{"": holdNth(3, taken, limit)},
		cast: func(l adapters.Limits, _ adapters.Pace) []part {
			return []part{
				{name: partWarm, prompt: 30, output: 4},
				{name: partVictim, prompt: 20, output: l.DecodeTokens * 3 / 5},
				{name: partLoser, prompt: l.DecodeTokens / 5, output: 8},
			}
		},
		play:     playCancelHeld,
		hears:    []spec.Kind{spec.KindAccept, spec.KindAlloc},
		branches: []string{"an abort was acknowledged"},
	}
}

// holdNth holds the nth transfer of KV that prefill posts, until the blocks that it
// writes have been leased anew so many times, or for a limit.
func holdNth(nth, taken int, limit string) string {
	return fmt.Sprintf(`rules:
  - name: %s
    when: {access: w, pool: kv, from: prefill, nth: %d}
    do: hold
    until: {event: alloc, pool: kv, same: block, nth: %d}
    limit: %s
`, ruleHold, nth, taken, limit)
}

func playCancelHeld(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.churn(ctx, 6, 7); err != nil {
		return err
	}
	if err := d.abort(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	return d.waitAll(ctx)
}

// holdLoser brings the stack to where the bystander generates and the transfer of
// the loser is held.
func (d *director) holdLoser(ctx context.Context) (*sent, error) {
	if err := d.serve(ctx, partWarm); err != nil {
		return nil, err
	}
	// Twice nearly the whole pool: the free list is short now, and what was freed
	// comes back into it in order.
	if err := d.churn(ctx, 2, d.limits().DecodeBlocks*7/8); err != nil {
		return nil, err
	}
	victim, err := d.send(ctx, partVictim)
	if err != nil {
		return nil, err
	}
	if _, err := d.await(ctx, d.at(spec.RoleDecode, spec.KindAccept, ofReq(victim.id))); err != nil {
		return nil, err
	}
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return nil, err
	}
	held, err := d.fired(ctx, ruleHold, 1)
	if err == nil && held.Req != loser.id {
		err = fmt.Errorf("the transfer of %s was held, not that of the part %s (%s)", held.Req, partLoser, loser.id)
	}
	return loser, err
}

// churn uses so many blocks of decode's free list, several times.
func (d *director) churn(ctx context.Context, times, blocks int) error {
	for range times {
		if err := d.fill(ctx, string(spec.RoleDecode), blocks*d.pageTokens()-2, 1); err != nil {
			return err
		}
	}
	return nil
}

// waitAll waits for every part that was sent.
func (d *director) waitAll(ctx context.Context) error {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.sent))
	d.mu.Unlock()
	for _, s := range all {
		if _, err := s.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *director) pageTokens() int { return d.l.pace.PageTokens }
