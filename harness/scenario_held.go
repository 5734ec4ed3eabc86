package harness

import (
	"context"
	"fmt"
	"time"

	"conform/adapters"
	"conform/spec"
)

// What plays on a real engine that hold a transfer have in common.

// How long a play waits: for what it can't do without, which a busy machine may be
// slow at, and for what the stack may never do.
const (
	longTime = 40 * time.Second
	someTime = 10 * time.Second
)

// soon is await, for longTime at most.
func (d *director) soon(ctx context.Context, f func(*spec.Event) bool) (spec.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, longTime)
	defer cancel()
	return d.await(ctx, f)
}

// acted is fired, for longTime at most.
func (d *director) acted(ctx context.Context, rule string, times int) error {
	ctx, cancel := context.WithTimeout(ctx, longTime)
	defer cancel()
	_, err := d.fired(ctx, rule, times)
	return err
}

// perhaps waits for what may come or not: what follows in the play does without it.
func (d *director) perhaps(ctx context.Context, f func(*spec.Event) bool) error {
	short, cancel := context.WithTimeout(ctx, someTime)
	defer cancel()
	if _, err := d.await(short, f); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// nth picks the nth event that f picks.
func nth(n int, f func(*spec.Event) bool) func(*spec.Event) bool {
	return func(e *spec.Event) bool {
		if f(e) {
			n--
		}
		return n == 0
	}
}

// because picks events with a why.
func because(why string) func(*spec.Event) bool {
	return func(e *spec.Event) bool { return e.Why == why }
}

// holdOpen holds the nth transfer of a pool that prefill posts until the play lets
// it go.
func holdOpen(pool string, nth int) string { return holdOpenFor(pool, nth, "40s") }

// holdOpenFor is holdOpen with a limit.
func holdOpenFor(pool string, nth int, limit string) string {
	return fmt.Sprintf(`rules:
  - name: %s
    when: {access: w, pool: %s, from: prefill, nth: %d}
    do: hold
    until: {event: idle}
    limit: %s
`, ruleHold, pool, nth, limit)
}

// castHeld is what holdLoser sends: the bystander's answer is short, the loser takes
// so many tokens.
func castHeld(loser func(adapters.Limits) int) func(adapters.Limits, adapters.Pace) []part {
	return func(l adapters.Limits, _ adapters.Pace) []part {
		return []part{
			{name: partWarm, prompt: 30, output: 4},
			{name: partVictim, prompt: 20, output: 40},
			{name: partLoser, prompt: loser(l), output: 8},
			{name: partAfter, prompt: 60, output: 8},
		}
	}
}

// partAfter shows that the stack still serves.
const partAfter = "afterwards"

func fifthOfDecode(l adapters.Limits) int { return l.DecodeTokens / 5 }

// abortAt cancels a request at a stage, and waits until that stage has taken it in.
// A request that has ended meanwhile is as good.
func (d *director) abortAt(ctx context.Context, s *sent, at spec.Role) error {
	if err := d.abort(ctx, s, at); err != nil {
		return err
	}
	_, err := d.soon(ctx, d.at(at, spec.KindCancel, ofReq(s.id)))
	return err
}

// endedAtPrefill waits until prefill has let go of a request, or has had the time to:
// one that keeps its pages until the transfer is over doesn't let go before.
func (d *director) endedAtPrefill(ctx context.Context, s *sent) error {
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := d.await(short, d.at(spec.RolePrefill, spec.KindFree, ofReq(s.id), inPool("aux")))
	if err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// cancelLoser holds the loser's transfer and cancels it at decode; prefill has then
// let go of it, or had the time to.
func (d *director) cancelLoser(ctx context.Context) (*sent, error) {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return nil, err
	}
	return loser, d.endedAtPrefill(ctx, loser)
}

// sendHeld sends a part, and waits until the rule that holds has acted so many times.
func (d *director) sendHeld(ctx context.Context, name string, times int) (*sent, error) {
	s, err := d.send(ctx, name)
	if err != nil {
		return nil, err
	}
	return s, d.acted(ctx, ruleHold, times)
}

// sendAccepted sends a part, and waits until decode has accepted it.
func (d *director) sendAccepted(ctx context.Context, name string) (*sent, error) {
	s, err := d.send(ctx, name)
	if err != nil {
		return nil, err
	}
	_, err = d.soon(ctx, d.at(spec.RoleDecode, spec.KindAccept, ofReq(s.id)))
	return s, err
}

// letGo ends the hold, shows that the stack still serves, and waits for every part.
func (d *director) letGo(ctx context.Context) error {
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.stillServes(ctx)
}

// stillServes shows that the stack serves, and waits for every part.
func (d *director) stillServes(ctx context.Context) error {
	if err := d.serve(ctx, partAfter); err != nil {
		return err
	}
	return d.waitAll(ctx)
}

// serveAfterwards serves the first so many parts that follow the one that a play is
// about, but for those that it has sent already, and waits for every part.
func (d *director) serveAfterwards(ctx context.Context, count int) error {
	for _, p := range chorus(partAfter, count, 0, 0) {
		d.mu.Lock()
		sent := d.sent[p.name] != nil
		d.mu.Unlock()
		if sent {
			continue
		}
		if err := d.serve(ctx, p.name); err != nil {
			return err
		}
	}
	return d.waitAll(ctx)
}

// freedAtDecode picks that decode gives pages of a request back.
func (d *director) freedAtDecode(s *sent) func(*spec.Event) bool {
	return d.at(spec.RoleDecode, spec.KindFree, ofReq(s.id), inPool("kv"))
}

// openAtStage is openAt for events of one role.
func openAtStage(role spec.Role, k spec.Kind) func(*recorded) bool {
	return func(r *recorded) bool {
		return openAt(func(e *spec.Event) bool { return e.K == k && r.role[e.Src] == role })(r)
	}
}
