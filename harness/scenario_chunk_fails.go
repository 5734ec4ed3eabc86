package harness

import (
	"context"
	"errors"
	"time"

	"conform/adapters"
	"conform/spec"
)

func chunkFails() Scenario {
	const open, failed = "a transfer was open when another of its request failed", "the request was cancelled after that"
	return Scenario{
		ID: "chunk-fails", Title: "One chunk of a transfer fails while another is on the way",
		Why:      "The chunks of one request are several writers. The first that fails says nothing of the others, and the count of those must survive it.",
		Branches: []string{open, failed},
		shapes: map[string]shape{onReference: {
			modes: []string{modePush},
			plans: map[string]string{modePush: `rules:
  - name: ` + ruleHold + `
    when: {access: w, pool: kv, from: prefill, nth: 1}
    do: hold
    until: {event: alloc, pool: kv, same: block}
    limit: 150ms
  - name: ` + ruleFailChunk + `
    when: {access: w, pool: kv, from: prefill, nth: 2}
    do: fail
`},
			limits: adapters.Limits{HandoffTimeout: 2 * time.Second},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{{name: partLoser, prompt: 64, output: 4}}, chorus(partAfter, afterwards, 64, 3)...)
			},
			play: playChunkFails, hears: []spec.Kind{spec.KindCancel, spec.KindFree, spec.KindEnd},
		}},
		reach: map[string]func(*recorded) bool{
			open: openAt(func(e *spec.Event) bool { return e.K == spec.KindFault && e.Rule == ruleFailChunk }),
			failed: func(r *recorded) bool {
				return r.faults[ruleFailChunk] > 0 && freedFor("peer_lost")(r) || freedFor("cancel")(r)
			},
		},
	}
}

const ruleFailChunk = "fail-another-chunk"

// afterwards is how many requests of a play on the reference stack follow the one
// that it is about: enough to be given each of its blocks.
const afterwards = 8

// playChunkFails holds the first chunk of a request and fails its second, gives the
// request up, and lets others have what came back.
func playChunkFails(ctx context.Context, d *director) error {
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	if err := d.acted(ctx, ruleFailChunk, 1); err != nil {
		return err
	}
	if err := d.abort(ctx, loser, ""); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}
