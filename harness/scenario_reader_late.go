package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"conform/adapters"
	"conform/spec"
)

// What the scenarios below reach.
const (
	leaseEnded   = "a lease ended before its reader came"
	blocksReused = "its blocks went to others before the read"
	readerFroze  = "the reader was stopped"
)

const ruleLeg = "hold-the-decode-leg"

// holdLeg holds the first request to decode: prefill has answered with a reference,
// and nobody uses it yet.
const holdLeg = `rules:
  - name: ` + ruleLeg + `
    when: {http: POST /v1/completions, to: decode, nth: 1}
    do: hold
    until: {event: idle}
    limit: 120s
`

// shortLease is above what a warm pair takes for a handoff on a busy machine.
const shortLease = 12 * time.Second

// staleRead is a reference that decode is handed when its lease has ended and its blocks
// are others'.
func staleRead() shape {
	return shape{
		plans: map[string]string{"": holdLeg}, modes: []string{"nixl"}, limits: adapters.Limits{Lease: shortLease}, cast: castReader,
		play: playStale, hears: readerEvents(), branches: []string{leaseEnded, blocksReused},
	}
}

func readerFrozen() Scenario {
	return Scenario{
		ID: "reader-frozen", Title: "The reader is frozen for longer than its lease holds",
		Why:      "The owner's clock runs on while the reader's process does not. When it goes on, it reads as if no time had passed.",
		Branches: []string{leaseEnded, blocksReused, readerFroze},
		shapes: map[string]shape{onVLLM: {
			modes: []string{"nixl"}, limits: adapters.Limits{Lease: shortLease}, cast: castReader,
			play: playFrozen, hears: readerEvents(),
		}},
		reach: reachStale(leaseEnded, blocksReused, readerFroze),
	}
}

func readerFrozenBriefly() Scenario {
	return Scenario{
		ID: "reader-frozen-briefly", Title: "The reader is frozen, and its lease holds for longer",
		Why:      "What the longer freeze breaks must not be found in the shorter one.",
		Branches: []string{readerFroze},
		shapes: map[string]shape{onVLLM: {
			modes: []string{"nixl"}, limits: adapters.Limits{Lease: 2 * time.Minute}, cast: castReader,
			play: playFrozenBriefly, hears: readerEvents(),
		}},
		reach: reachStale(readerFroze),
	}
}

func nobodyReads() Scenario {
	return Scenario{
		ID: "nobody-reads", Title: "A reference is never used, and its lease ends",
		Why:      "What comes back by a clock came back without proof: nobody said that no read is under way.",
		Branches: []string{leaseEnded},
		shapes: map[string]shape{onVLLM: {
			plans: map[string]string{"": holdLeg}, modes: []string{"nixl"}, limits: adapters.Limits{Lease: shortLease}, cast: castReader,
			play: playNobody, hears: readerEvents(),
		}},
		reach: reachStale(leaseEnded),
	}
}

func castReader(l adapters.Limits, _ adapters.Pace) []part {
	return []part{
		{name: partLoser, prompt: l.PrefillTokens * 3 / 10, output: 24},
		{name: partAfter, prompt: 60, output: 8},
	}
}

func readerEvents() []spec.Kind {
	return []spec.Kind{spec.KindAlloc, spec.KindExpire, spec.KindFree, spec.KindOffer}
}

// reachStale says how these branches are recognized.
func reachStale(branches ...string) map[string]func(*recorded) bool {
	known := map[string]func(*recorded) bool{
		leaseEnded:   kindAt(spec.RolePrefill, spec.KindExpire),
		blocksReused: readAfterReuse,
		readerFroze:  func(r *recorded) bool { return r.faults[playRule] > 0 },
	}
	maps.DeleteFunc(known, func(name string, _ func(*recorded) bool) bool { return !slices.Contains(branches, name) })
	return known
}

// playStale lets a reference become stale, and then lets it be used.
func playStale(ctx context.Context, d *director) error {
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	if err := d.acted(ctx, ruleLeg, 1); err != nil {
		return err
	}
	if err := d.outlive(ctx, loser, loser); err != nil {
		return err
	}
	if err := d.release(ruleLeg); err != nil {
		return err
	}
	if err := d.waitAll(ctx); err != nil {
		return err
	}
	return d.serve(ctx, partAfter)
}

// playFrozen stops decode before it can read, until its lease has ended and the blocks
// are others'.
func playFrozen(ctx context.Context, d *director) error {
	loser, err := d.offeredToFrozen(ctx)
	if err != nil {
		return err
	}
	if err := d.outlive(ctx, loser, loser); err != nil {
		return err
	}
	return d.thaw(ctx)
}

// briefly is how long a freeze lasts that no lease ends in.
const briefly = 5 * time.Second

func playFrozenBriefly(ctx context.Context, d *director) error {
	if _, err := d.offeredToFrozen(ctx); err != nil {
		return err
	}
	sleep(ctx, briefly)
	return d.thaw(ctx)
}

// playNobody lets the client leave before its reference is used.
func playNobody(ctx context.Context, d *director) error {
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return err
	}
	if err := d.acted(ctx, ruleLeg, 1); err != nil {
		return err
	}
	if err := d.leave(ctx, loser); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	if err := d.outlive(ctx, loser, nil); err != nil {
		return err
	}
	return d.serve(ctx, partAfter)
}

// offeredToFrozen stops decode, and sends a request that prefill then offers to it.
func (d *director) offeredToFrozen(ctx context.Context) (*sent, error) {
	if err := d.pause(ctx, "decode-0"); err != nil {
		return nil, err
	}
	loser, err := d.send(ctx, partLoser)
	if err != nil {
		return nil, err
	}
	_, err = d.soon(ctx, d.at(spec.RolePrefill, spec.KindOffer, ofReq(loser.id)))
	return loser, err
}

func (d *director) thaw(ctx context.Context) error {
	if err := d.resume(ctx, "decode-0"); err != nil {
		return err
	}
	if err := d.waitAll(ctx); err != nil {
		return err
	}
	return d.serve(ctx, partAfter)
}

// outlive gives prefill work until a request's lease has ended there and its blocks are
// free, and all of those of reused, if that is not nil, are others'. There are builds
// whose prefill looks at its clocks only while it has work.
func (d *director) outlive(ctx context.Context, s, reused *sent) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+d.limits().Lease)
	defer cancel()
	ended := d.at(spec.RolePrefill, spec.KindExpire, ofReq(s.id))
	freed := d.at(spec.RolePrefill, spec.KindFree, ofReq(s.id), inPool("kv"))
	for {
		over, _ := d.heard(ended)
		back, _ := d.heard(freed)
		if over && back && (reused == nil || d.reusedAtPrefill(reused)) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the lease of %s (%s) did not end, or its blocks went to nobody else: %w", s.name, s.id, ctx.Err())
		}
		if err := d.fill(ctx, string(spec.RolePrefill), d.limits().PrefillBlocks*3/8*d.pageTokens(), 1); err != nil {
			return err
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

// reusedAtPrefill reports whether prefill has given every block that a request had to
// another one.
func (d *director) reusedAtPrefill(s *sent) bool {
	leased := d.at(spec.RolePrefill, spec.KindAlloc, inPool("kv"))
	mine, left := map[int64]bool{}, 0
	events, _, _ := d.log.since(0)
	for i := range events {
		e := &events[i]
		if !leased(e) {
			continue
		}
		for n := range e.Blocks.All {
			switch {
			case e.Req == s.id:
				mine[n] = true
				left++
			case mine[n]:
				delete(mine, n)
				left--
			}
		}
	}
	return left == 0
}

// readAfterReuse looks for a read of another worker's blocks that began after all of
// them had been leased to others since they were granted.
func readAfterReuse(r *recorded) bool {
	granted := map[string]map[int64]int64{} // by handoff and worker: block and when
	leased := map[spec.BlockID]int64{}      // when it was last leased
	for i := range r.events {
		e := &r.events[i]
		for n := range e.Blocks.All {
			switch e.K {
			case spec.KindGrant:
				key := e.Handoff + "\x00" + r.worker[e.Src]
				if granted[key] == nil {
					granted[key] = map[int64]int64{}
				}
				granted[key][n] = e.T
			case spec.KindAlloc:
				id := spec.BlockID{Worker: r.worker[e.Src], Pool: e.Pool, Number: n}
				leased[id] = max(leased[id], e.T)
			}
		}
	}
	return r.any(func(e *spec.Event) bool {
		if e.K != spec.KindBegin || e.Handoff == "" || !r.remote(e) || e.Blocks.Len() == 0 {
			return false
		}
		since := granted[e.Handoff+"\x00"+e.Target]
		for n := range e.Blocks.All {
			t, known := since[n]
			again := leased[spec.BlockID{Worker: e.Target, Pool: e.Pool, Number: n}]
			if !known || again <= t || again >= e.T {
				return false
			}
		}
		return true
	})
}
