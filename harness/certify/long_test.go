//go:build long

package certify

import "testing"

// The bar of issue 7: of 10,000 corruptions none is accepted, none crashes or hangs.
func TestLongRandomCorruptionsAreRefused(t *testing.T) { corruptions(t, 10_000, 2) }
