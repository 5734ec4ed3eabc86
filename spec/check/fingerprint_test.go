package check

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
	"conform/traces"
)

func orphan(req, handoff, worker string, n int) Finding {
	return Finding{
		Rule: spec.SIG2, Verdict: spec.Unproven, Harm: spec.HarmUnprovenOrder, Req: req, Handoff: handoff,
		Block: &spec.BlockID{Worker: worker, Pool: "kv", Number: int64(n)},
		Text: fmt.Sprintf("access a-%d (write by prefill-0, handoff %s) for request %s to block %d of %s/kv: it ended at prefill-0#%d (end at +%d.5 ms), "+
			"with %d holds given back, after ABORT_ACK/4", n, handoff, req, n, worker, n+3, n, n),
	}
}

func TestShape(t *testing.T) {
	f := orphan("r-7", "room-99", "decode-0.r1", 12)
	require.Equal(t, "access a (write by prefill, handoff N) for request N to block N of decode/kv: it ended at an event (end), "+
		"with N holds given back, after ABORT_ACK/4", f.Shape())
	f = Finding{Text: "digests 2f2c561613beb94f and ec7e, seen at a#1, b#2 and c-d#30: status 200 from w12"}
	require.Equal(t, "digests N, seen at an event: status N from w", f.Shape())
}

// What differs from run to run does not matter; what says what the defect is does.
func TestFingerprint(t *testing.T) {
	base := orphan("r-7", "room-99", "decode-0", 12)
	want := base.Fingerprint("reference", "baseline", "push")
	require.Regexp(t, `^[0-9a-f]{16}$`, want)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 1<<30).Draw(t, "n")
		other := orphan(
			rapid.StringMatching(`[a-z]{1,5}-?[0-9a-f]{1,20}`).Draw(t, "req"),
			rapid.StringMatching(`room-[0-9]{1,20}`).Draw(t, "handoff"),
			rapid.SampledFrom([]string{"decode-0", "decode-13", "decode-0.r1"}).Draw(t, "worker"), n)
		require.Equal(t, want, other.Fingerprint("reference", "baseline", "push"), other.Shape())
	})
	for name, change := range map[string]func(f *Finding){
		"rule":    func(f *Finding) { f.Rule = spec.BLK2 },
		"verdict": func(f *Finding) { f.Verdict = spec.Fail },
		"harm":    func(f *Finding) { f.Harm = spec.HarmNone },
		"pool":    func(f *Finding) { f.Block = &spec.BlockID{Worker: "decode-0", Pool: "aux", Number: 12} },
		"role":    func(f *Finding) { f.Text = strings.Replace(f.Text, "by prefill-0", "by decode-1", 1) },
		"kind":    func(f *Finding) { f.Text = strings.Replace(f.Text, "(end at", "(begin at", 1) },
		"signal":  func(f *Finding) { f.Text = strings.Replace(f.Text, "ABORT_ACK/4", "ABORT_ACK/2", 1) },
	} {
		f := base
		change(&f)
		require.NotEqual(t, want, f.Fingerprint("reference", "baseline", "push"), name)
	}
	require.NotEqual(t, want, base.Fingerprint("reference", "baseline", "pull"))
	require.NotEqual(t, base.Fingerprint("a", "b"), base.Fingerprint("a\x00b"))
}

// Names from a trace are anybody's: whatever they are, a shape is made of them.
func TestShapeOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Finding{
			Text: rapid.String().Draw(t, "text"), Req: rapid.String().Draw(t, "req"), Handoff: rapid.String().Draw(t, "handoff"),
			Block: &spec.BlockID{Worker: rapid.String().Draw(t, "worker"), Pool: rapid.String().Draw(t, "pool")},
		}
		f.Text += f.Req + " " + f.Handoff
		require.Len(t, f.Fingerprint(rapid.String().Draw(t, "scope")), 16)
	})
}

// The bad trace of each rule with other names and times has the same fingerprints.
func TestFingerprintsOfOtherNames(t *testing.T) {
	judge := func(text string) []string {
		tr, err := traces.Read("-", strings.NewReader(text))
		require.NoError(t, err)
		res, err := Judge(context.Background(), tr, Options{})
		require.NoError(t, err)
		Sign(res.Rules, "s")
		var ids []string
		for _, r := range res.Rules {
			for _, f := range r.Findings {
				ids = append(ids, f.ID)
			}
		}
		return ids
	}
	for _, rule := range spec.Rules() {
		b, err := os.ReadFile("../rules/" + string(rule.ID) + ".bad.jsonl")
		require.NoError(t, err)
		before := judge(string(b))
		require.NotEmpty(t, before, rule.ID)
		other := strings.NewReplacer(`"t":`, `"t":7`, `"room-1"`, `"room-31337"`, `"r1"`, `"r-00ff"`, `"a1"`, `"a77"`).Replace(string(b))
		if strings.Contains(string(b), `"t2"`) {
			continue // a time in front of another's digits would end before it begins
		}
		require.Equal(t, before, judge(other), rule.ID)
	}
}
