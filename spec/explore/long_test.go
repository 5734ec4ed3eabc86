//go:build long

package explore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLongFullScope explores the whole state space of the full scope in both
// modes: every rule holds in every state, and every client gets its answer.
func TestLongFullScope(t *testing.T) {
	for _, mode := range []Mode{Push, Pull} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		rep, err := Explore(ctx, FullScope(mode), Options{})
		require.NoError(t, err)
		t.Logf("%s: %d states, %d transitions, %d ends, depth %d, %v", rep.Scope, rep.States, rep.Transitions, rep.Ends, rep.Depth, rep.Elapsed)
		require.Nil(t, rep.Violation, "%+v", rep.Violation)
	}
}
