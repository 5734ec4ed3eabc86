package promela

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatsAreRead holds that a search that was cut short is not taken for one
// that found nothing.
func TestStatsAreRead(t *testing.T) {
	const counts = "State-vector 156 byte, depth reached 111, errors: 0\n     8833 states, stored\n 1.4433961e+08 transitions (= stored+matched)\n"
	s, err := parseStats([]byte(counts))
	require.NoError(t, err)
	require.Equal(t, Stats{States: 8833, Transitions: 144339610}, s)

	for _, cut := range []string{"Warning: Search not completed\n", "error: max search depth too small\n"} {
		_, err = parseStats([]byte(cut + counts))
		require.ErrorIs(t, err, ErrIncomplete)
	}
	_, err = parseStats([]byte("pan: out of memory\n"))
	require.Error(t, err)
}
