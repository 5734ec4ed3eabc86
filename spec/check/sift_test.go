package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

// again reads a trace in memory, each time as a stream has it.
func again(tr *spec.Trace) Reader {
	return func(each func(*spec.Event, int32, int32) bool) (bool, error) {
		if len(tr.Losses) > 0 {
			return false, nil
		}
		sources, threads := map[string]int32{}, map[spec.Thread]int32{}
		for i := range tr.Events {
			e := tr.Events[i]
			if _, known := sources[e.Src]; !known {
				sources[e.Src] = int32(len(sources))
			}
			th := e.Thread()
			if _, known := threads[th]; !known {
				threads[th] = int32(len(threads))
			}
			src := sources[e.Src]
			texts := lent(&e)
			if !each(&e, src, threads[th]) {
				return false, nil
			}
			clear(texts)
		}
		return true, nil
	}
}

// tally is what differential tests of Sift have seen.
type tally map[string]int

// siftAgrees holds Sift against Judge: where it tells, it tells the same.
func siftAgrees(t require.TestingT, tr *spec.Trace, text fmt.Stringer, seen tally) {
	got, err := Sift(context.Background(), again(tr), Options{})
	require.NoError(t, err, "%s", text)
	want, bad := Judge(context.Background(), tr, Options{})
	if bad != nil {
		require.Nil(t, got, "%s", text)
		seen["bad"]++
		return
	}
	v := want.Verdict.String()
	if got == nil {
		seen[v+", not told"]++
		return
	}
	seen[v]++
	require.Equal(t, uncited(want), uncited(got), "%s", text)
}

// uncited leaves out of a result which of several equal proofs by clocks was cited.
func uncited(r *Result) *Result {
	for i := range r.Rules {
		for j := range r.Rules[i].Findings {
			f := &r.Rules[i].Findings[j]
			if at := strings.Index(f.Text, "; no offset of the clocks lets it"); at >= 0 {
				f.Text, f.Events = f.Text[:at], nil
			}
		}
	}
	return r
}

func siftRandom(t *testing.T, n int, seed uint64, requests int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 12))
	seen := tally{}
	for range n {
		p := newPlay(r)
		p.run(1 + r.IntN(requests))
		if !p.chance(4) {
			p.spoil()
		}
		if w := p.trace(); w != nil {
			siftAgrees(t, &w.tr, w, seen)
		}
	}
	t.Logf("%d traces: %v", n, seen)
	require.Greater(t, seen["fail"], n/20, "it tells of failures")
}

// TestSiftAgrees holds Sift against Judge on random runs, sound and spoiled.
func TestSiftAgrees(t *testing.T) { siftRandom(t, 2000, 1, 8) }

// TestSiftWild holds Sift against Judge on whatever may come.
func TestSiftWild(t *testing.T) {
	seen := tally{}
	rapid.Check(t, func(t *rapid.T) {
		for _, draw := range []func(*rapid.T) *writer{wild, oneBlock, twoClocks} {
			w := draw(t)
			siftAgrees(t, &w.tr, w, seen)
		}
	})
	t.Logf("%v", seen)
}

// TestSiftCases holds Sift against Judge on the judged sample and on the clauses of
// every rule.
func TestSiftCases(t *testing.T) {
	seen := tally{}
	for _, pattern := range []string{"testdata/cases/*.jsonl", "../clauses/*.jsonl"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			tr := parsedFile(t, file)
			siftAgrees(t, tr, traceText{tr}, seen)
		}
	}
	t.Logf("%v", seen)
}
