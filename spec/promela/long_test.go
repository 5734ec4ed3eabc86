//go:build long

package promela_test

import (
	"testing"

	"conform/spec/explore"
)

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
