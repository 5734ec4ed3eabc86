//go:build long

package chain

import "testing"

// TestLongAgrees is the differential trial at length: a million histories.
func TestLongAgrees(t *testing.T) {
	agreeMany(t, 1_000_000)
}

// TestLongClocksAgree is the same for several clocks.
func TestLongClocksAgree(t *testing.T) {
	clocksMany(t, 20_000)
}
