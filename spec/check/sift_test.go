package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
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
	siftedBy(t, tr, text, seen, NewSieve)
}

func siftedBy(t require.TestingT, tr *spec.Trace, text fmt.Stringer, seen tally, fresh func(Options) *Sieve) {
	got, s, err := siftWith(context.Background(), again(tr), fresh, Options{})
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
	if s.order != nil && len(s.order.kept)*3 < len(tr.Events)*2 {
		seen[v+", by less than two thirds"]++
	}
	require.Equal(t, anyProof(want), anyProof(got), "%s", text)
}

// anyProof leaves out of a result which of several equal proofs by clocks it cites: by
// how much the clocks contradict stays.
func anyProof(r *Result) *Result {
	for i := range r.Rules {
		for j := range r.Rules[i].Findings {
			f := &r.Rules[i].Findings[j]
			if at := strings.Index(f.Text, "; no offset of the clocks lets it"); at >= 0 {
				f.Text, f.Events = f.Text[:at]+f.Text[strings.LastIndex(f.Text, ";"):], nil
			}
		}
	}
	return r
}

// provoke puts a line in somewhere about a request, of a kind of which a rule asks
// what is certain about its order.
func (p *play) provoke() {
	at := p.r.IntN(len(p.lines))
	if p.chance(2) {
		p.move(at, max(0, at-p.r.IntN(20)))
		return
	}
	of := p.lines[p.r.IntN(len(p.lines))].e
	if of.Req == "" || of.Handoff == "" {
		return
	}
	l := playLine{src: []string{"D", "P", "C", "H"}[p.r.IntN(4)], th: []string{"main", "io", "net"}[p.r.IntN(3)], t: p.lines[at].t}
	switch was, is := p.lines[at].src == "P", l.src == "P"; {
	case was && !is:
		l.t -= p.skew
	case !was && is:
		l.t += p.skew
	}
	l.e = spec.Event{Req: of.Req, K: []spec.Kind{
		spec.KindReject, spec.KindCancel, spec.KindOutput, spec.KindExpire, spec.KindFinish, spec.KindEmit, spec.KindIdle, spec.KindBegin,
	}[p.r.IntN(8)]}
	switch l.e.K {
	case spec.KindFinish:
		l.e.Result = spec.OutcomeError
	case spec.KindEmit:
		l.e.Sig, l.e.Signal, l.e.Handoff = p.id("s"), "WORD", of.Handoff
		l.e.Claims = []spec.Predicate{spec.ClaimsStopped, spec.ClaimsCompleted, spec.ClaimsDrained}[p.r.IntN(3)]
	case spec.KindIdle:
		l.e = spec.Event{K: spec.KindIdle, Workers: []string{"d0", "p0"}}
	case spec.KindBegin:
		l.e.Access, l.e.Mode, l.e.Target, l.e.Pool, l.e.Blocks = p.id("a"), "w", "d0", "kv", of.Blocks
		if of.Blocks == nil {
			return
		}
		l.e.Handoff = of.Handoff
	}
	p.lines = slices.Insert(p.lines, at, l)
}

// move puts a line elsewhere, at the time of what is there.
func (p *play) move(from, to int) {
	l := p.lines[from]
	if l.src == p.lines[to].src {
		l.t = p.lines[to].t
	} else if l.t = p.lines[to].t + p.skew; l.src != "P" {
		l.t -= p.skew
		if p.lines[to].src == "P" {
			l.t -= p.skew
		}
	}
	if p.chance(4) {
		l.th = "net"
	}
	p.lines = slices.Insert(slices.Delete(p.lines, from, from+1), to, l)
}

func siftRandom(t *testing.T, n int, seed uint64, requests int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 12))
	seen := tally{}
	for range n {
		p := newPlay(r)
		p.run(1 + r.IntN(requests))
		p.apart = p.chance(2)
		if !p.chance(4) {
			p.spoil()
		}
		for p.chance(2) {
			p.provoke()
		}
		if w := p.trace(); w != nil {
			fresh := NewSieve
			if keep := (sieveKeep{names: 1 + int32(r.IntN(60)), signals: int32(r.IntN(20)), sweep: 1 + int32(r.IntN(4))}); p.chance(3) {
				fresh = func(opt Options) *Sieve {
					s := NewSieve(opt)
					s.keep = keep
					return s
				}
			}
			siftedBy(t, &w.tr, w, seen, fresh)
		}
	}
	t.Logf("%d traces: %v", n, seen)
	require.Greater(t, seen["fail, by less than two thirds"], n/20, "it tells of failures by a part of the trace")
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
