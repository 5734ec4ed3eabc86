package harness

import (
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
		Branches: []string{"a worker died with a transfer open", "the new incarnation served a request", "decode gave its blocks back"},
		shapes: map[string]shape{onReference: {
			plans: map[string]string{
				"push": "rules:" + crash("w", "prefill", "decode"),
				"pull": "rules:" + crash("r", "decode", "prefill"),
			},
			limits:   adapters.Limits{PeerTimeout: 250 * time.Millisecond, HandoffTimeout: time.Second, Lease: 400 * time.Millisecond},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"a worker died with a transfer open":   diedInTransfer,
			"the new incarnation served a request": secondIncarnation,
			"decode gave its blocks back":          freedFor("peer_lost"),
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
			end := r.ends[e.Access]
			return e.K == spec.KindBegin && e.Handoff != "" && r.remote(e) && (r.worker[e.Src] == x.Worker || e.Target == x.Worker) &&
				e.T < x.T && (end == nil || end.T > x.T)
		})
	})
}

func secondIncarnation(r *recorded) bool {
	return r.any(func(e *spec.Event) bool {
		return e.K == spec.KindFinish && e.Src == "prefill-0.1" && (e.Result == spec.OutcomeLength || e.Result == spec.OutcomeOK)
	})
}
