package check

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// parseTrace reads JSON Lines into a trace.
func parseTrace(t testing.TB, data []byte) *spec.Trace {
	t.Helper()
	tr := &spec.Trace{}
	for line := range bytes.Lines(data) {
		e, err := spec.ParseEvent(bytes.TrimSuffix(line, []byte("\n")))
		require.NoError(t, err)
		tr.Events = append(tr.Events, e)
	}
	return tr
}

// caseTraces calls f for each trace of the judged sample and of the rules that
// is no bad input.
func caseTraces(t *testing.T, f func(t *testing.T, tr *spec.Trace, res *Result)) {
	files, err := filepath.Glob("testdata/cases/*.jsonl")
	require.NoError(t, err)
	rules, err := filepath.Glob("../rules/*.bad.jsonl")
	require.NoError(t, err)
	require.Len(t, rules, 16)
	for _, file := range append(files, rules...) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			tr := parseTrace(t, data)
			res, err := Judge(context.Background(), tr, Options{})
			if err != nil {
				t.Skip(err)
			}
			f(t, tr, res)
		})
	}
}

func findingsOf(res *Result) []Finding {
	var out []Finding
	for _, r := range res.Rules {
		out = append(out, r.Findings...)
	}
	return out
}

// TestShrinkKeepsTheFinding shrinks every finding of every case: what is left
// gives it again, says nothing worse, and is minimal.
func TestShrinkKeepsTheFinding(t *testing.T) {
	byVerdict := map[spec.Verdict]int{}
	caseTraces(t, func(t *testing.T, tr *spec.Trace, res *Result) {
		for _, f := range findingsOf(res) {
			out, err := Shrink(context.Background(), tr, res, f, ShrinkOptions{})
			require.NoError(t, err, f.Text)
			var text bytes.Buffer
			require.NoError(t, WriteTrace(&text, out.Trace))
			require.True(t, out.Minimal, f.Text)
			require.LessOrEqual(t, len(out.Trace.Events), len(tr.Events)+1) // one may stand for a torn end
			require.True(t, sameObject(&out.Finding, &f))
			require.Equal(t, f.Rule, out.Finding.Rule)
			again, err := Judge(context.Background(), parseTrace(t, text.Bytes()), Options{})
			require.NoError(t, err, text.String())
			require.Contains(t, textsOf(findingsOf(again)), out.Finding.Text, text.String())
			require.LessOrEqual(t, again.Verdict, max(res.Verdict, f.Verdict), text.String())
			byVerdict[f.Verdict]++
		}
	})
	t.Log(byVerdict)
	for _, v := range []spec.Verdict{spec.Fail, spec.Unproven, spec.Inconclusive} {
		require.NotZero(t, byVerdict[v], v.String())
	}
}

func textsOf(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, f.Text)
	}
	return out
}

// cancelRace is a seeded run of n handoffs of which one, somewhere in the middle,
// is cancelled, and its blocks are freed while its transfer still runs.
func cancelRace(n int, seed uint64) *spec.Trace {
	w := bigTrace(n, 16, "m")
	rng := rand.New(rand.NewPCG(seed, 0))
	room := fmt.Sprintf("room-%d", n/4+rng.IntN(n/2))
	var out []spec.Event
	var late []spec.Event
	for _, e := range w.tr.Events {
		switch {
		case e.K == spec.KindEnd && e.Access == room+".1":
			e.T, e.T2, e.Th = e.T+100, e.T2+100, "nic"
			late = append(late, e)
			continue
		case e.Sig == "s"+room:
			continue
		case e.K == spec.KindFree && e.Handoff == "" && e.Holder == "r"+strings.TrimPrefix(room, "room-"):
			c := e
			c.K, c.Blocks, c.Holder, c.Pool, c.Req, c.Why = spec.KindCancel, nil, "", "", e.Holder, "client"
			e.Why = "cancel"
			out = append(out, c)
		}
		out = append(out, e)
		if e.K == spec.KindFree {
			out, late = append(out, late...), nil
		}
	}
	next := map[string]uint64{}
	for i := range out {
		out[i].Seq = next[out[i].Src]
		next[out[i].Src]++
	}
	return &spec.Trace{Events: out}
}

// TestShrinkCancelRace shrinks one race out of a long run.
func TestShrinkCancelRace(t *testing.T) {
	tr := cancelRace(1000, 1)
	res, err := Judge(context.Background(), tr, Options{})
	require.NoError(t, err)
	f := ruleResult(res, spec.BLK2).Findings
	require.NotEmpty(t, f)
	out, err := Shrink(context.Background(), tr, res, f[0], ShrinkOptions{})
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, WriteTrace(&text, out.Trace))
	require.LessOrEqual(t, len(out.Trace.Events), 12, text.String())
	require.Equal(t, spec.Fail, out.Result.Verdict)
	require.Len(t, findingsOf(out.Result), 1)
}

// BenchmarkShrink shrinks a cancel race from a trace of 100,000 events, with
// judging it first and without.
func BenchmarkShrink(b *testing.B) {
	tr := cancelRace(100_000/12, 1)
	start := time.Now()
	res, err := Judge(context.Background(), tr, Options{})
	require.NoError(b, err)
	judging := time.Since(start)
	f := ruleResult(res, spec.BLK2).Findings[0]
	for b.Loop() {
		out, err := Shrink(context.Background(), tr, res, f, ShrinkOptions{})
		require.NoError(b, err)
		b.ReportMetric(float64(len(out.Trace.Events)), "events-left")
		b.ReportMetric(float64(out.Judged), "judged")
	}
	b.ReportMetric(float64(len(tr.Events)), "events")
	b.ReportMetric(judging.Seconds(), "s-judging-first")
}
