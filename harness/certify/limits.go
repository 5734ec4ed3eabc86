package certify

import "conform/traces"

// Limits bound what checking a certificate may cost. One above them is refused.
type Limits struct {
	TotalBytes  int64 // of the file; also what is written to the temporary folder
	MemberBytes int64 // of one member
	Members     int
	Attempts    int
	Trace       traces.Limits // of one attempt, unpacked
}

// The limits of what is read before any signature was checked, and held in memory.
const (
	maxListBytes     = 8 << 20 // certificate.json
	maxEnvelopeBytes = 1 << 20
	maxSigners       = 16
	maxDerivedBytes  = 64 << 20 // a member that follows from the traces
)

// DefaultLimits are 4 GiB in all, 512 MiB and 2,000,000 events for one attempt.
func DefaultLimits() Limits {
	return Limits{
		TotalBytes: 4 << 30, MemberBytes: 512 << 20, Members: 50_000, Attempts: 5_000,
		Trace: traces.Limits{LineBytes: traces.MaxLineBytes, TotalBytes: 1 << 30, Events: 2_000_000},
	}
}
