package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func workerKilled() Scenario {
	w := plainWorkload()
	w.requests = 60
	return Scenario{
		ID: "worker-killed", Title: "Prefill is killed in mid-transfer and started again",
		Why:      "A dead peer's writes may still be on their way, and the worker that comes back under the same address is another one: it knows nothing of the earlier one's handoffs.",
		Branches: []string{"a worker died with a transfer open", "the new incarnation served a request"},
		shapes: map[string]shape{onReference: {
			branches: []string{"decode gave its blocks back"},
			plans: map[string]string{
				"push": "rules:" + crash("w", "prefill", "decode"),
				"pull": "rules:" + crash("r", "decode", "prefill"),
			},
			limits:   adapters.Limits{PeerTimeout: 250 * time.Millisecond, HandoffTimeout: time.Second, Lease: 400 * time.Millisecond},
			workload: w,
		}, onSGLang: {
			plans:    map[string]string{"": holdOpen("kv", 3)},
			limits:   adapters.Limits{Heartbeat: time.Second, AbortTimeout: 2 * time.Second, HandoffTimeout: 8 * time.Second},
			topology: adapters.Topology{Prefill: 2},
			cast: func(l adapters.Limits, p adapters.Pace) []part {
				return append(castHeld(fifthOfDecode)(l, p), part{name: "other-prefill", prompt: 60, output: 8, prefill: 1})
			},
			play: playKilled, hears: []spec.Kind{spec.KindAccept, spec.KindFree, spec.KindFinish},
			branches: []string{"decode gave up a request of the dead worker", "the other prefill worker served a request meanwhile"},
		}, onVLLM: {
			// Decode has asked this worker, and nobody else can answer.
			modes: []string{"mooncake"}, plans: map[string]string{"": holdOpen("kv", 2)}, cast: castLegs,
			play: playKilledAsked, hears: []spec.Kind{spec.KindGrant, spec.KindCancel},
		}},
		reach: map[string]func(*recorded) bool{
			"a worker died with a transfer open":                  diedInTransfer,
			"the new incarnation served a request":                secondIncarnation,
			"decode gave up a request of the dead worker":         gaveUpDead,
			"the other prefill worker served a request meanwhile": servedMeanwhile,
			"decode gave its blocks back":                         freedFor("peer_lost"),
		},
	}
}

// crash holds one transfer and kills prefill under it, some transfers later.
func crash(access, from, to string) string {
	return `
  - name: hold-the-transfer-that-dies
    when: {access: ` + access + `, pool: kv, from: ` + from + `, nth: 18}
    do: hold
    until: {event: free, same: handoff}
    limit: 700ms
  - name: crash
    when: {event: begin, mode: ` + access + `, pool: kv, from: ` + from + `, to: ` + to + `, nth: 26}
    do: kill
    worker: prefill
    restart_after: 60ms
`
}

// diedInTransfer looks for a worker that ended by a signal while a remote access
// of it, or to it, was open.
func diedInTransfer(r *recorded) bool {
	return r.any(func(x *spec.Event) bool {
		return x.K == spec.KindExit && x.SignalNo != 0 && r.any(func(e *spec.Event) bool {
			return e.K == spec.KindBegin && e.Handoff != "" && r.remote(e) && (r.worker[e.Src] == x.Worker || e.Target == x.Worker) &&
				r.span(e).holds(x)
		})
	})
}

func secondIncarnation(r *recorded) bool {
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindFinish && e.Src == "prefill-0.1" && (e.Result == spec.OutcomeLength || e.Result == spec.OutcomeOK)
	})
}

// playKilled kills prefill under a held transfer, lets another prefill worker serve
// meanwhile, and starts the dead one again when decode has given its request up.
func playKilled(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.kill(ctx, "prefill-0"); err != nil {
		return err
	}
	if err := d.serve(ctx, "other-prefill"); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.freedAtDecode(loser)); err != nil {
		return err
	}
	if err := d.churn(ctx, 3, 7); err != nil {
		return err
	}
	if err := d.restart(ctx, "prefill-0"); err != nil {
		return err
	}
	return d.stillServes(ctx)
}

// playKilledAsked kills prefill under a held write, lets the client leave that waited for
// it, and starts prefill again.
func playKilledAsked(ctx context.Context, d *director) error {
	loser, err := d.sendLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.acted(ctx, ruleHold, 1); err != nil {
		return err
	}
	if err := d.kill(ctx, "prefill-0"); err != nil {
		return err
	}
	if err := d.leave(ctx, loser); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindCancel, ofReq(loser.id))); err != nil {
		return err
	}
	if err := d.restart(ctx, "prefill-0"); err != nil {
		return err
	}
	return d.stillServes(ctx)
}

// gaveUpDead reports whether decode gave pages back of a request whose transfer was
// open when its prefill worker died.
func gaveUpDead(r *recorded) bool {
	dead := map[string]bool{}
	for i := range r.events {
		x := &r.events[i]
		if x.K != spec.KindExit || x.SignalNo == 0 {
			continue
		}
		for j := range r.events {
			e := &r.events[j]
			end := r.ends[e.Access]
			if e.K == spec.KindBegin && e.Handoff != "" && r.remote(e) && r.worker[e.Src] == x.Worker && (end == nil || end.T > x.T) {
				dead[e.Req] = true
			}
		}
	}
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindFree && e.Pool == "kv" && r.role[e.Src] == spec.RoleDecode && dead[e.Req]
	})
}

// servedMeanwhile reports whether another worker of its role finished a request
// between the death of one and its next incarnation.
func servedMeanwhile(r *recorded) bool {
	return r.any(func(x *spec.Event) bool {
		return x.K == spec.KindExit && x.SignalNo != 0 && r.any(func(e *spec.Event) bool {
			return e.K == spec.KindFinish && r.role[e.Src] == spec.RolePrefill && r.worker[e.Src] != x.Worker && e.Result == spec.OutcomeLength && e.T > x.T
		})
	})
}
