//go:build long

package check

import "testing"

// TestLongSieveAgrees is the differential trial at length.
func TestLongSieveAgrees(t *testing.T) { sieveRandom(t, 300_000, 2) }
