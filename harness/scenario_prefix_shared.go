package harness

import (
	"conform/adapters"
	"conform/spec"
)

func prefixShared() Scenario {
	const shared, evicted = "a request read another's blocks from the prefix cache", "the cache gave blocks up"
	w := plainWorkload()
	w.prefixEvery = 2
	return Scenario{
		ID: "prefix-shared", Title: "Prompts begin alike, and the prefix cache has to give up blocks for others",
		Why:      "A block may have several readers, and the cache besides. It goes to its next owner when the last of them has left it.",
		Branches: []string{shared, evicted},
		shapes: map[string]shape{onReference: {
			args: []string{"--prefix-cache"}, limits: adapters.Limits{PrefillBlocks: 24, PrefillTokens: 64}, workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			shared: func(r *recorded) bool {
				return r.any(func(e *spec.Event) bool {
					return e.K == spec.KindHold && e.Req != "" && r.role[e.Src] == spec.RolePrefill
				})
			},
			evicted: freedFor("evict"),
		},
	}
}
