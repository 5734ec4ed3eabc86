package report

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/harness"
	"conform/spec"
)

func steps(p *Progress) {
	p.Update(harness.Progress{Total: 2, Scenario: "baseline", Mode: "push", Seed: 1, Phase: "starting"})
	p.Update(harness.Progress{Done: 1, Total: 2, Scenario: "baseline", Mode: "push", Seed: 1, Verdict: spec.Pass, Finished: true})
	p.Update(harness.Progress{Done: 1, Total: 2, Scenario: "ack-lost\n", Seed: 2, Phase: "judging"})
	p.Update(harness.Progress{Done: 2, Total: 2, Scenario: "ack-lost\n", Seed: 2, Verdict: spec.Fail, Finished: true})
}

func TestProgressOfAFile(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, false, 0)
	steps(p)
	p.Close()
	p.Clear()
	require.Equal(t, "[1/2] baseline push seed 1: pass\n[2/2] ack-lost\\x0a seed 2: fail\n", b.String())
}

func TestProgressOfATerminal(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, true, 0)
	steps(p)
	p.Update(harness.Progress{Done: 2, Total: 2, Scenario: "x", Phase: "y"})
	p.Clear()
	p.Clear()
	require.Equal(t, "\r[0/2] baseline push seed 1: starting\x1b[K"+
		"\r[1/2] baseline push seed 1: pass\x1b[K"+
		"\r[1/2] ack-lost\\x0a seed 2: judging\x1b[K"+
		"\r[2/2] ack-lost\\x0a seed 2: fail\x1b[K\n"+
		"\r[2/2] x seed 0: y\x1b[K\r\x1b[K", b.String())
}

func TestProgressOfTheWholeRun(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, true, 0)
	p.Update(harness.Progress{Total: 2, Phase: "opening sglang@0.5.23"})
	require.Equal(t, "\r[0/2] opening sglang@0.5.23\x1b[K", b.String())
}

func TestProgressFitsTheTerminal(t *testing.T) {
	for _, columns := range []int{1, 2, 10, 20} {
		var b bytes.Buffer
		p := NewProgress(&b, true, columns)
		p.Update(harness.Progress{Done: 1, Total: 2, Scenario: "cancel-during-transfer", Mode: "push", Phase: "draining"})
		line := bytes.TrimSuffix(bytes.TrimPrefix(b.Bytes(), []byte("\r")), []byte("\x1b[K"))
		require.LessOrEqual(t, len([]rune(string(line))), max(columns-1, 1))
	}
}

// Progress is a courtesy: a terminal that went away stops nothing.
func TestProgressIgnoresABrokenWriter(*testing.T) {
	steps(NewProgress(brokenWriter{}, true, 0))
}
