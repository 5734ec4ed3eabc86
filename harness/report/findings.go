package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// What one summary shows at most; the JSON has everything.
const (
	maxGroups   = 6
	maxPerGroup = 2
	maxLines    = 8
)

// placed is the rules of one judged trace, with the scenario that it came from.
type placed struct {
	scenario *harness.ScenarioResult // nil for a trace that was judged alone
	rules    []check.RuleResult
}

// group holds the findings of one rule in one scenario, whatever mode or seed.
type group struct {
	rule     spec.RuleID
	verdict  spec.Verdict
	harm     spec.Harm
	scenario *harness.ScenarioResult // of the first finding
	runs     map[*harness.ScenarioResult]bool
	findings []check.Finding
	unlisted int // findings that the judge counted and did not list
}

func (g *group) count() int { return len(g.findings) + g.unlisted }

func runGroups(r *harness.RunResult) []group {
	in := make([]placed, 0, len(r.Scenarios))
	for i := range r.Scenarios {
		in = append(in, placed{&r.Scenarios[i], r.Scenarios[i].Rules})
	}
	return groupFindings(in)
}

// groupFindings orders the groups from the worst: by verdict, then by harm.
func groupFindings(in []placed) []group {
	var groups []group
	at := map[string]int{}
	for _, p := range in {
		id := ""
		if p.scenario != nil {
			id = p.scenario.ID
		}
		for _, r := range p.rules {
			if len(r.Findings) == 0 {
				continue
			}
			key := string(r.ID) + "\x00" + id
			i, ok := at[key]
			if !ok {
				i = len(groups)
				at[key] = i
				groups = append(groups, group{rule: r.ID, scenario: p.scenario, runs: map[*harness.ScenarioResult]bool{}})
			}
			for _, f := range r.Findings {
				groups[i].add(f, p.scenario)
			}
			groups[i].unlisted += found(r) - len(r.Findings)
		}
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.verdict, a.verdict), cmp.Compare(harmRank(b.harm), harmRank(a.harm)))
	})
	return groups
}

// add keeps the worst findings in front, so that the ones shown are the worst.
func (g *group) add(f check.Finding, sc *harness.ScenarioResult) {
	g.runs[sc] = true
	if f.Verdict > g.verdict {
		g.findings = slices.Insert(g.findings, 0, f)
		g.verdict, g.scenario = f.Verdict, sc
	} else {
		g.findings = append(g.findings, f)
	}
	if harmRank(f.Harm) > harmRank(g.harm) {
		g.harm = f.Harm
	}
}

// found counts a rule's findings, those that the judge did not list included.
func found(r check.RuleResult) int { return max(r.Found, len(r.Findings)) }

var harms = []spec.Harm{
	spec.HarmNone, spec.HarmUnprovenOrder, spec.HarmReclaimedOpen,
	spec.HarmStaleAccess, spec.HarmWrongContent, spec.HarmWrongAnswer,
}

func harmRank(h spec.Harm) int { return slices.Index(harms, h) }

func writeGroups(p *page, groups []group) {
	if len(groups) == 0 {
		return
	}
	p.line("")
	shown := min(len(groups), maxGroups)
	for i, g := range groups[:shown] {
		p.group(i+1, g)
	}
	if rest := groups[shown:]; len(rest) > 0 {
		n := 0
		for _, g := range rest {
			n += g.count()
		}
		p.line(fmt.Sprintf("  and %s more in %s; --format json has all", count(n, "finding"), count(len(rest), "other place")))
	}
}

func (p *page) group(n int, g group) {
	head := fmt.Sprintf("%d. %s %s", n, g.rule, ruleName(g.rule))
	if g.scenario != nil {
		head += ", " + place(g.scenario)
		if more := len(g.runs) - 1; more > 0 {
			head += fmt.Sprintf(" (one of %s)", count(more+1, "run"))
		}
	}
	head += ": " + p.paint(g.verdict, g.verdict.String())
	if g.harm != spec.HarmNone {
		head += ", harm: " + string(g.harm)
	}
	p.line("  " + head)
	shown := min(len(g.findings), maxPerGroup)
	for _, f := range g.findings[:shown] {
		p.wrapped("     ", f.Text)
		p.wrapped("       ", shownBy(f))
	}
	if more := g.count() - shown; more > 0 {
		p.line(fmt.Sprintf("     and %s more like it", number(more)))
	}
}

// shownBy names the events that prove a finding, so that they can be looked up.
func shownBy(f check.Finding) string {
	if len(f.Events) == 0 {
		return ""
	}
	const most = 4
	var ids []string
	for _, e := range f.Events[:min(len(f.Events), most)] {
		ids = append(ids, fmt.Sprintf("%s:%d", e.Src, e.Seq))
	}
	s := "shown by " + strings.Join(ids, ", ")
	if more := len(f.Events) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

func ruleName(id spec.RuleID) string {
	r, _ := spec.RuleByID(id)
	return r.Name
}
