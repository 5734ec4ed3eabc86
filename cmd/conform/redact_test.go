package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// verdicts of a trace: the whole one, and of each rule with the number of its findings.
func verdicts(t *testing.T, tr *spec.Trace) (map[string]string, error) {
	t.Helper()
	r, err := check.Judge(t.Context(), tr, check.Options{})
	if err != nil {
		return nil, err
	}
	all := map[string]string{"": r.Verdict.String()}
	for _, rule := range r.Rules {
		all[string(rule.ID)] = fmt.Sprintf("%v %d %d", rule.Verdict, rule.Judged, len(rule.Findings))
	}
	return all, nil
}

// A redacted trace is judged as the trace is, written and read again.
func TestRedactedCasesAreJudgedAlike(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(casesDir, "*.jsonl"))
	require.NoError(t, err)
	judged, lost := 0, 0
	for _, path := range paths {
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		torn := filepath.Join(t.TempDir(), "torn.jsonl")
		require.NoError(t, os.WriteFile(torn, whole[:max(len(whole)-10, 0)], 0o600))
		for _, path := range []string{path, torn} {
			tr, err := traces.Read(path, nil)
			if err != nil {
				continue
			}
			want, err := verdicts(t, tr)
			if err != nil {
				continue
			}
			judged++
			lost += len(tr.Losses)
			require.Equal(t, want, redacted(t, tr), path)
		}
	}
	require.Greater(t, judged, 200)
	require.Greater(t, lost, 50)
	_, err = traces.Redact(&spec.Trace{Losses: []spec.Loss{{Src: "unknown", Why: "a torn line"}}})
	require.ErrorIs(t, err, traces.ErrNamelessLoss)
}

// redacted is how a trace is judged that was redacted, written, and read again.
func redacted(t *testing.T, tr *spec.Trace) map[string]string {
	t.Helper()
	bare, err := traces.Redact(tr)
	require.NoError(t, err)
	check.Reseal(bare.Events)
	out := filepath.Join(t.TempDir(), "bare.jsonl")
	require.NoError(t, writeTraceFile(out, bare))
	again, err := traces.Read(out, nil)
	require.NoError(t, err)
	require.Len(t, again.Losses, len(tr.Losses))
	got, err := verdicts(t, again)
	require.NoError(t, err)
	return got
}

// A canary in every text of every kind of event is gone, and so are process ids.
func TestRedactLeavesNoWord(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(casesDir, "*.jsonl"))
	require.NoError(t, err)
	seen := map[spec.Kind]bool{}
	for _, path := range paths {
		tr, err := traces.Read(path, nil)
		if err != nil {
			continue
		}
		for i := range tr.Events {
			e := &tr.Events[i]
			seen[e.K] = true
			for n, text := range []*string{
				&e.Src, &e.Th, &e.Worker, &e.Host, &e.Clock, &e.Probe, &e.Engine, &e.Pool, &e.What, &e.Holder, &e.Req, &e.Handoff, &e.Why, &e.By, &e.To,
				&e.Access, &e.Target, &e.Via, &e.Sig, &e.Signal, &e.Asks, &e.Stage, &e.Unit, &e.Prompt, &e.Sum, &e.Expect, &e.Rule, &e.Do, &e.Text,
			} {
				*text = fmt.Sprintf("sk-CANARY-%d/10.1.2.3 canary@host#%d", n, i%3)
			}
			e.PID, e.Accesses, e.Workers = 987654, []string{"canary"}, []string{"CANARY"}
			e.Hooks = []byte(`{"asked":3,"bound":2,"missing":{"BLK-1":["canary.py:Canary"],"canary":["x"]},"errors":{"canary":"CANARY"},"canary":{"CANARY":1}}`)
			if i%2 == 0 {
				e.Text = `{"hooks":` + string(e.Hooks) + `}`
			}
			e.Extra = map[string]json.RawMessage{"canary": json.RawMessage(`"CANARY"`)}
		}
		tr.Losses = nil
		bare, err := traces.Redact(tr)
		require.NoError(t, err)
		check.Reseal(bare.Events)
		var text strings.Builder
		require.NoError(t, check.WriteTrace(&text, bare))
		for _, word := range []string{"canary", "10.1.2.3", "sk-", "987654"} {
			require.NotContains(t, strings.ToLower(text.String()), word, path)
		}
		require.Contains(t, text.String(), `"missing":{"BLK-1":[`)
	}
	require.Greater(t, len(seen), 25)
}

func TestRedactKeepsWhatSaysNothing(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.jsonl")
	in := filepath.Join(t.TempDir(), "in.jsonl")
	require.NoError(t, os.WriteFile(in, []byte(`{"src":"decode-0","seq":0,"t":0,"k":"source","worker":"decode-0","role":"decode","host":"h","clock":"c","pid":7}
{"src":"decode-0","seq":1,"t":1,"k":"pool","pool":"kv","blocks":8,"what":"kv"}
{"src":"decode-0","seq":2,"t":2,"k":"alloc","pool":"kv","blocks":[1],"holder":"alice","req":"alice","handoff":"room-77#1"}
{"src":"decode-0","seq":3,"t":3,"k":"emit","sig":"x","signal":"ABORT_ACK/3","handoff":"room-77#1","claims":"drained"}
{"src":"decode-0","seq":4,"t":4,"k":"free","pool":"kv","blocks":[1],"holder":"alice","why":"timeout","by":"x"}
`), 0o600))
	c := newCall(realBackend())
	require.Equal(t, 0, c.main(t.Context(), []string{"redact", in, "-o", out}), c.errs.String())
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, `{"src":"decode-0","seq":0,"t":0,"k":"source","worker":"decode-0","role":"decode","host":"host1","clock":"clock1"}
{"src":"decode-0","seq":1,"t":1,"k":"pool","pool":"kv","blocks":8,"what":"kv"}
{"src":"decode-0","seq":2,"t":2,"k":"alloc","pool":"kv","blocks":[1],"holder":"r1","req":"r1","handoff":"room1#1"}
{"src":"decode-0","seq":3,"t":3,"k":"emit","sig":"s1","signal":"ABORT_ACK/3","handoff":"room1#1","claims":"drained"}
{"src":"decode-0","seq":4,"t":4,"k":"free","pool":"kv","blocks":[1],"holder":"r1","by":"s1","why":"timeout"}
`, string(got))
}
