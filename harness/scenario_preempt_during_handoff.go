package harness

import (
	"context"
	"fmt"

	"conform/adapters"
	"conform/spec"
)

func preemptDuringHandoff() Scenario {
	const taken = "prefill took blocks from a request that it had not finished"
	const gone, open, cancelled = "decode took a running request's blocks away", "a transfer was open meanwhile", "a request was cancelled that had been preempted"
	large := plainWorkload()
	large.prompt = [2]int{24, 64}
	return Scenario{
		ID: "preempt-during-handoff", Title: "A stage runs out of blocks and preempts a request, while transfers run",
		Why: "A preempted request has no blocks and is not over. Its blocks go to others at once, and its end must not give them back again.",
		shapes: map[string]shape{onReference: {
			limits:   adapters.Limits{PrefillBlocks: 9, PrefillTokens: 64},
			workload: large,
			branches: []string{taken},
		}, onSGLang: {
			branches: []string{gone, open, cancelled},
			plans:    map[string]string{"": holdOpen("kv", runners+2)},
			cast: func(l adapters.Limits, _ adapters.Pace) []part {
				parts := []part{{name: partWarm, prompt: 30, output: 4}, {name: partLoser, prompt: 30, output: 8}, {name: partAfter, prompt: 60, output: 8}}
				return append(parts, chorus("runner", runners, l.DecodeTokens/10, l.DecodeTokens*3/5)...)
			},
			play: playPreempt, hears: []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree},
		}},
		reach: map[string]func(*recorded) bool{
			taken:     freedFor("preempt"),
			gone:      freedFor("preempt"),
			open:      openAny(func(e *spec.Event) bool { return e.K == spec.KindFree && e.Why == "preempt" }),
			cancelled: cancelledPreempted,
		},
	}
}

// runners are requests that together need more of decode's pool than there is, some
// hundred steps after they were handed over: the transfer is held long before.
const runners = 2

// playPreempt lets requests grow until decode preempts one, while the transfer of
// another is held, and cancels the one that was preempted.
func playPreempt(ctx context.Context, d *director) error {
	if err := d.serve(ctx, partWarm); err != nil {
		return err
	}
	running := map[string]*sent{}
	for i := range runners {
		s, err := d.send(ctx, fmt.Sprintf("runner-%d", i))
		if err != nil {
			return err
		}
		running[s.id] = s
		if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindAccept, ofReq(s.id))); err != nil {
			return err
		}
	}
	if _, err := d.sendHeld(ctx, partLoser, 1); err != nil {
		return err
	}
	preempted, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindFree, inPool("kv"), because("preempt")))
	if err != nil {
		return err
	}
	s := running[preempted.Req]
	if s == nil {
		return fmt.Errorf("%s was preempted, which is none of the runners", preempted.Req)
	}
	if err := d.abortAt(ctx, s, spec.RoleDecode); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	if err := d.waitAll(ctx); err != nil {
		return err
	}
	return d.serve(ctx, partAfter)
}

// openAny reports whether any remote access was open when an event that f picks took
// effect, whatever handoff it is of.
func openAny(f func(*spec.Event) bool) func(*recorded) bool {
	return func(r *recorded) bool {
		return r.any(func(e *spec.Event) bool {
			return f(e) && r.any(func(begin *spec.Event) bool {
				return begin.K == spec.KindBegin && begin.Handoff != "" && r.remote(begin) && r.span(begin).holds(e)
			})
		})
	}
}

// cancelledPreempted looks for a request that decode took in as cancelled after it
// had taken its blocks away and before it gave it any again.
func cancelledPreempted(r *recorded) bool {
	without := map[string]bool{}
	return r.any(func(e *spec.Event) bool {
		switch {
		case r.role[e.Src] != spec.RoleDecode || e.Req == "":
		case e.K == spec.KindFree && e.Pool == "kv" && e.Why == "preempt":
			without[e.Req] = true
		case e.K == spec.KindAlloc && e.Pool == "kv":
			delete(without, e.Req)
		}
		return e.K == spec.KindCancel && r.role[e.Src] == spec.RoleDecode && without[e.Req]
	})
}
