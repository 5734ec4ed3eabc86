package spelling

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	names := []string{"cancel-during-transfer", "ack-lost", "ack-stale", "baseline"}
	for in, want := range map[string]string{
		"acklost": "ack-lost", "ack-lots": "ack-lost", "BASELINE": "baseline", "transfer": "cancel-during-transfer",
		"cancel-durin-transfers": "cancel-during-transfer", "": "", "zzz": "", strings.Repeat("a", 1000): "",
	} {
		require.Equal(t, want, Nearest(in, names), in)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringN(0, 8, 16).Draw(t, "a"), rapid.StringN(0, 8, 16).Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Fatalf("distance %d", d)
		}
	})
}
