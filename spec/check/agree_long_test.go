//go:build long

package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLongPorcupine holds the judge against Porcupine on a million histories,
// others each day.
func TestLongPorcupine(t *testing.T) {
	const histories = 1_000_000
	day := int(time.Now().Unix() / 86400)
	var a agreement
	gen := rapid.Custom(oneBlock)
	for i := range histories {
		a.hold(t, gen.Example(day*histories+i))
	}
	t.Logf("%d histories from seed %d on: %d without a violation, %d with one, %d without any order, 0 disagreements",
		histories, day*histories, a.fine, a.wrong, a.bad)
	require.Greater(t, a.fine, histories/10)
	require.Greater(t, a.wrong, histories/10)
}
