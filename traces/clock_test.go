package traces_test

import (
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/traces"
)

func TestMonotonic(t *testing.T) {
	now, name := traces.Monotonic()
	last := now()
	for range 1000 {
		next := now()
		require.GreaterOrEqual(t, next, last)
		last = next
	}
	again, sameName := traces.Monotonic()
	require.GreaterOrEqual(t, again(), last, "the same clock")
	if runtime.GOOS == "linux" {
		require.Regexp(t, regexp.MustCompile(`^mono-[0-9a-f]{8}$`), name)
		require.Equal(t, name, sameName)
	} else {
		require.NotEqual(t, name, sameName, "no clock that others share")
	}
}
