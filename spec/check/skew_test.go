package check

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// What the bar on clocks is about: hosts whose clocks are off by a constant each,
// blocks that they pass to each other, and signals that take their time.
const (
	skewHosts    = 8
	skewBlocks   = 400
	skewHandoffs = 4_000     // of 5 operations on a block each: 20,000 in all
	skewMost     = 5_000_000 // ns that a clock is off by at most
)

// skewedRun is a run of the hosts in which everything is as it should be, or, if
// early is above 0, one lease is freed by so many ns before an access to it ends.
func skewedRun(seed uint64, early float64) *writer {
	r := rand.New(rand.NewPCG(seed, 8))
	type stamped struct {
		host int
		at   float64
		e    spec.Event
	}
	var all []stamped
	latency := func() float64 { return 20e3 + r.ExpFloat64()*80e3 }
	at := make([]float64, skewBlocks) // when the block is free again
	wrong := r.IntN(skewHandoffs)
	for i := range skewHandoffs {
		b := i % skewBlocks
		owner := b % skewHosts
		peer := (owner + 1 + r.IntN(skewHosts-1)) % skewHosts
		h := fmt.Sprintf("room-%d", i)
		add := func(host int, t float64, e spec.Event) {
			e.Handoff = h
			switch e.K {
			case spec.KindAlloc, spec.KindGrant, spec.KindBegin, spec.KindFree:
				e.Pool, e.Blocks = "kv", spec.MakeBlocks(int64(b/skewHosts))
			}
			all = append(all, stamped{host, t, e})
		}
		t := at[b] + r.ExpFloat64()*1e6
		add(owner, t, spec.Event{K: spec.KindAlloc, Holder: h})
		add(owner, t+2e3, spec.Event{K: spec.KindGrant, To: fmt.Sprintf("w%d", peer), Mode: "w"})
		add(owner, t+4e3, spec.Event{K: spec.KindEmit, Sig: "m" + h, Signal: "METADATA"})
		t += 4e3 + latency()
		add(peer, t, spec.Event{K: spec.KindObserve, Sig: "m" + h})
		add(peer, t+5e3, spec.Event{K: spec.KindBegin, Access: h, Mode: "w", Target: fmt.Sprintf("w%d", owner)})
		end := t + 5e3 + max(early+20e3, 100e3*(1+r.ExpFloat64()))
		add(peer, end, spec.Event{K: spec.KindEnd, Access: h})
		add(peer, end+2e3, spec.Event{K: spec.KindEmit, Sig: "s" + h, Signal: "STATUS", Claims: spec.ClaimsDrained})
		t = end + 2e3 + latency()
		add(owner, t, spec.Event{K: spec.KindObserve, Sig: "s" + h})
		free := t + 3e3
		if early > 0 && i == wrong {
			free = end - early
		}
		add(owner, free, spec.Event{K: spec.KindFree})
		at[b] = t + 3e3
	}
	slices.SortStableFunc(all, func(a, b stamped) int { return cmp.Compare(a.at, b.at) })
	w := newWriter()
	off := make([]int64, skewHosts)
	for i := range skewHosts {
		off[i] = skewMost + r.Int64N(2*skewMost) // from skewMost on, so that no reading is below the source line's
		w.source(fmt.Sprintf("S%d", i), fmt.Sprintf("w%d", i), spec.RoleDecode, fmt.Sprintf("c%d", i))
		w.add(fmt.Sprintf("S%d", i), "main", 0, 0, spec.Event{K: spec.KindPool, Pool: "kv", Count: skewBlocks/skewHosts + 1})
	}
	for _, s := range all {
		w.add(fmt.Sprintf("S%d", s.host), "main", int64(s.at)+off[s.host], 0, s.e)
	}
	return w
}

// alarm judges a run, and says which rules of the blocks fail.
func alarm(t testing.TB, w *writer) []spec.RuleID {
	res, err := Judge(context.Background(), &w.tr, Options{})
	require.NoError(t, err)
	require.Empty(t, res.Notes[skewHosts:], "each source ends without a seal, and nothing else")
	var out []spec.RuleID
	for _, r := range res.Rules {
		if r.Verdict == spec.Fail {
			out = append(out, r.ID)
		}
	}
	return out
}

// TestSkew judges a few runs of each kind; BenchmarkSkew judges many.
func TestSkew(t *testing.T) {
	require.Empty(t, alarm(t, skewedRun(1, 0)))
	require.Equal(t, []spec.RuleID{spec.BLK2}, alarm(t, skewedRun(1, 200e3)))
	w := skewedRun(1, 0)
	for i := range w.tr.Events {
		if e := &w.tr.Events[i]; e.K == spec.KindSource {
			e.Clock = "one" // as if the stamps were all of one clock
		}
	}
	_, err := Judge(context.Background(), &w.tr, Options{})
	require.IsType(t, &BadTrace{}, err, "the skew must be one that stamps alone do not survive")
}

// BenchmarkSkew prints how many correct runs are judged wrong, and how many wrong
// ones are found by how wrong they are. One iteration is one run, of a seed of its
// own: -benchtime 1000x judges a thousand.
func BenchmarkSkew(b *testing.B) {
	for _, early := range []float64{0, 10e3, 50e3, 200e3, 1e6} {
		b.Run(fmt.Sprintf("early=%dus", int(early/1e3)), func(b *testing.B) {
			seed, alarms := uint64(0), 0
			for b.Loop() {
				if seed++; len(alarm(b, skewedRun(seed, early))) > 0 {
					alarms++
				}
			}
			if early == 0 {
				b.ReportMetric(float64(alarms), "false-alarms")
			} else {
				b.ReportMetric(100*float64(alarms)/float64(seed), "%found")
			}
		})
	}
}
