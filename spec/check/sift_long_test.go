//go:build long

package check

import "testing"

// TestLongSift holds Sift against Judge on many random runs, up to thirty requests long.
func TestLongSift(t *testing.T) {
	siftRandom(t, 60_000, 2, 12)
	siftRandom(t, 10_000, 3, 30)
}
