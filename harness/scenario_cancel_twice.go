package harness

import (
	"context"

	"conform/adapters"
	"conform/spec"
)

func cancelTwice() Scenario {
	const open, twice = "a transfer was open when its request was cancelled", "both stages were asked, and one of them twice"
	return Scenario{
		ID: "cancel-twice", Title: "A request is cancelled at both stages, and again, while its transfer runs",
		Why:      "Clients, routers and peers each give a request up in their own time. What belongs to it must end once, however often it is asked to.",
		Branches: []string{open, twice},
		shapes: map[string]shape{onReference: {
			modes: []string{"push"}, plans: map[string]string{"push": holdOpen("kv", 1)},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partLoser, prompt: 40, output: 4}}, chorus(partAfter, 12, 40, 3)...)
			},
			play: playTwiceReference, hears: []spec.Kind{spec.KindCancel, spec.KindFree},
		}, onSGLang: {
			plans: map[string]string{"": holdOpen("kv", 3)},
			cast:  castHeld(fifthOfDecode), play: playTwice,
			hears: []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree},
		}},
		reach: map[string]func(*recorded) bool{open: openAt(isKind(spec.KindCancel)), twice: askedTwice},
	}
}

func playTwice(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.cancelEverywhere(ctx, loser); err != nil {
		return err
	}
	if err := d.churn(ctx, 3, 7); err != nil {
		return err
	}
	return d.letGo(ctx)
}

func playTwiceReference(ctx context.Context, d *director) error {
	loser, err := d.sendHeld(ctx, partLoser, 1)
	if err != nil {
		return err
	}
	if err := d.cancelEverywhere(ctx, loser); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, 12)
}

// cancelEverywhere cancels a request at both stages, twice each. Once it has ended
// for its client, there is nothing more to ask.
func (d *director) cancelEverywhere(ctx context.Context, s *sent) error {
	for range 2 {
		for _, at := range []spec.Role{spec.RolePrefill, spec.RoleDecode} {
			if err := d.stack.Abort(ctx, s.id, at); err != nil {
				return err
			}
			d.l.client.record(spec.Event{K: spec.KindCancel, Th: s.name, Req: s.id, Why: "abort at " + string(at)})
		}
	}
	_, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindCancel, ofReq(s.id)))
	return err
}

// askedTwice looks for a request that a client gave up at both stages, and more
// often than that.
func askedTwice(r *recorded) bool {
	asked := map[string]map[string]int{}
	for i := range r.events {
		e := &r.events[i]
		if e.K != spec.KindCancel || r.role[e.Src] != spec.RoleClient {
			continue
		}
		if asked[e.Req] == nil {
			asked[e.Req] = map[string]int{}
		}
		asked[e.Req][e.Why]++
	}
	for _, by := range asked {
		if len(by) > 1 {
			for _, n := range by {
				if n > 1 {
					return true
				}
			}
		}
	}
	return false
}
