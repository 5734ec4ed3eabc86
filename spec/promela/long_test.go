//go:build long

package promela_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec/explore"
	"conform/spec/promela"
)

// TestLongExhaustive has SPIN visit every state of the whole protocol for two
// requests, two handoffs and two blocks. In push, where there are most states, a
// message that is doubled and a crash are explored for one request here.
func TestLongExhaustive(t *testing.T) {
	needSpin(t)
	for _, c := range []promela.Config{
		{Mode: explore.Pull, Blocks: 2, Requests: 2, Loss: true, Doubles: 1, Crashes: 1},
		{Mode: explore.Push, Blocks: 2, Requests: 2, Loss: true},
		{Mode: explore.Push, Blocks: 2, Requests: 1, Loss: true, Doubles: 1, Crashes: 1},
	} {
		_, s := verify(t, c)
		require.False(t, s.Broken)
	}
}

// TestLongFaultsInPush adds, for two requests, the crash and the doubled message,
// one at a time; the latter with one block, so that it fits into 2 GB.
func TestLongFaultsInPush(t *testing.T) {
	needSpin(t)
	for _, c := range []promela.Config{
		{Mode: explore.Push, Blocks: 2, Requests: 2, Loss: true, Crashes: 1},
		{Mode: explore.Push, Blocks: 1, Requests: 2, Loss: true, Doubles: 1},
	} {
		_, s := verify(t, c)
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
