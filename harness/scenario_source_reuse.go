package harness

import (
	"context"

	"conform/adapters"
	"conform/spec"
)

func sourceReuse() Scenario {
	return Scenario{
		ID: "source-reuse", Title: "A request is cancelled while prefill still reads its pages, and prefill goes on",
		Why:      "The source of a transfer has a reader as the destination has a writer. Its pages are reusable when that reader has stopped.",
		Branches: []string{"a transfer was open when its request was cancelled"},
		shapes: map[string]shape{
			onSGLang: {
				plans: map[string]string{"": holdOpenFor("kv", 3, "20s")},
				cast: func(l adapters.Limits, _ adapters.Pace) []part {
					return []part{
						{name: partWarm, prompt: 30, output: 4},
						{name: partVictim, prompt: 20, output: 40},
						{name: partLoser, prompt: l.PrefillTokens / 4, output: 8},
					}
				},
				play:     playSourceReuse,
				hears:    []spec.Kind{spec.KindAccept, spec.KindCancel},
				branches: []string{"prefill gave pages of the cancelled request to another"},
			},
		},
		reach: map[string]func(*recorded) bool{
			"a transfer was open when its request was cancelled":     openAt(isKind(spec.KindCancel)),
			"prefill gave pages of the cancelled request to another": sourceReused,
		},
	}
}

// playSourceReuse cancels a request whose transfer is held, and lets prefill serve
// as much as its whole pool before the transfer goes on.
func playSourceReuse(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.abort(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	if _, err := loser.wait(ctx); err != nil {
		return err
	}
	for range 2 {
		if err := d.fill(ctx, string(spec.RolePrefill), d.limits().PrefillBlocks*7/8*d.pageTokens(), 1); err != nil {
			return err
		}
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.waitAll(ctx)
}

// sourceReused reports whether a block was leased anew at prefill while a transfer
// still read it. All processes of one machine share a clock.
func sourceReused(r *recorded) bool {
	reads := map[spec.BlockID][]span{}
	for i := range r.events {
		e := &r.events[i]
		if e.K != spec.KindBegin || e.Mode != "r" || e.Via != "transfer" {
			continue
		}
		for n := range e.Blocks.All {
			id := spec.BlockID{Worker: e.Target, Pool: e.Pool, Number: n}
			reads[id] = append(reads[id], r.span(e))
		}
	}
	return r.any(func(e *spec.Event) bool {
		if e.K != spec.KindAlloc || r.role[e.Src] != spec.RolePrefill {
			return false
		}
		for n := range e.Blocks.All {
			for _, s := range reads[spec.BlockID{Worker: r.worker[e.Src], Pool: e.Pool, Number: n}] {
				if s.holds(e) {
					return true
				}
			}
		}
		return false
	})
}
