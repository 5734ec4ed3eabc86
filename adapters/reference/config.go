package reference

import (
	"cmp"
	"time"

	"conform/adapters"
	"conform/spec"
)

// workerConfig is all that a worker's process is told, as JSON in its
// environment.
type workerConfig struct {
	ID        string          `json:"id"`
	Role      spec.Role       `json:"role"`
	Rank      int             `json:"rank,omitempty"` // of this worker among those of its role
	Mode      string          `json:"mode"`
	Defect    string          `json:"defect,omitempty"`
	Dir       string          `json:"dir"`
	Host      string          `json:"host"`
	Failpoint string          `json:"failpoint,omitempty"`
	Limits    adapters.Limits `json:"limits"`
	// PrefixCache lets prefill keep blocks of prompts for later ones.
	PrefixCache bool `json:"prefix_cache,omitempty"`
	// Clock is how far this worker's clock stands off: two hosts share none.
	Clock time.Duration `json:"clock,omitempty"`
	// Addresses as this worker is to use them: those of the proxies.
	// By rank, but for Ctl, which is where peers reach this worker.
	PrefillHTTP []string `json:"prefill_http,omitempty"`
	DecodeHTTP  []string `json:"decode_http,omitempty"`
	PrefillCtl  []string `json:"prefill_ctl,omitempty"`
	Ctl         string   `json:"ctl,omitempty"`
	// NIC is where its NIC listens, as that of the incarnation before did; "" for any.
	NIC string `json:"nic,omitempty"`
	// How many ranks each role has.
	PrefillRanks int `json:"prefill_ranks"`
	DecodeRanks  int `json:"decode_ranks"`
}

// The transfer modes.
const (
	Push = "push"
	Pull = "pull"
)

// defaultLimits are small on purpose: a pool of a few dozen blocks under a few
// concurrent requests reuses each block within milliseconds.
func defaultLimits(l adapters.Limits) adapters.Limits {
	return adapters.Limits{
		PrefillBlocks:  cmp.Or(l.PrefillBlocks, 32),
		DecodeBlocks:   cmp.Or(l.DecodeBlocks, 48),
		PrefillTokens:  cmp.Or(l.PrefillTokens, 128),
		DecodeTokens:   cmp.Or(l.DecodeTokens, 256),
		ContextTokens:  cmp.Or(l.ContextTokens, 4096),
		AbortTimeout:   cmp.Or(l.AbortTimeout, 500*time.Millisecond),
		HandoffTimeout: cmp.Or(l.HandoffTimeout, 3*time.Second),
		Lease:          cmp.Or(l.Lease, time.Second),
		Heartbeat:      cmp.Or(l.Heartbeat, 100*time.Millisecond),
		PeerTimeout:    cmp.Or(l.PeerTimeout, time.Second),
		Step:           cmp.Or(l.Step, 500*time.Microsecond),
		Offload:        l.Offload,
	}
}

const (
	slotCount    = 24 // request slots of a stage
	auxCount     = 16 // metadata slots of decode
	auxBytes     = 64
	slotBytes    = 8
	xferThreads  = 4
	chunkBlocks  = 2 // blocks of one transfer
	keyReuse     = 16
	maxSamples   = 16
	maxRanks     = 2
	tombstoneCap = 4096
)
