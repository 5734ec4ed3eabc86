package harness

import (
	"time"

	"conform/adapters"
	"conform/spec"
)

func leaseExpiry() Scenario {
	w := plainWorkload()
	w.requests = 60
	return Scenario{
		ID: "lease-expiry", Title: "A lease runs out while the read runs",
		Why:      "The reader pulls under a lease, its heartbeats are lost, and the owner's clock says that it may have the blocks back. Only a fence makes that true.",
		Branches: []string{"a read was open when its lease ran out", "blocks were given back behind a fence"},
		shapes: map[string]shape{onReference: {
			modes: []string{"pull"},
			plans: map[string]string{"pull": `rules:
  - name: hold-the-read
    when: {access: r, pool: kv, from: decode, nth: 5, every: 25}
    do: hold
    until: {event: alloc, pool: kv, same: block}
    limit: 450ms
  - name: lose-the-heartbeats
    when: {signal: HEARTBEAT}
    do: drop
`},
			limits:   adapters.Limits{Lease: 150 * time.Millisecond, Heartbeat: 30 * time.Millisecond},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"a read was open when its lease ran out": openAt(isKind(spec.KindExpire)),
			"blocks were given back behind a fence":  fencedRelease,
		},
	}
}
