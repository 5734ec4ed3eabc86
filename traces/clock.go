package traces

import (
	"crypto/rand"
	"encoding/hex"
)

// Clock returns ns on a monotonic clock: it never goes back.
type Clock func() int64

// Monotonic returns the clock that all processes of this host share, and its
// name for the source line. The name changes with each boot (and, in a time
// namespace of its own, with the namespace), so equal names mean one clock:
// "mono-" and the first 8 hex digits of the SHA-256 of the boot id.
//
// Where the host has no such clock, or does not say which boot it is in, the
// clock is still monotonic and the name is random: such a clock is compared with
// no other, which is safe.
func Monotonic() (now Clock, name string) {
	now, id := hostClock()
	if id == "" {
		return now, "mono-" + rand.Text()[:16]
	}
	return now, "mono-" + id
}

func shortDigest(sum [32]byte) string { return hex.EncodeToString(sum[:4]) }
