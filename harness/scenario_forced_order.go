package harness

import (
	"context"
	"slices"
	"time"

	"conform/adapters"
	"conform/spec"
)

// ForcedOrder is the id of the scenario that the plans of a hunt are for.
const ForcedOrder = "forced-order"

// forcedOrder has no plan of its own: it is the load under which a plan forces an
// order. Small pools are kept busy until the plan has nothing left to do, and clocks
// are short, so that what waits for one does not wait long.
func forcedOrder() Scenario {
	w := plainWorkload()
	w.requests, w.least, w.output = 600, 40, [2]int{6, 32}
	w.pause = [2]time.Duration{0, 12 * time.Millisecond}
	return Scenario{
		ID: ForcedOrder, Title: "Load on small pools while a plan forces an order",
		Why: "A race that a clean run predicts is a claim until its bad order has been seen.",
		shapes: map[string]shape{
			onReference: {
				limits: adapters.Limits{
					AbortTimeout: 200 * time.Millisecond, HandoffTimeout: time.Second, PeerTimeout: 500 * time.Millisecond,
					Lease: 350 * time.Millisecond, Heartbeat: 50 * time.Millisecond,
				},
				workload: w,
			},
			onSGLang: {
				cast: cancelHeld().cast, play: playForced,
				hears: []spec.Kind{spec.KindAccept, spec.KindAlloc, spec.KindFree, spec.KindCancel},
			},
		},
	}
}

// byPlan are the scenarios that need a plan: they run where they are asked for by id.
func byPlan() []Scenario { return []Scenario{forcedOrder()} }

// playForced brings a stack that serves few requests to where the plan holds the
// loser's transfer, and gives the blocks that it lost meanwhile to others: at decode the
// bystander grows into them, prefill fills its pool. What is not given back within the
// time that a stack may take is taken for kept.
func playForced(ctx context.Context, d *director) error {
	loser, err := d.holdLoser(ctx)
	if err != nil {
		return err
	}
	owner := d.ownerOfHeld()
	short, cancel := context.WithTimeout(ctx, keepsFor)
	defer cancel()
	switch _, err := d.await(short, d.at(owner, spec.KindFree, ofReq(loser.id), inPool("kv"))); {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil: // kept
	case owner == spec.RoleDecode:
		if err := d.growInto(ctx, loser, 4); err != nil {
			return err
		}
	default:
		for range 2 {
			if err := d.fill(ctx, string(owner), d.limits().PrefillBlocks*7/8*d.pageTokens(), 1); err != nil {
				return err
			}
		}
	}
	if _, err := d.l.engine.Release(ruleHold); err != nil { // where the plan's own condition has not
		return err
	}
	return d.waitAll(ctx)
}

// ownerOfHeld is whose blocks the plan waits for to have a new owner.
func (d *director) ownerOfHeld() spec.Role {
	for _, r := range d.l.engine.Plan().Rules {
		if r.Name == ruleHold && r.Until != nil && r.Until.From != "" {
			return spec.Role(r.Until.From)
		}
	}
	return spec.RoleDecode
}

// HoldRule is the name of the rule of a plan for [ForcedOrder] that holds accesses.
const HoldRule = ruleHold

// Load is what a plan for [ForcedOrder] has to know of the load on an adapter.
type Load struct {
	Limits adapters.Limits // the stack's effective ones
	// Scripted is set where one request is meant, by the third transfer of KV, and the
	// abort is asked for at decode; else many come at random, and any will do.
	Scripted bool
}

// LoadOf is the load on the stack that cfg asks for. An adapter that there is none for
// is a *[UsageError].
func LoadOf(cfg Config) (Load, error) {
	if cfg.kit == nil {
		cfg.kit = builtin()
	}
	if err := cfg.chooseAdapter(); err != nil {
		return Load{}, err
	}
	i := slices.IndexFunc(cfg.kit.byPlan, func(s Scenario) bool { return s.ID == ForcedOrder })
	var sh shape
	ok := i >= 0
	if ok {
		sh, ok = cfg.kit.byPlan[i].shapes[cfg.Adapter]
	}
	if !ok {
		return Load{}, &UsageError{
			What: "no load is known that forces an order on adapter " + cfg.Adapter, Where: "--adapter",
			Expected: "one that scenario " + ForcedOrder + " applies to", Try: "run 'conform list adapters'",
		}
	}
	a := cfg.common("")
	a.Limits = sh.limits
	return Load{Limits: cfg.adapter.Limits(a), Scripted: sh.play != nil}, nil
}
