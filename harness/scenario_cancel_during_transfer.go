package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

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
			limits:   adapters.Limits{HandoffTimeout: 800 * time.Millisecond, Lease: 600 * time.Millisecond},
			workload: w,
		}, onSGLang: cancelHeld(), onVLLM: cancelRead()},
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

// cancelHeld is the abort race on a real engine. A bystander with a long answer runs;
// the transfer of another request is held when prefill has posted it; that request is
// cancelled at decode, which gives its pages back, or keeps them. Where it gives them
// back the bystander grows into them, and only then the transfer goes on: in that order
// however slow or quick the machine is.
func cancelHeld() shape {
	return shape{
		plans: map[string]string{"": holdOpenFor("kv", 3, "90s")},
		cast: func(l adapters.Limits, _ adapters.Pace) []part {
			return []part{
				{name: partWarm, prompt: 30, output: 4},
				{name: partVictim, prompt: 20, output: l.DecodeTokens * 3 / 5},
				{name: partLoser, prompt: l.DecodeTokens / 5, output: 8},
			}
		},
		play:     playCancelHeld,
		hears:    []spec.Kind{spec.KindAccept, spec.KindAlloc, spec.KindFree},
		branches: []string{"an abort was acknowledged"},
	}
}

// keepsFor is how long a stack that has not given pages back may still do so, before
// it is taken for one that keeps them as long as they are written to.
const keepsFor = 8 * time.Second

func playCancelHeld(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.abort(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, keepsFor)
	defer cancel()
	switch _, err := d.await(short, d.freedAtDecode(loser)); {
	case err == nil:
		if err := d.growInto(ctx, loser, 4); err != nil {
			return err
		}
	case ctx.Err() != nil:
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.waitAll(ctx)
}

// growInto waits until the bystander has been given so many pages that decode has taken
// from a request; it has filled all of them but the last. An engine hands out what came
// back only when its free list is short, and then the lowest first: what was used up of
// that list before, the bystander need not grow through.
func (d *director) growInto(ctx context.Context, loser *sent, pages int) error {
	const step, rest = 7, 3 // pages; some are left for what the bystander takes meanwhile
	victim := d.cast[partVictim].id
	taken, owned := d.leasedAtDecode(loser.id), d.leasedAtDecode(victim)
	for left, grown := d.listed(loser), 0; left-grown >= step+rest; left -= step {
		if err := d.churn(ctx, 1, step); err != nil { // it may be heard of later
			return err
		}
		grown = len(d.leasedAtDecode(victim)) - len(owned)
	}
	grown := d.at(spec.RoleDecode, spec.KindAlloc, ofReq(victim), inPool("kv"))
	ctx, cancel := context.WithTimeout(ctx, growTime)
	defer cancel()
	_, err := d.await(ctx, func(e *spec.Event) bool {
		if grown(e) {
			for n := range e.Blocks.All {
				if taken[n] && !owned[n] {
					pages--
				}
			}
		}
		return pages <= 0
	})
	if err != nil {
		err = fmt.Errorf("the bystander (%s) did not grow into the pages of %s: %w", victim, loser.id, err)
	}
	return err
}

// growTime is below the limit of the hold, and above what a busy machine takes.
const growTime = 80 * time.Second

// leasedAtDecode are the pages that decode has given a request so far.
func (d *director) leasedAtDecode(req string) map[int64]bool {
	pages, leased := map[int64]bool{}, d.at(spec.RoleDecode, spec.KindAlloc, ofReq(req), inPool("kv"))
	events, _, _ := d.log.since(0)
	for i := range events {
		if leased(&events[i]) {
			for n := range events[i].Blocks.All {
				pages[n] = true
			}
		}
	}
	return pages
}

// listed is how many pages decode's free list has before those that came back since a
// request got its own. The list was short then, so that it took in all that was free.
func (d *director) listed(since *sent) int {
	leased, freed := d.at(spec.RoleDecode, spec.KindAlloc, inPool("kv")), d.at(spec.RoleDecode, spec.KindFree, inPool("kv"))
	list, in := int64(d.limits().DecodeBlocks), true
	events, _, _ := d.log.since(0)
	for i := range events {
		switch e := &events[i]; {
		case leased(e):
			list -= e.Blocks.Len()
			in = in && e.Req != since.id
		case in && freed(e):
			list += e.Blocks.Len()
		}
	}
	return int(list)
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
	short, cancel := context.WithTimeout(ctx, longTime)
	defer cancel()
	held, err := d.fired(short, ruleHold, 1)
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
