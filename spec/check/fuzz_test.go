package check_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// FuzzJudge: whatever bytes a reader takes for a trace are judged, within bounds
// and the same twice, or refused with an error that says why.
func FuzzJudge(f *testing.F) {
	files, err := filepath.Glob("testdata/cases/*.jsonl")
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data, uint16(0))
	}
	for _, rule := range spec.Rules() {
		bad, err := rule.Bad()
		require.NoError(f, err)
		f.Add(bad, uint16(20))
	}
	lim := traces.Limits{LineBytes: 4096, TotalBytes: 1 << 18, Events: 300}
	f.Fuzz(func(t *testing.T, data []byte, ppm uint16) {
		tr, err := traces.ReadLimited("-", bytes.NewReader(data), lim)
		if err != nil {
			return // FuzzRead is about that
		}
		blocks := int64(0)
		for i := range tr.Events {
			blocks += min(tr.Events[i].Blocks.Len(), 1<<20)
		}
		if blocks > 1<<14 {
			return // judged, but not as often as a fuzzer likes
		}
		judge := func() (*check.Result, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return check.Judge(ctx, tr, check.Options{DriftPPM: int(ppm)})
		}
		res, err := judge()
		if err != nil {
			bad, limit := (*check.BadTrace)(nil), (*check.LimitError)(nil)
			require.True(t, errors.As(err, &bad) || errors.As(err, &limit), "%v", err)
			return
		}
		require.NotEqual(t, spec.Error, res.Verdict, "%v", res.Notes)
		require.Len(t, res.Rules, len(spec.Rules()))
		again, err := judge()
		require.NoError(t, err)
		require.Equal(t, res, again)
	})
}

// FuzzBruteForce changes small traces, and holds the judge against trying out
// every order of what comes out.
func FuzzBruteForce(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, []byte{0, 0, 0})
		f.Add(seed, []byte{4, 1, 3, 5, 2, 1, 6, 3, 0})
	}
	f.Fuzz(func(t *testing.T, seed uint64, edits []byte) {
		tr := nearTrace(rand.New(rand.NewPCG(seed, 17)))
		for len(edits) >= 3 {
			edit(tr, edits[0], edits[1], edits[2])
			edits = edits[3:]
		}
		inOrder(tr)
		if d := disagree(tr, map[string]int{}); d != "" {
			tr = least(tr)
			require.Fail(t, "the judges disagree", "%s\n%s", text(tr), disagree(tr, map[string]int{}))
		}
	})
}

// edit changes one thing about one event.
func edit(tr *spec.Trace, which, what, how byte) {
	e := &tr.Events[int(which)%len(tr.Events)]
	if e.K == spec.KindSource || e.K == spec.KindPool || e.K == spec.KindSeal {
		return
	}
	names := []string{"h0", "h1", ""}
	switch what % 10 {
	case 0:
		e.T = int64(how % 16)
	case 1:
		e.T2 = e.T + int64(how%8)
	case 2:
		e.Th = []string{"main", "io"}[how%2]
	case 3:
		if e.K != spec.KindBegin || e.Req != "" {
			e.Handoff = names[how%3]
		}
	case 4:
		if e.K != spec.KindBegin || e.Handoff != "" {
			e.Req = []string{"r0", "r1", ""}[how%3]
		}
	case 5:
		if e.Blocks != nil {
			e.Blocks = []spec.Blocks{spec.MakeBlocks(3), spec.MakeBlocks(4), spec.MakeBlocks(3, 4)}[how%3]
		}
	case 6:
		if e.K == spec.KindEmit {
			e.Claims = []spec.Predicate{spec.ClaimsNothing, spec.ClaimsReceived, spec.ClaimsStopped, spec.ClaimsCompleted, spec.ClaimsDrained}[how%5]
		}
	case 7:
		if e.Holder != "" || e.K == spec.KindFree {
			e.Holder = []string{"x", "y"}[how%2]
		}
	case 8:
		if e.K == spec.KindGrant || e.K == spec.KindRevoke {
			e.To = []string{"p0", "*", "c0"}[how%3]
		}
	case 9:
		if e.Mode != "" && e.K != spec.KindBegin {
			e.Mode = []string{"r", "w", "rw"}[how%3]
		}
	}
}

// inOrder makes times what a reader asks for after edits: not decreasing within a
// thread. What a handoff must be named for is named.
func inOrder(tr *spec.Trace) {
	last := map[spec.Thread]int64{}
	for i := range tr.Events {
		e := &tr.Events[i]
		if e.Handoff == "" && (e.K == spec.KindGrant || e.K == spec.KindRevoke || e.K == spec.KindFence || e.K == spec.KindDigest || e.K == spec.KindAccept || e.K == spec.KindOffer) {
			e.Handoff = "h0"
		}
		if e.Req == "" && (e.K == spec.KindAccept || e.K == spec.KindReject || e.K == spec.KindAdmit || e.K == spec.KindFinish || e.K == spec.KindCancel || e.K == spec.KindOutput || e.K == spec.KindAnswer) {
			e.Req = "r0"
		}
		if e.K == spec.KindExpire && e.Handoff == "" && e.Req == "" {
			e.Req = "r0"
		}
		th := e.Thread()
		if was, ok := last[th]; ok {
			e.T = max(e.T, was)
		}
		e.T2 = max(e.T, e.T2)
		last[th] = e.T
		for j := range i { // a seal comes after all that its source did
			if f := &tr.Events[j]; e.K == spec.KindSeal && f.Src == e.Src && f.Th != "decl" {
				e.T = max(e.T, f.T2)
				e.T2 = max(e.T, e.T2)
			}
		}
		e.Pos = spec.Position{File: "fuzz", Line: i + 1}
	}
}

// TestEditsAreTraces holds that the edits of FuzzBruteForce give what the format
// allows, seals aside, which are for whole files.
func TestEditsAreTraces(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		tr := nearTrace(r)
		for range r.IntN(6) {
			edit(tr, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()))
		}
		inOrder(tr)
		var open bytes.Buffer
		for i := range tr.Events {
			if e := &tr.Events[i]; e.K != spec.KindSeal {
				fmt.Fprintf(&open, "%s\n", e.AppendJSON(nil))
			}
		}
		_, err := traces.ReadLimited("-", bytes.NewReader(open.Bytes()), traces.Limits{LineBytes: 4096, TotalBytes: 1 << 18, Events: 300})
		require.NoError(t, err, "%s", open.String())
	}
}
