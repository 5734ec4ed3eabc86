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
	maxGroups = 6 // rules that have findings
	maxShown  = 2 // findings of one rule
	maxPlaces = 6 // scenarios of one rule that are named
	maxLines  = 8 // of a list
)

// group holds the findings of one rule. Those that are shown come from its worst
// scenario, so that the command that looks closer shows them too.
type group struct {
	rule    spec.RuleID
	verdict spec.Verdict
	harm    spec.Harm
	worst   *place
	places  []place // in the order of the run
}

// place is where findings of a rule come from: one judged trace.
type place struct {
	scenario *harness.ScenarioResult // nil for a trace that was judged alone
	result   *check.RuleResult
	verdict  spec.Verdict // the worst of its findings
	harm     spec.Harm
}

// found counts a rule's findings, those that the judge did not list included.
func found(r *check.RuleResult) int { return max(r.Found, len(r.Findings)) }

func runGroups(r *harness.RunResult) []group {
	var places []place
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		places = append(places, placesOf(sc, sc.Rules)...)
	}
	return groupPlaces(places)
}

func placesOf(sc *harness.ScenarioResult, rules []check.RuleResult) []place {
	var places []place
	for i := range rules {
		if len(rules[i].Findings) == 0 {
			continue
		}
		p := place{scenario: sc, result: &rules[i], harm: rules[i].Harm()}
		for _, f := range rules[i].Findings {
			p.verdict = max(p.verdict, f.Verdict)
		}
		places = append(places, p)
	}
	return places
}

// groupPlaces gives one group for each rule, the worst first: by verdict, then by
// harm, then in the order of the registry.
func groupPlaces(places []place) []group {
	var groups []group
	for _, rule := range spec.Rules() {
		g := group{rule: rule.ID}
		for _, p := range places {
			if p.result.ID == rule.ID {
				g.places = append(g.places, p)
			}
		}
		if len(g.places) == 0 {
			continue
		}
		worst := slices.MinFunc(g.places, worseFirst)
		g.worst, g.verdict, g.harm = &worst, worst.verdict, worst.harm
		groups = append(groups, g)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return worseFirst(*a.worst, *b.worst) })
	return groups
}

func worseFirst(a, b place) int {
	return cmp.Or(cmp.Compare(b.verdict, a.verdict), cmp.Compare(b.harm.Rank(), a.harm.Rank()))
}

// count is how many findings the group stands for.
func (g *group) count() int {
	n := 0
	for _, p := range g.places {
		n += found(p.result)
	}
	return n
}

func writeGroups(p *page, groups []group) {
	if len(groups) == 0 {
		return
	}
	p.line("")
	shown, each := min(len(groups), maxGroups), maxShown
	if len(groups) > maxGroups/2 { // much went wrong: one of each tells more than two of some
		each = 1
	}
	for i := range groups[:shown] {
		p.group(i+1, &groups[i], each)
	}
	if rest := groups[shown:]; len(rest) > 0 {
		var ids []string
		for i := range rest {
			ids = append(ids, fmt.Sprintf("%s (%s)", rest[i].rule, number(rest[i].count())))
		}
		p.wrapped("  ", "and findings of "+strings.Join(ids, ", ")+"; --format json has all")
	}
}

func (p *page) group(n int, g *group, each int) {
	head := fmt.Sprintf("%d. %s %s: %s", n, g.rule, ruleName(g.rule), p.paint(g.verdict, g.verdict.String()))
	if g.harm != spec.HarmNone {
		head += ", harm: " + string(g.harm)
	}
	if sc := g.worst.scenario; sc != nil {
		head += ", in " + Clean(named(sc))
	}
	p.line("  " + head)
	worst := slices.Clone(g.worst.result.Findings)
	slices.SortStableFunc(worst, func(a, b check.Finding) int {
		return worseFirst(place{verdict: a.Verdict, harm: a.Harm}, place{verdict: b.Verdict, harm: b.Harm})
	})
	shown := min(len(worst), each)
	for _, f := range worst[:shown] {
		p.item("     - ", f.Text+shownBy(f))
	}
	if more := g.count() - shown; more > 0 {
		p.wrapped("     ", fmt.Sprintf("and %s more%s", number(more), elsewhere(g)))
	}
}

// elsewhere says how the findings spread over several scenarios.
func elsewhere(g *group) string {
	var ids []string
	sums := map[string]int{}
	for _, pl := range g.places {
		if pl.scenario == nil {
			return ""
		}
		id := strings.TrimSpace(pl.scenario.ID + " " + pl.scenario.Mode)
		if _, seen := sums[id]; !seen {
			ids = append(ids, id)
		}
		sums[id] += found(pl.result)
	}
	if len(ids) == 1 {
		return ""
	}
	shown := ids[:min(len(ids), maxPlaces)]
	parts := make([]string, len(shown))
	for i, id := range shown {
		parts[i] = id + " " + number(sums[id])
	}
	if more := len(ids) - len(shown); more > 0 {
		parts = append(parts, count(more, "other"))
	}
	return "; of all: " + strings.Join(parts, ", ")
}

// shownBy names the events that prove a finding, where its text does not.
func shownBy(f check.Finding) string {
	const most = 4
	var ids []string
	for _, e := range f.Events {
		if id := eventName(e); !strings.Contains(f.Text, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	shown := ids[:min(len(ids), most)]
	s := " (shown by " + strings.Join(shown, ", ")
	if more := len(ids) - len(shown); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s + ")"
}

func ruleName(id spec.RuleID) string {
	r, _ := spec.RuleByID(id)
	return r.Name
}
