package harness

import (
	"conform/adapters"
	"conform/spec"
)

func offloadFinish() Scenario {
	w := plainWorkload()
	w.requests, w.prompt, w.output = 40, [2]int{8, 40}, [2]int{16, 40}
	w.abortEvery = 5
	return Scenario{
		ID: "offload-finish", Title: "A request ends while its blocks are copied to the host",
		Why:      "Decode keeps what it computed by copying it to the host, beside the scheduler. The copy is a reader: neither the request's end nor its own means that the blocks have no other.",
		Branches: []string{"a copy to the host was open when its request ended", "a copy ended while its request ran on"},
		shapes: map[string]shape{onReference: {
			plans: map[string]string{"": `rules:
  - name: hold-the-copy
    when: {access: r, pool: kv, from: decode, to: decode, nth: 3, every: 6, count: 10}
    do: hold
    until: {event: alloc, pool: kv, same: block}
    limit: 150ms
`},
			limits:   adapters.Limits{Offload: 8},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"a copy to the host was open when its request ended": copyAt(true),
			"a copy ended while its request ran on":              copyAt(false),
		},
	}
}

// copyAt tells whether a copy to the host was open when its request ended at decode, or
// had ended by then.
func copyAt(open bool) func(*recorded) bool {
	return func(r *recorded) bool {
		copies := map[string][]span{}
		for i := range r.events {
			if e := &r.events[i]; e.K == spec.KindBegin && e.Via == "offload" {
				copies[e.Req] = append(copies[e.Req], r.span(e))
			}
		}
		return r.any(func(e *spec.Event) bool {
			if e.K != spec.KindFinish || r.role[e.Src] != spec.RoleDecode {
				return false
			}
			for _, s := range copies[e.Req] {
				if s.holds(e) == open {
					return true
				}
			}
			return false
		})
	}
}
