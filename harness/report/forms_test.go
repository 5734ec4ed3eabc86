package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"github.com/stretchr/testify/require"
	"github.com/xeipuuv/gojsonschema"
	"pgregory.net/rapid"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

func unproven() *harness.RunResult {
	r := passed()
	r.Verdict, r.Scenarios[1].Verdict = spec.Unproven, spec.Unproven
	r.Scenarios[1].Rules = with(r.Scenarios[1].Rules, spec.SIG2, spec.Unproven, check.Finding{
		Harm: spec.HarmUnprovenOrder, Events: []spec.EventID{{Src: "decode-0", Seq: 90}}, Text: "Nothing orders the end of a-13 before the free of block 8.",
	})
	r.Rules = sum(r.Scenarios)
	return r
}

func errored() *harness.RunResult {
	r := passed()
	r.Verdict, r.Scenarios[1].Verdict = spec.Error, spec.Error
	r.Scenarios[1].Why, r.Scenarios[1].Rules = "decode-0 ended with status 2 before it was ready", nil
	return r
}

// trees are a result of each verdict.
func trees() map[string]*harness.RunResult {
	return map[string]*harness.RunResult{
		"pass": passed(), "fail": failed(), "unproven": unproven(), "inconclusive": inconclusive(), "error": errored(), "engine": engineRun(),
		"nothing": {Verdict: spec.Inconclusive, Interrupted: true}, "broken": Broken("no loopback"),
	}
}

var forms = map[string]func(io.Writer, *harness.RunResult, Options) error{
	"junit": JUnit, "sarif": SARIF, "markdown": Markdown, "github": Annotations, "json": JSON, "text": Text,
	"baseline": func(w io.Writer, r *harness.RunResult, _ Options) error {
		return WriteBaseline(w, r, day("2026-12-31").midnight)
	},
}

func render(t require.TestingT, form string, r *harness.RunResult, o Options) []byte {
	var b bytes.Buffer
	require.NoError(t, forms[form](&b, r, o))
	return b.Bytes()
}

func day(s string) (d Day) {
	if err := d.UnmarshalText([]byte(s)); err != nil {
		panic(err)
	}
	return d
}

func TestForms(t *testing.T) {
	for _, form := range []string{"junit", "markdown", "github"} {
		for _, tree := range []string{"fail", "error"} {
			golden(t, tree+"."+form, render(t, form, trees()[tree], Options{}))
		}
	}
	for name, form := range forms {
		require.Error(t, form(brokenWriter{}, failed(), Options{}), name)
	}
}

// cases reads JUnit as its readers do: the elements and counts of the common schema.
func cases(t require.TestingT, b []byte) map[string]string {
	var got junitSuites
	require.NoError(t, xml.Unmarshal(b, &got))
	what := map[string]string{}
	total := [3]int{}
	for _, s := range got.Suites {
		n := [4]int{len(s.Cases)}
		for _, c := range s.Cases {
			key, is := s.Name+": "+c.Name, "ok"
			require.NotContains(t, what, key)
			require.NotEmpty(t, c.Classname)
			switch {
			case c.Error != nil:
				is, n[2] = "error "+c.Error.Message, n[2]+1
			case c.Failure != nil:
				is, n[1] = c.Failure.Type, n[1]+1
			case c.Skipped != nil:
				is, n[3] = "skipped "+c.Skipped.Message, n[3]+1
			}
			what[key] = is
		}
		require.Equal(t, [4]int{s.Tests, s.Failures, s.Errors, s.Skipped}, n)
		total[0], total[1], total[2] = total[0]+n[0], total[1]+n[1], total[2]+n[2]
	}
	require.Equal(t, [3]int{got.Tests, got.Failures, got.Errors}, total)
	return what
}

func TestJUnit(t *testing.T) {
	got := cases(t, render(t, "junit", passed(), Options{}))
	require.Len(t, got, 2*(len(spec.Rules())+1), "a case for each rule and scenario, and one for the scenario")
	for name, is := range got {
		want := "ok"
		if strings.Contains(name, "REQ-3") || strings.Contains(name, "SIG-3") || strings.Contains(name, "SIG-4") {
			want = "skipped unexercised"
		}
		require.Equal(t, want, is, name)
	}
	warn := Options{Warn: true}
	for _, c := range []struct {
		tree, name string
		o          Options
		want       string
	}{
		{"fail", "baseline push seed 1: BLK-2 quiescent reclaim", Options{}, "fail"},
		{"fail", "baseline push seed 1: BLK-2 quiescent reclaim", warn, "fail"},
		{"unproven", "ack-lost push seed 2: SIG-2 sufficient evidence", Options{}, "unproven"},
		{"unproven", "ack-lost push seed 2: SIG-2 sufficient evidence", warn, "skipped unproven: 1 finding, first: Nothing orders the end of a-13 before the free of block 8."},
		{"engine", "baseline mooncake seed 1: REQ-1 terminal rejection", Options{}, "inconclusive"},
		{"engine", "baseline mooncake seed 1: REQ-1 terminal rejection", warn, "skipped inconclusive"},
		{"inconclusive", "ack-lost push seed 2: scenario", Options{}, "inconclusive"},
		{"inconclusive", "ack-lost push seed 2: scenario", warn, `skipped inconclusive: never reached "an acknowledgement was lost"; fault rule "lose" (drop) never fired`},
		{"error", "ack-lost push seed 2: scenario", warn, "error decode-0 ended with status 2 before it was ready"},
		{"broken", "run seed 0: scenario", Options{}, "error no loopback"},
	} {
		require.Equal(t, c.want, cases(t, render(t, "junit", trees()[c.tree], c.o))[c.name], c.name)
	}
}

// isSARIF reads a log with another's reader, and holds it to the published schema.
// What that reader does not know is no SARIF.
func isSARIF(b []byte) error {
	var ours, theirs any
	if err := json.Unmarshal(b, &ours); err != nil {
		return err
	}
	log, err := sarif.FromBytes(b)
	if err == nil {
		err = log.Validate()
	}
	if err != nil {
		return err
	}
	again, err := json.Marshal(log)
	if err == nil {
		err = json.Unmarshal(again, &theirs)
	}
	if err == nil {
		err = contained("", ours, theirs)
	}
	return err
}

// contained finds what a has and b has not.
func contained(at string, a, b any) error {
	switch a := a.(type) {
	case map[string]any:
		m, _ := b.(map[string]any)
		for k, v := range a {
			if err := contained(at+"/"+k, v, m[k]); err != nil {
				return err
			}
		}
	case []any:
		l, _ := b.([]any)
		if len(l) != len(a) {
			return fmt.Errorf("%s: %d of %d", at, len(l), len(a))
		}
		for i := range a {
			if err := contained(fmt.Sprintf("%s/%d", at, i), a[i], l[i]); err != nil {
				return err
			}
		}
	default:
		if a != b {
			return fmt.Errorf("%s: %v is %v", at, a, b)
		}
	}
	return nil
}

func TestSARIF(t *testing.T) {
	for name, r := range trees() {
		b := render(t, "sarif", r, Options{})
		require.NoError(t, isSARIF(b), name)
	}
	for from, to := range map[string]string{`"error"`: `"bad"`, `"ruleIndex"`: `"rule_index"`, `"external"`: `"internal"`, `"2.1.0"`: `"2.2"`} {
		base := &Baseline{Findings: []Entry{{Fingerprint: distinctOf(failed())[0].id, Until: day("2027-01-01")}}}
		b := render(t, "sarif", failed(), Options{Baseline: base.Apply(failed(), day("2026-01-01").midnight)})
		require.NoError(t, isSARIF(b))
		require.Contains(t, string(b), from)
		require.Error(t, isSARIF(bytes.ReplaceAll(b, []byte(from), []byte(to))), from)
	}

	levels := func(o Options) (all []string) {
		var log sarifLog
		require.NoError(t, json.Unmarshal(render(t, "sarif", failed(), o), &log))
		for _, res := range log.Runs[0].Results {
			require.Equal(t, res.RuleID, log.Runs[0].Tool.Driver.Rules[res.RuleIndex].ID)
			require.Regexp(t, `^[0-9a-f]{16}$`, res.Fingerprints["conform/v1"])
			all = append(all, res.RuleID+" "+res.Level)
		}
		return all
	}
	require.Contains(t, levels(Options{}), "SIG-2 error")
	require.Contains(t, levels(Options{Warn: true}), "SIG-2 warning")
	require.Contains(t, levels(Options{Warn: true}), "BLK-2 error")
	var log sarifLog
	require.NoError(t, json.Unmarshal(render(t, "sarif", errored(), Options{}), &log))
	require.False(t, log.Runs[0].Invocations[0].ExecutionSuccessful)
	require.Contains(t, log.Runs[0].Invocations[0].Notifications[0].Message.Text, "status 2")
	require.Equal(t, "file:///a%20b/%25", fileURI("/a b/%"))
	require.Equal(t, "./a:b", fileURI("a:b"), "a colon in the first segment is no scheme")
}

func TestAnnotations(t *testing.T) {
	require.Empty(t, render(t, "github", passed(), Options{}))
	got := string(render(t, "github", unproven(), Options{}))
	require.True(t, strings.HasPrefix(got, "::error title=SIG-2 sufficient evidence%3A unproven in ack-lost push::Nothing orders"), got)
	require.True(t, strings.HasPrefix(string(render(t, "github", unproven(), Options{Warn: true})), "::warning "))
	require.True(t, strings.HasPrefix(string(render(t, "github", errored(), Options{Warn: true})), "::error title=not shown in ack-lost push seed 2::decode-0 ended"))

	many := passed()
	for i := range 15 {
		f := check.Finding{Text: strings.Repeat("x", i+1)}
		many.Scenarios[0].Rules = with(many.Scenarios[0].Rules, spec.BLK2, spec.Fail, f)
	}
	lines := strings.Split(strings.TrimSpace(string(render(t, "github", many, Options{}))), "\n")
	require.Len(t, lines, 10, "GitHub shows ten of a step")
	require.Equal(t, "::error title=conform::and 6 more: see the summary", lines[9])
}

// hostile draws text as a trace may have it.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"]]>", "::error ::x", "\n::add-mask::x", "a\r\n::stop-commands::t", "##[error]x", "<script>alert(1)</script>", "```\n# x", "`", "|", "a|b\n|c|",
		"\x00\x1b[31m", "\xff\xfe", "\u202e", "&amp;", "%0A", "@octocat", "[x](http://h)", "--> <!--", strings.Repeat("`", 9), strings.Repeat("long ", 2000), "",
	}))
}

// However names and texts read, each form stays what it is.
func TestHostileForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) string { return strings.Join(rapid.SliceOfN(hostile(), 1, 3).Draw(t, what), " ") }
		r := passed()
		sc := &r.Scenarios[0]
		r.Adapter, r.Engine, sc.ID, sc.Mode, sc.Trace, sc.Why = draw("adapter"), draw("engine"), draw("id"), draw("mode"), draw("trace"), draw("why")
		r.Signals = []check.SignalResult{{Signal: draw("signal"), Claims: spec.Predicate(draw("claims")), Seen: 1}}
		sc.Rules = with(sc.Rules, spec.BLK2, spec.Fail, check.Finding{
			Text: draw("text"), Req: draw("req"), Handoff: draw("handoff"), Events: []spec.EventID{{Src: draw("src"), Seq: 1}},
			Block: &spec.BlockID{Worker: draw("worker"), Pool: draw("pool")},
		})
		o := Options{}
		for form := range forms {
			b := render(t, form, r, o)
			require.True(t, utf8.Valid(b), form)
			if form != "json" && form != "sarif" { // there the encoder's business
				require.False(t, bytes.ContainsFunc(b, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }), "%s: %q", form, b)
			}
		}
		got := cases(t, render(t, "junit", r, o))
		require.Len(t, got, 2*(len(spec.Rules())+1))
		require.NoError(t, isSARIF(render(t, "sarif", r, o)))
		for line := range strings.Lines(string(render(t, "github", r, o))) {
			require.Regexp(t, regexp.MustCompile(`^::(error|warning|notice) title=[^:,]*::`), line)
		}
		for _, form := range []string{"text", "markdown"} {
			for line := range strings.Lines(string(render(t, form, r, o))) {
				require.False(t, strings.HasPrefix(strings.TrimSpace(line), "::"), line)
				require.NotContains(t, line, "##[")
			}
		}
		require.Empty(t, outsideCode(string(render(t, "markdown", r, o)), "<@["), "only code holds what may be markup")
		_, err := ReadBaseline("b", bytes.NewReader(render(t, "baseline", r, o)))
		require.NoError(t, err)
	})
}

// outsideCode gives the lines of Markdown that hold one of chars outside of code
// spans and blocks.
func outsideCode(md, chars string) (lines []string) {
	fence := ""
	for line := range strings.Lines(md) {
		line = strings.TrimSuffix(line, "\n")
		run := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		switch {
		case fence != "":
			if run == line && len(run) >= len(fence) {
				fence = ""
			}
			continue
		case len(run) >= 3 && strings.HasSuffix(line, "text"):
			fence = run
			continue
		}
		rest, outside := line, ""
		for {
			at := strings.IndexByte(rest, '`')
			if at < 0 {
				outside += rest
				break
			}
			outside += rest[:at]
			rest = rest[at:]
			n := len(rest) - len(strings.TrimLeft(rest, "`"))
			rest = rest[n:]
			end := spanEnd(rest, n)
			if end < 0 {
				outside += rest
				break
			}
			rest = rest[end+n:]
		}
		if strings.ContainsAny(outside, chars) {
			lines = append(lines, line)
		}
	}
	return lines
}

// spanEnd finds a run of exactly n backticks.
func spanEnd(s string, n int) int {
	for i := 0; i < len(s); {
		if s[i] != '`' {
			i++
			continue
		}
		run := len(s[i:]) - len(strings.TrimLeft(s[i:], "`"))
		if run == n {
			return i
		}
		i += run
	}
	return -1
}

// strict is the published schema without room for fields that it doesn't name.
func strict(t *testing.T) *gojsonschema.Schema {
	text, err := os.ReadFile("../../docs/result.schema.json")
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(text, &doc))
	var close func(any)
	close = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if _, ok := v["properties"]; ok && v["type"] == "object" {
				v["additionalProperties"] = false
			}
			for _, x := range v {
				close(x)
			}
		case []any:
			for _, x := range v {
				close(x)
			}
		}
	}
	close(doc)
	s, err := gojsonschema.NewSchema(gojsonschema.NewGoLoader(doc))
	require.NoError(t, err)
	return s
}

func TestSchema(t *testing.T) {
	s := strict(t)
	holds := func(b []byte) error {
		res, err := s.Validate(gojsonschema.NewBytesLoader(b))
		if err == nil && !res.Valid() {
			err = fmt.Errorf("%v", res.Errors())
		}
		return err
	}
	base := &Baseline{Findings: []Entry{{Fingerprint: "x", Until: day("2027-01-01"), Why: "y"}}}
	for name, r := range trees() {
		require.NoError(t, holds(render(t, "json", r, Options{})), name)
		require.NoError(t, holds(render(t, "json", r, Options{Baseline: base.Apply(r, day("2026-01-01").midnight)})), name)
	}
	var b bytes.Buffer
	res := &check.Result{Verdict: spec.Fail, Rules: failed().Scenarios[0].Rules, Stats: stats(), Clocks: []check.ClockResult{{Clock: "a", Minus: "b"}}}
	check.Sign(res.Rules, "x")
	require.NoError(t, TraceJSON(&b, res, Options{}))
	require.NoError(t, holds(b.Bytes()))
	b.Reset()
	require.NoError(t, TracesJSON(&b, []Judged{{Trace: "a", Result: res}, {Trace: "b", Failure: &Failure{}, Why: "w"}}, Options{}))
	require.NoError(t, holds(b.Bytes()))
	b.Reset()
	require.NoError(t, FailureJSON(&b, Failure{}))
	require.NoError(t, holds(b.Bytes()))

	text := render(t, "json", failed(), Options{})
	for from, to := range map[string]string{
		`"verdict": "fail"`: `"verdict": "good"`, `"findings"`: `"finding"`, `"BLK-2"`: `"BLK-9"`, `"seq": 41`: `"seq": "41"`, `"events"`: `"Events"`,
	} {
		require.Contains(t, string(text), from)
		require.Error(t, holds(bytes.ReplaceAll(text, []byte(from), []byte(to))), from)
	}
}
