package harness

import (
	"context"
	"fmt"

	"conform/adapters"
	"conform/spec"
)

// rulePrefill acts on the loser's question to prefill: it is the second of the play.
const rulePrefill = "prefill-is-not-asked"

// atSecondLeg is a plan that does something to prefill's part of the second request.
func atSecondLeg(do string) string {
	return fmt.Sprintf(`rules:
  - name: %s
    when: {http: POST /v1/completions, to: prefill, nth: 2}
    %s
`, rulePrefill, do)
}

// castLegs is what both plays send.
func castLegs(l adapters.Limits, _ adapters.Pace) []part {
	return []part{
		{name: partWarm, prompt: 30, output: 4},
		{name: partLoser, prompt: fifthOfDecode(l), output: 8},
		{name: partVictim, prompt: 40, output: 8},
		{name: partAfter, prompt: 60, output: 8},
	}
}

func prefillAbsent() Scenario {
	const branch = "decode let a prefill worker write that never heard of the request"
	return Scenario{
		ID: "prefill-absent", Title: "Prefill never hears of a request that decode has reserved blocks for, and the client leaves",
		Why:      "Where both stages are asked at once, one of the questions may be lost. Decode then waits for a write that nobody will begin, and nobody is left to tell it so.",
		Branches: []string{branch, "a request was cancelled whose transfer had not begun"},
		shapes: map[string]shape{onVLLM: {
			modes: []string{"mooncake"},
			plans: map[string]string{"": atSecondLeg("do: fail")},
			cast:  castLegs, play: playAbsent, hears: []spec.Kind{spec.KindGrant, spec.KindCancel, spec.KindFree},
		}},
		reach: map[string]func(*recorded) bool{
			branch: func(r *recorded) bool {
				heard := map[string]bool{}
				for i := range r.events {
					if e := &r.events[i]; e.K == spec.KindAdmit && r.role[e.Src] == spec.RolePrefill {
						heard[e.Req] = true
					}
				}
				return r.any(func(e *spec.Event) bool {
					return e.K == spec.KindGrant && r.role[e.Src] == spec.RoleDecode && !heard[e.Req]
				})
			},
			"a request was cancelled whose transfer had not begun": cancelledUnbegun,
		},
	}
}

func prefillLate() Scenario {
	const branch = "a write began for a request that decode had been told to cancel"
	return Scenario{
		ID: "prefill-late", Title: "Prefill comes to a request when decode has been told to cancel it",
		Why:      "The late stage does not know that nobody waits any more. What it writes must still go to blocks that are the request's own, and then they must come back.",
		Branches: []string{branch, "a request was cancelled whose transfer had not begun"},
		shapes: map[string]shape{onVLLM: {
			modes: []string{"mooncake"},
			plans: map[string]string{"": atSecondLeg("do: hold\n    until: {event: idle}\n    limit: 40s")},
			cast:  castLegs, play: playLate, hears: []spec.Kind{spec.KindGrant, spec.KindCancel, spec.KindFree},
		}},
		reach: map[string]func(*recorded) bool{
			branch: func(r *recorded) bool {
				cancelled := map[string]int64{}
				for i := range r.events {
					if e := &r.events[i]; e.K == spec.KindCancel && r.role[e.Src] == spec.RoleDecode {
						cancelled[e.Req] = e.T
					}
				}
				return r.any(func(e *spec.Event) bool {
					t, ok := cancelled[e.Req]
					return ok && e.K == spec.KindBegin && r.remote(e) && e.T > t
				})
			},
			"a request was cancelled whose transfer had not begun": cancelledUnbegun,
		},
	}
}

// cancelledUnbegun looks for a request that decode took in as cancelled after it had
// granted blocks, and before anybody wrote them.
func cancelledUnbegun(r *recorded) bool {
	granted, begun := map[string]bool{}, map[string]int64{}
	for i := range r.events {
		switch e := &r.events[i]; {
		case e.K == spec.KindGrant && r.role[e.Src] == spec.RoleDecode:
			granted[e.Req] = true
		case e.K == spec.KindBegin && r.remote(e):
			begun[e.Req] = e.T
		}
	}
	return r.any(func(e *spec.Event) bool {
		t, ever := begun[e.Req]
		return e.K == spec.KindCancel && r.role[e.Src] == spec.RoleDecode && granted[e.Req] && (!ever || t > e.T)
	})
}

// sendLoser serves a first request, and sends one that decode grants blocks for.
func (d *director) sendLoser(ctx context.Context) (*sent, error) {
	if err := d.serve(ctx, partWarm); err != nil {
		return nil, err
	}
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return nil, err
	}
	_, err = d.soon(ctx, d.at(spec.RoleDecode, spec.KindGrant, ofReq(loser.id)))
	return loser, err
}

// playAbsent lets a client leave whose request prefill never heard of.
func playAbsent(ctx context.Context, d *director) error {
	loser, err := d.sendLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.acted(ctx, rulePrefill, 1); err != nil {
		return err
	}
	if err := d.leave(ctx, loser); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindCancel, ofReq(loser.id))); err != nil {
		return err
	}
	return d.stillServes(ctx)
}

// playLate holds prefill's part of a request until decode has been told to cancel it and
// has served another.
func playLate(ctx context.Context, d *director) error {
	loser, err := d.sendLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.acted(ctx, rulePrefill, 1); err != nil {
		return err
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	if err := d.serve(ctx, partVictim); err != nil {
		return err
	}
	if err := d.release(rulePrefill); err != nil {
		return err
	}
	if err := d.perhaps(ctx, d.freedAtDecode(loser)); err != nil {
		return err
	}
	return d.stillServes(ctx)
}
