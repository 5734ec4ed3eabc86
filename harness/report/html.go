package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// The page's own files: the template, the style and the script.
//
//go:embed web/page.html
var pageText string

//go:embed web/page.css
var pageStyle string

//go:embed web/page.js
var pageScript string

// maxPage bounds the page, in bytes.
const maxPage = 950_000

// room is how much a page holds: findings that are drawn, others that are listed, rows
// of a table, signs of a text.
type room struct{ drawn, listed, rows, said int }

// rooms are what is tried until a page is small enough; the last one always is.
func rooms() []room {
	return []room{
		{maxStories, 100, 120, 600}, {maxStories / 2, 60, 120, 600}, {maxStories / 4, 30, 80, 300}, {3, 15, 40, 200}, {1, 10, 20, 100}, {0, 5, 10, 60},
	}
}

// htmlPage is what the template writes.
type htmlPage struct {
	room room

	Policy, Word, Class, Headline string
	Style, Script                 template.HTML
	Scope                         []scopeLine
	Baseline                      string
	OpenClaims                    bool
	NotClaimed                    []string
	Sections                      []sectionLink

	FindingsLead, NoFindings, Unlisted string
	Verdicts                           []verdictChip
	FoundRules                         []spec.RuleID
	FoundWhere                         []string
	Findings                           []htmlFinding

	Legend     []matrixCell
	Rules      []htmlRule
	Matrix     []matrixRow
	MatrixNote string
	Tables     []htmlTable
	Footer     string
}

type scopeLine struct{ Name, Value string }

type sectionLink struct{ ID, Title, Count string }

type verdictChip struct {
	Class, Glyph, Word string
	Count              int
}

// htmlFinding is one distinct finding; its story and drawing are empty where its
// trace was not read.
type htmlFinding struct {
	Anchor, ID, Class, Verdict, Name, Where, Seeds, Times, Must, Why, Known string
	Rule                                                                    spec.RuleID
	Harm                                                                    spec.Harm
	Found, Missing, Enough                                                  []piece
	Owners                                                                  []owner
	Drawing                                                                 *drawing
	Commands                                                                []storyCommand
}

type owner struct {
	When string
	What []piece
}

// piece is a part of a text, with the id of the mark of the event that it names.
type piece struct{ Text, Ref string }

// HTML writes a run as one page that needs no other file and no network: the verdict
// and its scope, each distinct finding with its story and a drawing, a matrix of
// scenarios and rules, and what the run says of signals, capacity, faults and the
// specification. What comes from traces is text there and never markup. The page has
// at most 950,000 bytes: where more was found, it draws less and says so. tale may be
// nil, then nothing is drawn. The same run and tale give the same bytes.
func HTML(w io.Writer, r *harness.RunResult, tale *Tale, o Options) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("the page's template: %w", err)
	}
	if tale == nil {
		tale = &Tale{}
	}
	var b bytes.Buffer
	for _, room := range rooms() {
		b.Reset()
		if err := t.Execute(&b, htmlOf(r, tale, o, room)); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
		if b.Len() <= maxPage {
			break
		}
	}
	_, err = w.Write(b.Bytes())
	return err
}

// htmlOf fills the page.
func htmlOf(r *harness.RunResult, tale *Tale, o Options, room room) *htmlPage {
	verdict := r.Verdict
	if r.Interrupted {
		verdict = max(verdict, spec.Inconclusive)
	}
	style, script := "<style>"+pageStyle+"</style>", "<script>"+pageScript+"</script>"
	p := &htmlPage{
		room: room,
		Word: verdict.String(), Class: verdictClass(verdict), Headline: runHeadline(r),
		Style: template.HTML(style), Script: template.HTML(script), // #nosec: both are our own files
		Policy: fmt.Sprintf("default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'", digest(pageStyle), digest(pageScript)),
		Footer: "Written by conform " + harness.Version + ". It says what was seen in these runs, and nothing beyond their scope.",
	}
	for _, f := range scopeOf(r) {
		p.Scope = append(p.Scope, scopeLine{f.name, fit(f.value, room.said)})
	}
	if r.Packages != "" {
		p.Scope = append(p.Scope, scopeLine{"packages", fit(r.Packages, room.said)})
	}
	if o.Baseline != nil {
		p.Baseline = o.Baseline.sentence()
	}
	p.NotClaimed = notClaimed(r, room.said)
	p.OpenClaims = verdict == spec.Pass
	p.findings(r, tale, o)
	p.rules(r)
	p.matrix(r)
	p.tables(r, tale)
	p.Sections = []sectionLink{
		{"findings", "Findings", countOr(len(p.Findings))},
		{"matrix", "Scenarios and rules", countOr(len(r.Scenarios))},
		{"rules", "Rules", ""},
	}
	for _, t := range p.Tables {
		p.Sections = append(p.Sections, sectionLink{t.ID, t.Short, ""})
	}
	return p
}

func countOr(n int) string {
	if n == 0 {
		return ""
	}
	return number(n)
}

// digest names an inline script or style in a content security policy.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// verdictClass is the style of a verdict.
func verdictClass(v spec.Verdict) string {
	switch v {
	case spec.Pass, spec.Fail, spec.Error, spec.Unproven, spec.Inconclusive:
		return v.String()
	}
	return "none"
}

// notClaimed says what a reader may not conclude from the verdict.
func notClaimed(r *harness.RunResult, said int) []string {
	var idle, unjudged []string
	for _, rule := range r.Rules {
		name := string(rule.ID) + " " + ruleName(rule.ID)
		switch rule.Verdict {
		case spec.Unexercised:
			idle = append(idle, name)
		case spec.NotJudged:
			unjudged = append(unjudged, name)
		}
	}
	var out []string
	if len(idle) > 0 {
		out = append(out, "Anything about "+strings.Join(idle, ", ")+": in these runs there was nothing for it to judge.")
	}
	if len(unjudged) > 0 {
		out = append(out, "Anything about "+strings.Join(unjudged, ", ")+": it was not judged.")
	}
	var rules []check.RuleResult
	for i := range r.Scenarios {
		rules = append(rules, r.Scenarios[i].Rules...)
	}
	level := levelReached(rules)
	out = append(out,
		fmt.Sprintf("Anything that evidence of level %s does not show: %s.", level, levelMeaning[level]),
		"Anything about another build, setting, seed, topology, transport or machine than those above, or about a fault or an order of events that did not occur in these runs.",
		"That the traces were recorded on the stack that they name: who ran it answers for that.")
	var missedLines, notes []string
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		if why := missed(sc); why != "" {
			missedLines = append(missedLines, "Not shown in "+fit(named(sc), 100)+": "+fit(why, said)+".")
		}
		for _, n := range sc.Notes {
			if !slices.Contains(notes, n) {
				notes = append(notes, n)
			}
		}
	}
	out = append(out, limit(missedLines, maxLines)...)
	for i, n := range notes {
		notes[i] = fit(n, said)
	}
	return append(out, limit(notes, maxLines)...)
}

// levelMeaning says what a level of evidence leaves out.
var levelMeaning = map[spec.Level]string{
	spec.L0: "only what the client saw was recorded",
	spec.L1: "the client and what passed the proxies were recorded, nothing inside of the engine",
	spec.L2: "what the engine’s probe recorded, and not the content of the blocks",
	spec.L3: "it holds digests of the content where a stage took them, and what no probe, proxy or client recorded is not in it",
}

func (p *htmlPage) findings(r *harness.RunResult, tale *Tale, o Options) {
	all := distinctOf(r)
	if len(all) == 0 {
		p.NoFindings = "None: no rule that was judged was broken or left open."
		return
	}
	drawn, listed := p.room.drawn, 0
	counts := map[spec.Verdict]int{}
	for i := range all {
		d := &all[i]
		one, has := tale.stories[d.id]
		has = has && drawn > 0
		if !has && listed == p.room.listed {
			continue
		}
		if has {
			drawn--
		} else {
			one = told{}
			listed++
		}
		f := htmlFindingOf(d, one, o, p.room.said)
		p.Findings = append(p.Findings, f)
		counts[d.finding.Verdict]++
		if !slices.Contains(p.FoundRules, f.Rule) {
			p.FoundRules = append(p.FoundRules, f.Rule)
		}
		if !slices.Contains(p.FoundWhere, f.Where) {
			p.FoundWhere = append(p.FoundWhere, f.Where)
		}
	}
	slices.Sort(p.FoundRules)
	slices.Sort(p.FoundWhere)
	for _, v := range slices.Backward(spec.Verdicts()) {
		if counts[v] > 0 {
			p.Verdicts = append(p.Verdicts, verdictChip{verdictClass(v), glyphOf(v), v.String(), counts[v]})
		}
	}
	total := 0
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Rules {
			total += found(&r.Scenarios[i].Rules[j])
		}
	}
	p.FindingsLead = fmt.Sprintf("%s, the worst first; findings that differ only in requests, blocks, times and seeds are one, shown where it was first seen.",
		of(len(all), "distinct finding", total, "finding"))
	if more := len(all) - len(p.Findings); more > 0 {
		p.Unlisted = fmt.Sprintf("And %s that this page has no room for; --report json has all.", count(more, "distinct finding"))
	}
}

func of(n int, noun string, all int, of string) string {
	if n == all {
		return count(n, noun)
	}
	return count(n, noun) + " of " + count(all, of)
}

func htmlFindingOf(d *defect, one told, o Options, said int) htmlFinding {
	f := htmlFinding{
		Anchor: "f-" + fit(d.id, 32), ID: fit(d.id, 32), Class: verdictClass(d.finding.Verdict), Verdict: d.finding.Verdict.String(),
		Name: d.rule.Name, Where: fit(where(d.scenario), 100), Seeds: seedRange(d.seeds), Times: "seen " + times(d.count),
		Must: d.rule.Must, Rule: d.finding.Rule, Harm: d.finding.Harm,
	}
	if e, known := o.Baseline.entry(d.id); known {
		f.Known = "known until " + e.Until.String()
	}
	text := d.finding.Text + shownBy(d.finding)
	s := one.story
	if s == nil {
		f.Found = []piece{{Text: fit(text, said)}}
		return f
	}
	link := func(text string) []piece { return pieces(fit(text, 2*said), f.Anchor, one.timeline) }
	f.Found, f.Missing, f.Enough, f.Why = link(text), link(s.Missing), link(s.Enough), s.Why
	for _, line := range s.Owners {
		when, what, _ := strings.Cut(line, ":")
		if what == "" {
			when, what = "", line
		}
		f.Owners = append(f.Owners, owner{strings.TrimSpace(when), link(strings.TrimSpace(what))})
	}
	f.Drawing = draw(f.Anchor, one.timeline)
	for _, c := range one.commands {
		f.Commands = append(f.Commands, storyCommand{c.Shows, fit(c.Command, said)})
	}
	return f
}

// pieces splits a text at the events that it names and the drawing shows.
func pieces(text, anchor string, t *check.Timeline) []piece {
	type hit struct{ at, event, n int }
	var hits []hit
	for i := range t.Events {
		name := Clean(eventName(t.Events[i].Event))
		for from := 0; ; {
			at := strings.Index(text[from:], name)
			if at < 0 {
				break
			}
			at += from
			from = at + len(name)
			if from == len(text) || text[from] < '0' || text[from] > '9' {
				hits = append(hits, hit{at, i, len(name)})
			}
		}
	}
	slices.SortFunc(hits, func(a, b hit) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return b.n - a.n
	})
	var out []piece
	done := 0
	for _, h := range hits {
		if h.at < done {
			continue
		}
		if h.at > done {
			out = append(out, piece{Text: text[done:h.at]})
		}
		out = append(out, piece{text[h.at : h.at+h.n], fmt.Sprintf("%s-%d", anchor, h.event)})
		done = h.at + h.n
	}
	if done < len(text) {
		out = append(out, piece{Text: text[done:]})
	}
	return out
}
