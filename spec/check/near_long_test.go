//go:build long

package check_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLongBruteForce holds the judge against trying out every order on a million
// traces, others each day.
func TestLongBruteForce(t *testing.T) {
	const halves, each = 2, 500_000
	day := uint64(time.Now().Unix() / 86400)
	var mu sync.Mutex
	sum := map[string]int{}
	t.Run("traces", func(t *testing.T) {
		for half := range uint64(halves) {
			t.Run(fmt.Sprint(half), func(t *testing.T) {
				t.Parallel()
				seen := holdAgainst(t, day*halves+half, each)
				mu.Lock()
				defer mu.Unlock()
				for what, n := range seen {
					sum[what] += n
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%d traces from seed %d on, %d of them compared rule by rule, 0 disagreements", halves*each, day*halves, sum["compared"])
	for _, what := range slices.Sorted(maps.Keys(sum)) {
		t.Logf("%8d %s", sum[what], what)
	}
	require.Greater(t, sum["compared"], halves*each*3/4)
}
