package harness

import (
	"context"

	"conform/adapters"
	"conform/spec"
)

func fanOut() Scenario {
	const open, both = "a transfer was open when its request was cancelled", "both decode workers took requests over"
	return Scenario{
		ID: "fan-out", Title: "One prefill worker feeds two decode workers, and a request of one is cancelled",
		Why:      "Pages of two workers have the same numbers. A word, a write or a release that mixes them up hits a stranger.",
		Branches: []string{open, both},
		shapes: map[string]shape{onSGLang: {
			plans:    map[string]string{"": holdOpen("kv", 4)},
			topology: adapters.Topology{Decode: 2},
			cast: func(l adapters.Limits, p adapters.Pace) []part {
				parts := append(castHeld(fifthOfDecode)(l, p), chorus("other", 3, l.DecodeTokens/5, 8)...)
				for i := range parts {
					if i > 3 {
						parts[i].decode = 1
					}
				}
				return parts
			},
			play: playFanOut, hears: []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree},
		}},
		reach: map[string]func(*recorded) bool{open: openAtStage(spec.RoleDecode, spec.KindCancel), both: bothAccepted},
	}
}

// playFanOut serves a request at the second decode worker, cancels one whose transfer
// to the first is held, and serves two more at the second meanwhile.
func playFanOut(ctx context.Context, d *director) error {
	if err := d.serve(ctx, "other-0"); err != nil {
		return err
	}
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	if err := d.churn(ctx, 3, 7); err != nil {
		return err
	}
	for _, name := range []string{"other-1", "other-2"} { // they may queue behind the held one
		if _, err := d.send(ctx, name); err != nil {
			return err
		}
	}
	if err := d.endedAtPrefill(ctx, loser); err != nil {
		return err
	}
	return d.letGo(ctx)
}

func bothAccepted(r *recorded) bool {
	workers := map[string]bool{}
	return r.any(func(e *spec.Event) bool {
		if e.K == spec.KindAccept && r.role[e.Src] == spec.RoleDecode {
			workers[r.worker[e.Src]] = true
		}
		return len(workers) > 1
	})
}
