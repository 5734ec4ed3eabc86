package harness

import (
	"context"

	"conform/spec"
)

func slotReuse() Scenario {
	const open, gone = "a transfer of metadata was open when its request was cancelled", "the slot was given to another while the transfer ran"
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	return Scenario{
		ID: "slot-reuse", Title: "A request is cancelled while its metadata is on the way, and slots go round",
		Why:      "The first token and its metadata travel in a slot of their own. A page that is held back is of no use when the slot beside it is not.",
		Branches: []string{open},
		shapes: map[string]shape{onReference: {
			modes: []string{"push"},
			plans: map[string]string{"push": `rules:
  - name: ` + ruleHold + `
    when: {access: w, pool: aux, from: prefill, nth: 3, every: 12}
    do: hold
    until: {event: alloc, pool: aux, same: block}
    limit: 200ms
`},
			workload: w,
		}, onSGLang: {
			plans: map[string]string{"": holdOpen("aux", 3)},
			cast:  castHeld(fifthOfDecode), play: playSlots,
			hears:    []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree},
			branches: []string{gone},
		}},
		reach: map[string]func(*recorded) bool{
			open: openAtStage(spec.RoleDecode, spec.KindCancel),
			gone: slotsWentRound,
		},
	}
}

// slots is at least how many metadata slots a stage has: as many requests take each
// of them once.
const slots = 20

// playSlots cancels a request whose metadata is held, and lets each stage serve as
// many requests as it has slots.
func playSlots(ctx context.Context, d *director) error {
	if _, err := d.cancelLoser(ctx); err != nil {
		return err
	}
	for _, role := range []spec.Role{spec.RolePrefill, spec.RoleDecode} {
		for range slots {
			if err := d.fill(ctx, string(role), d.pageTokens(), 1); err != nil {
				return err
			}
		}
	}
	return d.letGo(ctx)
}

// slotsWentRound reports whether, while a transfer of metadata was open, each other
// slot on one of its ends was leased, or the transfer's own: had that been free, it
// would have been given away. All processes of one machine share a clock.
func slotsWentRound(r *recorded) bool {
	size := map[string]int64{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindPool && e.Pool == "aux" {
			size[r.worker[e.Src]] = e.Count
		}
	}
	return r.any(func(begin *spec.Event) bool {
		if begin.K != spec.KindBegin || begin.Pool != "aux" || begin.Via != "transfer" {
			return false
		}
		end, leased := r.ends[begin.Access], map[int64]bool{}
		return r.any(func(e *spec.Event) bool {
			if e.K != spec.KindAlloc || e.Pool != "aux" || r.worker[e.Src] != begin.Target || e.T < begin.T || end != nil && e.T > end.T {
				return false
			}
			own := false
			for n := range e.Blocks.All {
				leased[n] = true
				own = own || begin.Blocks.Contains(n)
			}
			return own || int64(len(leased)) >= size[begin.Target]-1
		})
	})
}
