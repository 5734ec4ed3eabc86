package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"conform/harness"
	"conform/spec"
)

// maxTold is how many findings the Markdown tells; it has to fit a step summary of
// GitHub, which is at most 1 MiB.
const maxTold = 30

// Markdown writes a run as GitHub shows it: the verdict and its scope, a matrix of
// scenarios and rules, each distinct finding, and what signals prove. Text that
// comes from traces stands in code alone, where it is no markup, no link and calls
// nobody by name.
func Markdown(w io.Writer, r *harness.RunResult, o Options) error {
	p := &page{}
	verdict := r.Verdict
	if r.Interrupted {
		verdict = max(verdict, spec.Inconclusive)
	}
	p.line(fmt.Sprintf("## Conform: %s", strings.ToUpper(verdict.String())))
	p.line("")
	p.markdownScope(r)
	if o.Baseline != nil {
		p.line("")
		p.line(o.Baseline.sentence())
	}
	p.markdownMatrix(r)
	p.markdownFindings(r, o)
	p.markdownMissed(r)
	p.markdownSignals(r)
	return p.flush(w)
}

func (p *page) markdownScope(r *harness.RunResult) {
	var s []string
	for _, part := range []string{r.Adapter, r.Engine, r.Device, r.Defect} {
		if part != "" {
			s = append(s, code(part))
		}
	}
	line := strings.Join(s, " ")
	if line != "" {
		line += ": "
	}
	findings := 0
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Rules {
			findings += found(&r.Scenarios[i].Rules[j])
		}
	}
	line += fmt.Sprintf("%s, %s, %s distinct", count(len(r.Scenarios), "run"), count(findings, "finding"), number(len(distinctOf(r))))
	if r.Interrupted {
		line += ", interrupted"
	}
	p.line(line + ".")
}

// marks are one letter for each verdict in the matrix.
var marks = map[spec.Verdict]string{
	spec.NotJudged: "", spec.Unexercised: "", spec.Pass: "✓", spec.Inconclusive: "?", spec.Unproven: "unproven", spec.Fail: "**FAIL**", spec.Error: "error",
}

// markdownMatrix has a row for each run and a column for each rule that judged
// something in one of them.
func (p *page) markdownMatrix(r *harness.RunResult) {
	if len(r.Scenarios) == 0 {
		return
	}
	var rules []spec.RuleID
	for _, rule := range spec.Rules() {
		for i := range r.Scenarios {
			if ruleVerdict(&r.Scenarios[i], rule.ID) > spec.Unexercised {
				rules = append(rules, rule.ID)
				break
			}
		}
	}
	head, under := "| run | verdict |", "|---|---|"
	for _, id := range rules {
		head, under = head+" "+string(id)+" |", under+":-:|"
	}
	p.line("")
	p.line(head)
	p.line(under)
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		row := fmt.Sprintf("| %s | %s |", cellCode(named(sc)), sc.Verdict)
		for _, id := range rules {
			row += " " + marks[ruleVerdict(sc, id)] + " |"
		}
		p.line(row)
	}
	p.line("")
	p.line("✓ pass, ? inconclusive, empty: nothing to judge.")
}

// ruleVerdict is a rule's verdict in a scenario, not judged where it is not there.
func ruleVerdict(sc *harness.ScenarioResult, id spec.RuleID) spec.Verdict {
	for i := range sc.Rules {
		if sc.Rules[i].ID == id {
			return sc.Rules[i].Verdict
		}
	}
	return spec.NotJudged
}

func (p *page) markdownFindings(r *harness.RunResult, o Options) {
	all := distinctOf(r)
	for i := range all[:min(len(all), maxTold)] {
		d := &all[i]
		if i == 0 {
			p.line("")
			p.line("### Findings")
		}
		head := fmt.Sprintf("**%s %s: %s**", d.finding.Rule, d.rule.Name, d.finding.Verdict)
		if d.finding.Harm != spec.HarmNone {
			head += ", " + code(string(d.finding.Harm))
		}
		head += fmt.Sprintf(", in %s, %s, %s, fingerprint `%s`", code(where(d.scenario)), seedRange(d.seeds), times(d.count), d.id)
		if e, known := o.Baseline.entry(d.id); known {
			head += ", known until " + e.Until.String()
		}
		p.line("")
		p.line(head)
		p.line("")
		p.line(d.rule.Must)
		p.line("")
		p.fenced(d.finding.Text + shownBy(d.finding))
	}
	if more := len(all) - maxTold; more > 0 {
		p.line("")
		p.line(fmt.Sprintf("And %s more.", count(more, "distinct finding")))
	}
}

func (p *page) markdownMissed(r *harness.RunResult) {
	var lines []string
	for i := range r.Scenarios {
		if why := missed(&r.Scenarios[i]); why != "" {
			lines = append(lines, named(&r.Scenarios[i])+": "+why)
		}
	}
	if len(lines) == 0 {
		return
	}
	p.line("")
	p.line("### What the run did not show")
	p.line("")
	for _, l := range limit(lines, maxTold) {
		p.line("- " + code(l))
	}
}

func (p *page) markdownSignals(r *harness.RunResult) {
	rows := r.Signals
	if len(rows) == 0 {
		return
	}
	p.line("")
	p.line("### What signals prove")
	p.line("")
	p.line("| signal | declared | inferred | seen |")
	p.line("|---|---|---|--:|")
	for _, s := range rows[:min(len(rows), maxTold)] {
		p.line(fmt.Sprintf("| %s | %s | %s | %s |", cellCode(s.Signal), cellCode(orDash(s.Claims)), cellCode(orDash(s.Inferred)), number(s.Seen)))
	}
	if more := len(rows) - maxTold; more > 0 {
		p.line("")
		p.line(fmt.Sprintf("And %s more.", count(more, "kind")))
	}
}

// times writes "once", "7 times".
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return number(n) + " times"
}

// code is text as an inline code span.
func code(s string) string {
	s = short(Clean(s))
	fence := strings.Repeat("`", longestRun(s, '`')+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") || s == "" {
		s = " " + s + " "
	}
	return fence + s + fence
}

// cellCode is code within a table, where | ends a cell even in code.
func cellCode(s string) string { return strings.ReplaceAll(code(s), "|", `\|`) }

// fenced adds text as a block of code, broken at spaces.
func (p *page) fenced(s string) {
	block := &page{}
	block.wrapped("", s)
	text := block.b.String()
	fence := strings.Repeat("`", max(3, longestRun(text, '`')+1))
	p.line(fence + "text")
	p.b.WriteString(text)
	p.line(fence)
}

// maxInline bounds what one code span or annotation says, in bytes.
const maxInline = 2000

// short cuts what is too long for one line.
func short(s string) string {
	if len(s) <= maxInline {
		return s
	}
	n := maxInline
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func longestRun(s string, of rune) int {
	longest, n := 0, 0
	for _, r := range s {
		if r != of {
			n = 0
			continue
		}
		n++
		longest = max(longest, n)
	}
	return longest
}
