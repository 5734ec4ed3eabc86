package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func handoffTimeout() Scenario {
	const open = "a transfer was open when its request's time ran out"
	return Scenario{
		ID: "handoff-timeout", Title: "The wait for a handoff ends while its transfer runs",
		Why:      "A stage that waits no longer has decided about its own patience. The writer that it waited for has not been asked.",
		Branches: []string{open},
		shapes: map[string]shape{onReference: {
			modes:    []string{"push"},
			plans:    map[string]string{"push": "rules:" + holdTransfer("w", "prefill", "500ms")},
			limits:   adapters.Limits{HandoffTimeout: 150 * time.Millisecond, AbortTimeout: time.Second},
			workload: plainWorkload(),
		}, onSGLang: {
			plans:  map[string]string{"": holdOpen("kv", 3)},
			limits: adapters.Limits{HandoffTimeout: 4 * time.Second},
			cast:   castHeld(fifthOfDecode), play: playTimeout,
			hears: []spec.Kind{spec.KindAccept, spec.KindExpire, spec.KindFree},
		}},
		reach: map[string]func(*recorded) bool{open: openAtStage(spec.RoleDecode, spec.KindExpire)},
	}
}

// playTimeout holds a transfer for longer than decode waits, and lets it go when
// decode has gone on with others.
func playTimeout(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindExpire, ofReq(loser.id))); err != nil {
		return err
	}
	if err := d.endedAtPrefill(ctx, loser); err != nil {
		return err
	}
	if err := d.churn(ctx, 6, 7); err != nil {
		return err
	}
	return d.letGo(ctx)
}
