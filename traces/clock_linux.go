package traces

import (
	"crypto/sha256"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// initialTimeNamespace is the inode that the kernel gives to the time namespace
// that a host boots with.
const initialTimeNamespace = "time:[4026531834]"

// hostClock reads CLOCK_MONOTONIC itself: Go's own monotonic time is the same
// clock, but counted from the start of each process.
func hostClock() (Clock, string) {
	return clockMonotonic, clockID()
}

func clockMonotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("traces: CLOCK_MONOTONIC, which every Linux has: " + err.Error())
	}
	return ts.Nano()
}

func clockID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	id := strings.TrimSpace(string(boot))
	if err != nil || id == "" {
		return ""
	}
	// Within another time namespace the same clock has another offset.
	if ns, err := os.Readlink("/proc/self/ns/time"); err == nil && ns != initialTimeNamespace {
		id += ns
	}
	return shortDigest(sha256.Sum256([]byte(id)))
}
