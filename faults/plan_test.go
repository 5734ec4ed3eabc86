package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func plan(t testing.TB, text string) *Plan {
	t.Helper()
	p, err := ParsePlan("plan.yaml", []byte(text))
	require.NoError(t, err)
	return p
}

func TestParsePlan(t *testing.T) {
	p := plan(t, `
rules:
  - name: hold-the-write
    when: {access: w, pool: kv, from: prefill, target: decode, nth: 1, every: 3, probability: 0.5, count: 2,
           req: "r-1", handoff: room-7, n: 3, after: {event: cancel, same: req}}
    do: hold
    until: {event: alloc, pool: kv, same: block, nth: 2, worker: decode}
    limit: 500ms
  - name: slow-ack
    when: {signal: ABORT_ACK}
    do: delay
    jitter: 10ms..50ms
    ordered: true
  - {name: again, when: {signal: ABORT_ACK}, do: duplicate, until: {event: emit, signal: STATUS, same: handoff}}
  - {name: late, when: {http: "POST /generate"}, do: duplicate, for: 1s, copies: 2}
  - {name: behind, when: {signal: "META*"}, do: reorder, behind: {signal: ABORT}}
  - {name: swap, when: {signal: META, nth: 1}, do: reorder}
  - {name: crash, when: {event: begin, target: decode, nth: 5}, do: kill, worker: prefill, restart_after: 200ms}
  - {name: again-up, when: {event: exit, worker: decode}, do: restart, worker: decode}
  - {name: stall, when: {access: rw}, do: pause, worker: decode, for: 10ms}
  - {name: split, when: {http: "*", every: 2}, do: partition, between: [prefill, decode], for: 100ms}
`)
	require.Len(t, p.Rules, 10)
	r := p.Rules[0]
	three := int64(3)
	require.Equal(t, Match{
		Kind: KindAccess, Name: "w", Pool: "kv", From: "prefill", To: "decode", Req: "r-1", Handoff: "room-7", N: &three,
	}, r.When)
	require.Equal(t, &Match{Kind: KindEvent, Name: "cancel", Same: "req"}, r.After)
	require.Equal(t, &Match{Kind: KindEvent, Name: "alloc", Pool: "kv", From: "decode", Same: "block", Nth: 2}, r.Until)
	require.Equal(t, []any{1, 3, 0.5, 2, 500 * time.Millisecond}, []any{r.Nth, r.Every, r.Probability, r.Count, r.Limit})
	require.Equal(t, 3, r.Line)

	require.Equal(t, []time.Duration{10 * time.Millisecond, 50 * time.Millisecond}, []time.Duration{p.Rules[1].For, p.Rules[1].ForMax})
	require.True(t, p.Rules[1].Ordered)
	require.Equal(t, 1.0, p.Rules[1].Probability)
	require.Equal(t, "STATUS", p.Rules[2].Until.Signal)
	require.Equal(t, []any{1, defaultLimit}, []any{p.Rules[2].Copies, p.Rules[2].Limit})
	require.Equal(t, 2, p.Rules[3].Copies)
	require.Equal(t, "ABORT", p.Rules[4].Behind.Name)
	require.Equal(t, p.Rules[5].When, *p.Rules[5].Behind)
	require.True(t, p.Rules[6].WillRestart)
	require.Equal(t, 1, p.Rules[6].Count, "a process fault acts once unless the plan says otherwise")
	require.Equal(t, 0, p.Rules[9].Count)
	require.Equal(t, "*", p.Rules[8].When.Name)
	require.Equal(t, [2]string{"prefill", "decode"}, p.Rules[9].Between)
}

func TestEmptyPlanWantsNothing(t *testing.T) {
	p := plan(t, "rules: []")
	for _, k := range []string{KindSignal, KindAccess, KindHTTP, KindEvent} {
		require.False(t, p.Wants(k))
	}
	require.Empty(t, p.Interests())
	require.Empty(t, p.Events())
}

func TestPlanSaysWhatItWants(t *testing.T) {
	p := plan(t, `
rules:
  - {name: a, when: {access: w, pool: kv, after: {event: cancel}}, do: hold, until: {event: alloc}}
  - {name: b, when: {access: w, pool: kv, from: decode}, do: fail}
  - {name: c, when: {signal: S}, do: hold, until: {access: rw, pool: aux}}
`)
	require.True(t, p.Wants(KindSignal))
	require.False(t, p.Wants(KindHTTP))
	require.Equal(t, []string{"alloc", "cancel"}, p.Events())
	is := p.Interests()
	require.Equal(t, []Interest{{Mode: "w", Pool: "kv"}, {Pool: "aux"}}, is)
	require.True(t, is[1].Wants("r", "aux"))
	require.False(t, is[0].Wants("r", "kv"))
	require.False(t, is[0].Wants("w", "aux"))

	p = plan(t, `rules: [{name: a, when: {event: cancel}, do: partition, between: [x, y], for: 1s}]`)
	require.Equal(t, []Interest{{}}, p.Interests())
	require.True(t, p.Wants(KindHTTP))
}

// Each plan has one mistake; the rest of the error says where and what.
func TestPlanErrors(t *testing.T) {
	const head = "rules:\n  - "
	refuses(t, map[string]string{
		"":                                       `1:1: found an empty file, expected a plan`,
		"# nothing\n":                            `1:1: found an empty file, expected a plan`,
		"{}":                                     "1:1: found a plan without rules, expected `rules:` and a list",
		"rules: 7":                               `1:8: found 7, expected a list of rules`,
		"rules: {}":                              `1:8: found a mapping, expected a list of rules`,
		"rules:":                                 `1:7: found nothing, expected a list of rules`,
		"- a":                                    `1:1: found a list, expected a plan`,
		"rules: []\nrule: []":                    `2:1: found field "rule", expected a field of a plan: rules`,
		"rules: []\nrules: []":                   `2:1: found field "rules" twice, expected it once`,
		"rules: []\n---\na: 1":                   `2:1: found a second document, expected one plan a file`,
		"a: [":                                   `1:1: found no YAML: did not find expected node content, expected YAML`,
		"rules:\n\t- a":                          `2:1: found no YAML: found character that cannot start any token, expected YAML`,
		head + "x":                               `2:5: found "x", expected a rule`,
		head + "name: a":                         "2:5: found a rule without `when`, expected `when`",
		head + "when: {signal: S}\n    do: drop": "2:5: found a rule without `name`, expected `name`",
		head + "{name: a, when: {signal: S}}":    "2:5: found a rule without `do`, expected `do`",
		head + "{name: 7, when: {signal: S}, do: drop}":                                  `2:12: found 7, expected a name`,
		head + "{name: a, when: S, do: drop}":                                            `2:21: found "S", expected when`,
		head + "{name: a, when: {signal: S}, do: explode}":                               `2:38: found "explode", expected one of delay, hold, drop, duplicate, reorder, fail, pause, kill, restart, partition, abort, leave`,
		head + "{name: a, when: {signal: S, colour: red}, do: drop}":                     `2:33: found field "colour", expected a field of when: access, after, count, event, every, from, handoff, http, mode, n, nth, pool, probability, req, sig, signal, target, to, why, worker`,
		head + "{name: a, when: {}, do: drop}":                                           `2:21: found a condition about 0 things, expected exactly one of signal, access, http, event`,
		head + "{name: a, when: {signal: S, access: w}, do: drop}":                       `2:21: found a condition about 2 things, expected exactly one of signal, access, http, event`,
		head + "{name: a, when: {access: x}, do: drop}":                                  `2:30: found "x", expected r, w or rw; or r or w with .post, .done, .word or .renew`,
		head + "{name: a, when: {access: r.never}, do: drop}":                            `2:30: found "r.never", expected r, w or rw; or r or w with .post, .done, .word or .renew`,
		head + "{name: a, when: {event: birth}, do: kill, worker: w}":                    `2:29: found "birth", expected a kind of event of TRACE.md`,
		head + "{name: a, when: {event: begin}, do: drop}":                               `2:21: found drop when event, expected drop when signal or access or http`,
		head + "{name: a, when: {signal: S}, do: fail}":                                  `2:21: found fail when signal, expected fail when access or http`,
		head + "{name: a, when: {signal: S, nth: 0}, do: drop}":                          `2:38: found 0, expected an integer from 1 to 1099511627776`,
		head + "{name: a, when: {signal: S, nth: one}, do: drop}":                        `2:38: found "one", expected an integer from 1 to 1099511627776`,
		head + "{name: a, when: {signal: S, probability: 1.5}, do: drop}":                `2:46: found 1.5, expected a number above 0 and at most 1`,
		head + "{name: a, when: {signal: S, probability: .nan}, do: drop}":               `2:46: found .nan, expected a number above 0 and at most 1`,
		head + "{name: a, when: {signal: S, mode: w}, do: drop}":                         "2:39: found `mode` with signal, expected `mode` with event alone; an access says it in its own word",
		head + "{name: a, when: {signal: S, from: x, worker: x}, do: drop}":              "2:50: found `from` and `worker`, expected one of them",
		head + "{name: a, when: {signal: S, to: x, target: x}, do: drop}":                "2:48: found `to` and `target`, expected one of them",
		head + "{name: a, when: {signal: S, after: {event: e}}, do: drop}":               `2:48: found "e", expected a kind of event of TRACE.md`,
		head + "{name: a, when: {signal: S, after: {signal: T, same: block}}, do: drop}": `2:58: found "block", expected one of handoff, req`,
	})
}

func TestPlanErrorsOfOneFault(t *testing.T) {
	const head = "rules:\n  - "
	refuses(t, map[string]string{
		head + "{name: a, when: {signal: S}, do: delay}":                                            "2:5: found delay without a time, expected `for` or `jitter`",
		head + "{name: a, when: {signal: S}, do: delay, for: 5}":                                    `2:50: found 5, expected a time such as 150ms, at most 10m0s`,
		head + "{name: a, when: {signal: S}, do: delay, for: -5s}":                                  `2:50: found "-5s", expected a time such as 150ms, at most 10m0s`,
		head + "{name: a, when: {signal: S}, do: delay, for: 2h}":                                   `2:50: found "2h", expected a time such as 150ms, at most 10m0s`,
		head + "{name: a, when: {signal: S}, do: delay, jitter: 5ms}":                               `2:53: found "5ms", expected two times such as 10ms..50ms, the first not above the second`,
		head + "{name: a, when: {signal: S}, do: delay, jitter: 5ms..1ms}":                          `2:53: found "5ms..1ms", expected two times such as 10ms..50ms, the first not above the second`,
		head + "{name: a, when: {signal: S}, do: delay, for: 1s, jitter: 0s..1s}":                   "2:62: found `for` and `jitter`, expected one of them",
		head + "{name: a, when: {signal: S}, do: delay, for: 1s, until: {signal: T}}":               "2:61: found `until` in a rule that does delay, expected fields of delay: name, when, do, for, jitter, ordered",
		head + "{name: a, when: {signal: S}, do: hold}":                                             "2:5: found hold without `until`, expected `until`",
		head + "{name: a, when: {access: w}, do: hold, until: {event: alloc}, ordered: true}":       "2:76: found `ordered` when access, expected `ordered` when signal",
		head + "{name: a, when: {signal: S}, do: hold, until: {event: alloc}, ordered: yes}":        `2:76: found "yes", expected true or false`,
		head + "{name: a, when: {signal: S}, do: hold, until: {event: alloc, same: x}}":             `2:72: found "x", expected one of handoff, req, block`,
		head + "{name: a, when: {signal: S}, do: hold, until: {event: alloc}, limit: 0s}":           `2:74: found "0s", expected a time such as 150ms, at most 10m0s`,
		head + "{name: a, when: {signal: S}, do: duplicate, copies: 17}":                            `2:57: found 17, expected an integer from 1 to 16`,
		head + "{name: a, when: {signal: S}, do: duplicate, limit: 1s}":                             "2:56: found `limit` without `until`, expected both",
		head + "{name: a, when: {access: w}, do: duplicate, until: {signal: S}}":                    "2:56: found `until` for the copy when access, expected `for`: only a signal's copy can be held",
		head + "{name: a, when: {signal: S}, do: duplicate, for: 1s, until: {signal: S}}":           "2:65: found `until` and a time, expected one of them",
		head + "{name: a, when: {signal: S}, do: pause, worker: w}":                                 "2:5: found pause without `for`, expected `for`",
		head + "{name: a, when: {signal: S}, do: kill}":                                             "2:5: found kill without `worker`, expected `worker`",
		head + "{name: a, when: {signal: S}, do: partition, for: 1s, between: [x]}":                 `2:67: found a list, expected a list of two different workers`,
		head + "{name: a, when: {signal: S}, do: partition, for: 1s, between: [x, x]}":              `2:67: found "x" twice, expected a list of two different workers`,
		head + "{name: a, when: {signal: S}, do: partition, for: 1s, between: [x, 7]}":              `2:71: found 7, expected a worker`,
		head + "{name: a, when: &w {signal: S}, do: drop}\n  - {name: b, when: *w, do: drop}":       `3:21: found an alias, expected when`,
		head + "{name: a, when: {signal: S}, do: drop}\n  - {name: a, when: {signal: T}, do: drop}": `3:5: found a second rule "a", expected a name of its own; the first is at line 2`,
		head + "{name: " + strings.Repeat("x", 65) + ", when: {signal: S}, do: drop}":               `2:12: found "` + strings.Repeat("x", 64) + `…", expected a name of at most 64 bytes`,
		strings.Repeat("#", maxPlanBytes+1):                                                         `1:1: found 1048577 bytes, expected at most 1048576`,
		"rules:" + strings.Repeat("\n  - {}", maxRules+1):                                           `258:5: found 257 rules, expected at most 256`,
	})
}

// refuses checks the error of each plan.
func refuses(t *testing.T, plans map[string]string) {
	t.Helper()
	for text, want := range plans {
		_, err := ParsePlan("p.yaml", []byte(text))
		require.Error(t, err, "%.200s", text)
		var pe *PlanError
		require.ErrorAs(t, err, &pe)
		assert.Equal(t, "p.yaml:"+want, err.Error())
	}
}

func TestRegistry(t *testing.T) {
	names := map[string]bool{}
	for _, f := range Registry() {
		require.NotEmpty(t, f.Summary)
		require.NotEmpty(t, f.Where)
		require.NotEmpty(t, f.Legal)
		require.False(t, names[f.Name])
		names[f.Name] = true
	}
	require.Len(t, names, 12)
}

func TestLegal(t *testing.T) {
	for text, want := range map[string]bool{
		"when: {signal: S}, do: delay, for: 1s":                              false,
		"when: {signal: S}, do: delay, for: 1s, ordered: true":               true,
		"when: {access: w}, do: hold, until: {signal: S}":                    true,
		"when: {signal: S}, do: drop":                                        false,
		"when: {http: x}, do: drop":                                          true,
		"when: {signal: S}, do: duplicate":                                   false,
		"when: {signal: S}, do: reorder":                                     false,
		"when: {signal: S}, do: kill, worker: w":                             true,
		"when: {signal: S}, do: abort":                                       true,
		"when: {signal: S}, do: partition, between: [prefill, x], for: 10ms": true,
	} {
		p := plan(t, "rules: [{name: a, "+text+"}]")
		require.Equal(t, want, p.Rules[0].Legal(), text)
	}
}

func FuzzParsePlan(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(f, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte("rules: [{name: a, when: {signal: S, after: {event: cancel, same: req}}, do: delay, jitter: 1ms..2ms}]"))
	f.Add([]byte("rules: [{name: a, when: {http: x}, do: partition, between: [a, b], for: 1s}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePlan("f", b)
		if err != nil {
			var pe *PlanError
			require.True(t, errors.As(err, &pe), "%v", err)
			require.Positive(t, pe.Line)
			require.Positive(t, pe.Column)
			require.NotEmpty(t, pe.Found)
			require.NotEmpty(t, pe.Expected)
			return
		}
		e, err := NewEngine(p, 1, EngineOptions{Processes: newProcs()})
		require.NoError(t, err)
		for i := range 3 {
			e.Decide(Point{Kind: KindSignal, Name: fmt.Sprint("S", i)})
		}
		e.Close()
	})
}

func TestPlanNamesWorkersOfTheStack(t *testing.T) {
	known := []string{"client", "router", "harness", "prefill-0", "decode-0", "decode-1"}
	for name, good := range map[string]bool{
		"prefill": true, "decode": true, "decode-1": true, "decode-1.2": true, "prefill-0#3": true, "prefill-0.r1": true, "router": true, "client-0": true,
		"decod": false, "decode-2": false, "prefill-10": false, "Decode": false,
	} {
		for _, text := range []string{
			"  - {name: r, when: {event: accept}, do: pause, worker: %s, for: 1s}\n",
			"  - {name: r, when: {access: w, from: %s}, do: drop}\n",
			"  - {name: r, when: {access: w}, do: hold, until: {event: alloc, worker: %s}}\n",
			"  - {name: r, when: {event: accept}, do: partition, between: [harness, %s], for: 1s}\n",
		} {
			plan, err := ParsePlan("a.yaml", []byte("rules:\n"+fmt.Sprintf(text, name)))
			require.NoError(t, err)
			err = plan.Known(known)
			if good {
				require.NoError(t, err, name)
				continue
			}
			var bad *PlanError
			require.ErrorAs(t, err, &bad, name)
			require.Equal(t, "a.yaml:2:1: found the worker \""+name+"\" in the rule r, expected one of prefill, decode, client, router, harness, prefill-0, decode-0, decode-1", err.Error())
		}
	}
}
