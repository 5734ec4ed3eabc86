package harness

import (
	"context"
	"strings"
	"time"

	"conform/adapters"
	"conform/spec"
)

func ackStale() Scenario {
	const again = "an old acknowledgement came while its key was cancelled again"
	return Scenario{
		ID: "ack-stale", Title: "Acknowledgements come twice, the second one late",
		Why:      "Keys come round. A word about the earlier use of a key that is taken for the present one releases memory in use.",
		Branches: []string{"a signal was taken in twice"},
		shapes: map[string]shape{onReference: {
			branches: []string{"a word came after the end"},
			plans: map[string]string{
				"push": `rules:
  - name: ` + ruleHold + `
    when: {access: w, pool: kv, from: prefill, count: 2}
    do: hold
    until: {event: idle}
    limit: 3s
  - name: repeat-the-status
    when: {signal: STATUS/Success, every: 3}
    do: duplicate
    for: 40ms
  - name: repeat-the-ack
    when: {signal: ABORT_ACK, count: 1}
    do: duplicate
    until: {event: cancel, from: decode}
    limit: 5s
`,
				"pull": `rules:
  - name: repeat-the-word
    when: {signal: READ_DONE, every: 3}
    do: duplicate
    for: 40ms
`,
			},
			limits: adapters.Limits{AbortTimeout: 4 * time.Second},
			cast: func(adapters.Limits, adapters.Pace) []part {
				return append([]part{
					{name: partLoser, prompt: 16, output: 4, handoff: sameKey}, {name: partAgain, prompt: 16, output: 4, handoff: sameKey},
				}, chorus(partAfter, afterwards, 16, 3)...)
			},
			play: playAckStaleReference, modal: map[string][]string{modePush: {again}},
			hears: []spec.Kind{spec.KindCancel, spec.KindFree, spec.KindObserve},
		}, onSGLang: {
			plans: map[string]string{"": `rules:
  - name: ` + ruleHold + `
    when: {access: w, pool: kv, from: prefill, nth: 3, every: 1, count: 2}
    do: hold
    until: {event: idle}
    limit: 40s
  - name: repeat-the-ack
    when: {signal: ABORT_ACK, count: 1}
    do: duplicate
    until: {signal: ABORT, same: handoff}
    limit: 30s
`},
			cast: castSameKey,
			play: playAckStale, branches: []string{again},
			hears: []spec.Kind{spec.KindAccept, spec.KindCancel, spec.KindFree, spec.KindObserve},
		}},
		reach: map[string]func(*recorded) bool{
			"a signal was taken in twice": takenTwice,
			"a word came after the end":   lateWord,
			again:                         staleAck,
		},
	}
}

func takenTwice(r *recorded) bool {
	seen := map[string]bool{}
	return r.any(func(e *spec.Event) bool {
		if e.K != spec.KindObserve {
			return false
		}
		twice := seen[e.Sig]
		seen[e.Sig] = true
		return twice
	})
}

// lateWord looks for a signal about a handoff that a scheduler took in after its
// worker had given back all that it held for that handoff.
func lateWord(r *recorded) bool {
	return afterEnd(func(e *spec.Event) bool { return e.Th == "main" })(r)
}

// afterEnd looks for a signal that f picks and that a source took in after it had
// given back what it held for the signal's handoff.
func afterEnd(f func(*spec.Event) bool) func(*recorded) bool {
	return func(r *recorded) bool {
		gone := map[string]int64{}
		for i := range r.events {
			key := r.events[i].Src + "\x00" + r.events[i].Handoff
			if e := &r.events[i]; e.K == spec.KindFree && e.Pool == "kv" && gone[key] == 0 {
				gone[key] = e.T // the first: a defect may free twice
			}
		}
		return r.any(func(e *spec.Event) bool {
			t, was := gone[e.Src+"\x00"+e.Handoff]
			return was && e.K == spec.KindObserve && f(e) && t < e.T
		})
	}
}

// Two parts with one key, one after the other.
const (
	partAgain = "same-key-again"
	sameKey   = "room-77"
)

// castSameKey is castHeld, with another request that has the loser's key.
func castSameKey(l adapters.Limits, p adapters.Pace) []part {
	parts := append(castHeld(fifthOfDecode)(l, p), part{name: partAgain, prompt: l.DecodeTokens / 5, output: 8, handoff: sameKey})
	parts[2].handoff = sameKey
	return parts
}

// playAckStale cancels two requests of one key, each while its transfer is held. The
// first one's acknowledgement comes again as soon as the second has been cancelled.
func playAckStale(ctx context.Context, d *director) error {
	loser, err := d.cancelLoser(ctx)
	if err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	ack := d.at(spec.RoleDecode, spec.KindObserve, ofFamily("ABORT_ACK"))
	if _, err := d.soon(ctx, ack); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.freedAtDecode(loser)); err != nil {
		return err
	}
	again, err := d.sendHeld(ctx, partAgain, 2)
	if err != nil {
		return err
	}
	if err := d.abortAt(ctx, again, spec.RoleDecode); err != nil {
		return err
	}
	if _, err := d.soon(ctx, nth(2, ack)); err != nil {
		return err
	}
	if err := d.churn(ctx, 6, 7); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.waitAll(ctx)
}

// playAckStaleReference does the same on the reference stack, in push mode; in pull
// mode, where nobody acknowledges, other words come twice.
func playAckStaleReference(ctx context.Context, d *director) error {
	if d.l.c.mode == modePull {
		return d.serveAfterwards(ctx, afterwards)
	}
	loser, err := d.sendHeld(ctx, partLoser, 1)
	if err != nil {
		return err
	}
	if err := d.abortAt(ctx, loser, spec.RoleDecode); err != nil {
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	if _, err := d.soon(ctx, d.freedAtDecode(loser)); err != nil {
		return err
	}
	again, err := d.sendHeld(ctx, partAgain, 2)
	if err != nil {
		return err
	}
	if err := d.abortAt(ctx, again, spec.RoleDecode); err != nil {
		return err
	}
	if _, err := d.soon(ctx, nth(2, d.at(spec.RoleDecode, spec.KindObserve, ofFamily("ABORT_ACK")))); err != nil {
		return err
	}
	if err := d.serve(ctx, partAfter+"-0"); err != nil { // it may be given what came back
		return err
	}
	if err := d.release(ruleHold); err != nil {
		return err
	}
	return d.serveAfterwards(ctx, afterwards)
}

// ofFamily picks signals by what precedes the "/" of their kind.
func ofFamily(name string) func(*spec.Event) bool {
	return func(e *spec.Event) bool {
		family, _, _ := strings.Cut(e.Signal, "/")
		return family == name
	}
}

// staleAck looks for a decode worker that has cancelled a key twice, and takes in more
// acknowledgements of that key than prefill had sent by then: one came again.
func staleAck(r *recorded) bool {
	key := func(e *spec.Event) string {
		base, _, _ := strings.Cut(e.Handoff, "#") // a further use of a key
		return base
	}
	sent := map[string][]int64{}
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindEmit && ofFamily("ABORT_ACK")(e) {
			sent[key(e)] = append(sent[key(e)], e.T)
		}
	}
	asked, taken := map[string]int{}, map[string]int{}
	return r.any(func(e *spec.Event) bool {
		switch {
		case r.role[e.Src] != spec.RoleDecode:
		case e.K == spec.KindEmit && e.Signal == "ABORT":
			asked[key(e)]++
		case e.K == spec.KindObserve && ofFamily("ABORT_ACK")(e):
			taken[key(e)]++
			before := 0
			for _, t := range sent[key(e)] {
				if t < e.T {
					before++
				}
			}
			return asked[key(e)] > 1 && taken[key(e)] > before
		}
		return false
	})
}
