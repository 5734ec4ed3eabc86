package harness

import (
	"context"
	"time"

	"conform/adapters"
	"conform/spec"
)

func peerSilent() Scenario {
	w := plainWorkload()
	w.requests = 60
	return Scenario{
		ID: "peer-silent", Title: "Prefill falls silent for longer than decode waits, then goes on",
		Why: "Missed heartbeats do not prove that a peer's writes have stopped. The peer that was held for dead comes back and carries on where it was.",
		shapes: map[string]shape{onReference: {
			branches: []string{"decode gave its blocks back", "prefill was stopped"},
			plans: map[string]string{
				"push": "rules:" + silence("w", "prefill", "decode"),
				"pull": "rules:" + silence("r", "decode", "prefill"),
			},
			limits:   adapters.Limits{PeerTimeout: 200 * time.Millisecond, HandoffTimeout: time.Second, AbortTimeout: 300 * time.Millisecond, Lease: 400 * time.Millisecond},
			workload: w,
		}, onSGLang: {
			// What is lost is the answer to decode's heartbeat; the process and its transfers
			// go on.
			plans: map[string]string{"": holdOpen("kv", 3) + `  - name: ` + ruleSilence + `
    when: {http: GET /health, from: decode, to: prefill}
    do: fail
`},
			limits: adapters.Limits{Heartbeat: time.Second},
			cast:   castHeld(fifthOfDecode), play: playSilent,
			hears:    []spec.Kind{spec.KindAccept, spec.KindFree, spec.KindFinish},
			branches: []string{"a request ended at decode while its transfer was open"},
		}},
		reach: map[string]func(*recorded) bool{
			"decode gave its blocks back":                           freedFor("peer_lost"),
			"a request ended at decode while its transfer was open": openAtStage(spec.RoleDecode, spec.KindFinish),
			"prefill was stopped":                                   func(r *recorded) bool { return r.faults["silence"] > 0 },
		},
	}
}

// silence holds one transfer and stops prefill's process meanwhile.
func silence(access, from, to string) string {
	return `
  - name: hold-the-transfer-meanwhile
    when: {access: ` + access + `, pool: kv, from: ` + from + `, nth: 18}
    do: hold
    until: {event: free, why: peer_lost, same: handoff}
    limit: 800ms
  - name: silence
    when: {event: begin, mode: ` + access + `, pool: kv, from: ` + from + `, to: ` + to + `, nth: 26}
    do: pause
    worker: prefill
    for: 500ms
`
}

const ruleSilence = "lose-the-heartbeat"

// playSilent lets the heartbeats fail while a transfer is held, and lets the transfer
// go on when decode has drawn its conclusions.
func playSilent(ctx context.Context, d *director) error {
	if err := d.rule(ruleSilence, false); err != nil {
		return err
	}
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.rule(ruleSilence, true); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.at(spec.RoleDecode, spec.KindFinish, ofReq(loser.id))); err != nil {
		return err
	}
	if err := d.rule(ruleSilence, false); err != nil {
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
