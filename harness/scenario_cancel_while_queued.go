package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func cancelWhileQueued() Scenario {
	const room, word = "decode took in the cancellation of a request that waited there for room", "prefill was told"
	const queued, told = "prefill took in the cancellation of a request that it had a grant for and had not begun", "the request ended at decode too"
	return Scenario{
		ID: "cancel-while-queued", Title: "A request is cancelled while it waits for room",
		Why: "The other stage has reserved blocks for it, or keeps those that it has computed. Who ends the request must tell the stage that waits for it.",
		shapes: map[string]shape{onReference: {
			modes: []string{modePull},
			limits: adapters.Limits{
				DecodeBlocks: 16, Step: 10 * time.Millisecond, HandoffTimeout: 2 * time.Second,
			},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partVictim, prompt: 40, output: 85}, {name: partLoser, prompt: 40, output: 8}}, chorus(partAfter, afterwards, 40, 3)...)
			},
			play: playNoRoomAtDecode, hears: []spec.Kind{spec.KindAccept, spec.KindAdmit, spec.KindCancel},
			branches: []string{room, word},
		}, onSGLang: {
			branches: []string{queued, told},
			plans:    map[string]string{"": holdOpen("kv", 2)},
			limits:   adapters.Limits{PrefillBlocks: 24, HandoffTimeout: 6 * time.Second},
			cast: func(l adapters.Limits, _ adapters.Pace) []part {
				return []part{
					{name: partWarm, prompt: 30, output: 4},
					{name: partVictim, prompt: l.PrefillTokens * 5 / 8, output: 8},
					{name: partLoser, prompt: l.PrefillTokens * 5 / 8, output: 8},
					{name: partAfter, prompt: 60, output: 8},
				}
			},
			play: playQueued, hears: []spec.Kind{spec.KindAlloc, spec.KindCancel, spec.KindFinish},
		}},
		reach: map[string]func(*recorded) bool{
			queued: cancelledQueued, told: endedAtDecode, room: cancelledUnleased, word: observed(spec.RolePrefill, "READ_ABORT"),
		},
	}
}

// playQueued holds the transfer of a request that fills prefill's pool, and cancels
// the next one at prefill, which has its grant and waits for pages.
func playQueued(ctx context.Context, d *director) error {
	if err := d.serve(ctx, partWarm); err != nil {
		return err
	}
	if _, err := d.sendHeld(ctx, partVictim, 1); err != nil {
		return err
	}
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	// Prefill takes a metadata slot for a request when it has its grant.
	if _, err := d.soon(ctx, d.at(spec.RolePrefill, spec.KindAlloc, ofReq(loser.id), inPool("aux"))); err != nil {
		return err
	}
	if err := d.abortAt(ctx, loser, spec.RolePrefill); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindFinish, ofReq(loser.id))); err != nil {
		return err
	}
	return d.stillServes(ctx)
}

// playNoRoomAtDecode cancels a request that decode has admitted and has no blocks for,
// because another has them.
func playNoRoomAtDecode(ctx context.Context, d *director) error {
	if _, err := d.sendAccepted(ctx, partVictim); err != nil {
		return err
	}
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindAdmit, ofReq(loser.id))); err != nil {
		return err
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}

// cancelledUnleased looks for a request that decode took in as cancelled and never
// leased a block for.
func cancelledUnleased(r *recorded) bool {
	leased := map[string]bool{}
	return r.any(func(e *spec.Event) bool {
		if r.role[e.Src] != spec.RoleDecode {
			return false
		}
		if e.K == spec.KindAlloc {
			leased[e.Req] = true
		}
		return e.K == spec.KindCancel && !leased[e.Req]
	})
}

// queuedCancel gives the requests that prefill took in as cancelled when they had a
// metadata slot there and no forward pass had begun for them.
func queuedCancel(r *recorded) map[string]bool {
	slot, begun, found := map[string]int64{}, map[string]int64{}, map[string]bool{}
	for i := range r.events {
		e := &r.events[i]
		if r.role[e.Src] != spec.RolePrefill || e.Req == "" {
			continue
		}
		switch {
		case e.K == spec.KindAlloc && e.Pool == "aux" && slot[e.Req] == 0:
			slot[e.Req] = e.T
		case e.K == spec.KindBegin && e.Via == "forward" && begun[e.Req] == 0:
			begun[e.Req] = e.T
		}
	}
	for i := range r.events {
		e := &r.events[i]
		if e.K == spec.KindCancel && r.role[e.Src] == spec.RolePrefill && slot[e.Req] != 0 && slot[e.Req] < e.T && (begun[e.Req] == 0 || begun[e.Req] > e.T) {
			found[e.Req] = true
		}
	}
	return found
}

func cancelledQueued(r *recorded) bool { return len(queuedCancel(r)) > 0 }

// endedAtDecode reports whether such a request also ended at decode.
func endedAtDecode(r *recorded) bool {
	cancelled := queuedCancel(r)
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindFinish && r.role[e.Src] == spec.RoleDecode && cancelled[e.Req]
	})
}
