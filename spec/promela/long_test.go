//go:build long

package promela_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec/explore"
	"conform/spec/promela"
)

// TestLongExhaustive has SPIN visit every state of the whole protocol for two
// requests, two handoffs and two blocks, with loss, reordering, a message that is
// doubled and a crash. Push takes 4 GB.
func TestLongExhaustive(t *testing.T) {
	needSpin(t)
	for _, mode := range []explore.Mode{explore.Pull, explore.Push} {
		_, s := verify(t, promela.Config{Mode: mode, Blocks: 2, Requests: 2, Loss: true, Doubles: 1, Crashes: 1, MaxMemory: 6000})
		require.False(t, s.Broken)
	}
}

// TestLongEveryGuard has SPIN find, for each guard that is taken away, each rule
// that it protects broken, and has the judge judge the trail.
func TestLongEveryGuard(t *testing.T) {
	needSpin(t)
	for _, mode := range []explore.Mode{explore.Push, explore.Pull} {
		for _, g := range explore.Guards() {
			if !g.In(mode) {
				continue
			}
			for _, rule := range g.Protects {
				t.Run(mode.String()+"/"+g.Name+"/"+string(rule), func(t *testing.T) { judgeGuard(t, mode, g, rule) })
			}
		}
	}
}
