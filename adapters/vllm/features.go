package vllm

import (
	"fmt"
	"strconv"
	"strings"

	"conform/adapters"
)

// The connectors.
const (
	NIXL     = "nixl"
	Mooncake = "mooncake"
)

// version is a release as its numbers, such as 0.32.0.
type version [3]int

// parseVersion reads the numbers of a version; what is none counts as 0.
func parseVersion(text string) version {
	var v version
	for i, part := range strings.SplitN(text, ".", len(v)) {
		v[i], _ = strconv.Atoi(part)
	}
	return v
}

// before reports whether v is an earlier release than w.
func (v version) before(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// features are what differs between releases.
type features struct {
	// lease: prefill's blocks are held under a lease that decode renews, and
	// kv_lease_duration sets it. Before, an environment variable sets a timeout.
	lease bool
	// mooncake: there is a Mooncake connector.
	mooncake bool
	// split: the model runs in a process of its own also where there is one rank.
	split bool
}

// The releases that have a feature first, of those that there are locks for.
var (
	firstLease    = version{0, 29, 0}
	firstMooncake = version{0, 29, 0}
	firstSplit    = version{0, 29, 0}
)

func featuresOf(text string) features {
	v := parseVersion(text)
	return features{lease: !v.before(firstLease), mooncake: !v.before(firstMooncake), split: !v.before(firstSplit)}
}

// supports says why a release can't run a connector.
func supports(cfg adapters.Config) error {
	if cfg.Mode == Mooncake && !featuresOf(cfg.Version).mooncake {
		return fmt.Errorf("vllm %s has no Mooncake connector that this adapter knows: %w", cfg.Version, adapters.ErrUnsupported)
	}
	return nil
}
