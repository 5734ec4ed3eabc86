package harness

import (
	"slices"
	"time"

	"conform/adapters"
)

// ForcedOrder is the id of the scenario that the plans of a hunt are for.
const ForcedOrder = "forced-order"

// forcedOrder has no plan of its own: it is the load under which a plan forces an
// order. Small pools are kept busy until the plan has nothing left to do, and clocks
// are short, so that what waits for one does not wait long.
func forcedOrder() Scenario {
	w := plainWorkload()
	w.requests, w.least, w.output = 600, 40, [2]int{3, 24}
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
		},
	}
}

// byPlan are the scenarios that need a plan: they run where they are asked for by id.
func byPlan() []Scenario { return []Scenario{forcedOrder()} }

// ForcedLimits are the effective limits of the stack that cfg asks for while a plan
// forces an order on it. An adapter that can't be is a *[UsageError].
func ForcedLimits(cfg Config) (adapters.Limits, error) {
	if cfg.kit == nil {
		cfg.kit = builtin()
	}
	if err := cfg.chooseAdapter(); err != nil {
		return adapters.Limits{}, err
	}
	i := slices.IndexFunc(cfg.kit.byPlan, func(s Scenario) bool { return s.ID == ForcedOrder })
	sh, ok := cfg.kit.byPlan[max(i, 0)].shapes[cfg.Adapter]
	if !ok {
		return adapters.Limits{}, &UsageError{
			What: "no load is known that forces an order on adapter " + cfg.Adapter, Where: "--adapter",
			Expected: "one that scenario " + ForcedOrder + " applies to", Try: "run 'conform list adapters'",
		}
	}
	a := cfg.common("")
	a.Limits = sh.limits
	return cfg.adapter.Limits(a), nil
}
