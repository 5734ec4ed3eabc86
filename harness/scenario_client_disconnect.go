package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func clientDisconnect() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: leave}
	w.leaveEvery, w.streamEvery = 5, 2
	w.cancelAfter = [2]time.Duration{time.Millisecond, 12 * time.Millisecond}
	return Scenario{
		ID: "client-disconnect", Title: "Clients close their connections at any time",
		Why:      "Nobody waits for the answer any more, and everything that was reserved on every stage must come back all the same.",
		Branches: []string{"a transfer was open when its client left", "a request gave its blocks back after its client had left"},
		shapes: map[string]shape{onReference: {
			plans: map[string]string{
				"push": "rules:" + holdTransfer("w", "prefill", "60ms"),
				"pull": "rules:" + holdTransfer("r", "decode", "60ms"),
			},
			workload: w,
		}, onSGLang: {
			plans: map[string]string{"": holdOpen("kv", 3)},
			cast: func(l adapters.Limits, p adapters.Pace) []part {
				return append(castHeld(fifthOfDecode)(l, p), part{name: "streaming", prompt: 40, output: 400, stream: true})
			},
			play: playLeave, branches: []string{"a client left in the middle of a stream"},
			hears: []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree, spec.KindOutput},
		}},
		reach: map[string]func(*recorded) bool{
			"a transfer was open when its client left":                 openAt(isKind(spec.KindCancel)),
			"a request gave its blocks back after its client had left": freedFor("cancel"),
			"a client left in the middle of a stream":                  leftStream,
		},
	}
}

// playLeave lets a client leave whose transfer is held, and one in the middle of a
// stream: nobody but the connection tells the stack of it.
func playLeave(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.leave(ctx, loser); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindCancel, ofReq(loser.id))); err != nil {
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
	stream, err := d.send(ctx, "streaming")
	if err != nil {
		return err
	}
	if _, err := d.soon(ctx, nth(3, d.at(spec.RoleDecode, spec.KindOutput, ofReq(stream.id)))); err != nil {
		return err
	}
	if err := d.leave(ctx, stream); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.freedAtDecode(stream)); err != nil {
		return err
	}
	return d.stillServes(ctx)
}

// leftStream reports whether decode took in that a request is cancelled which had
// put tokens out and went on for no more than those.
func leftStream(r *recorded) bool {
	out := map[string]bool{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindOutput && r.role[e.Src] == spec.RoleDecode {
			out[e.Req] = true
		}
	}
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindCancel && r.role[e.Src] == spec.RoleDecode && out[e.Req]
	})
}
