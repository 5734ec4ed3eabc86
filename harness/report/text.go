package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// Options say how a text summary is written.
type Options struct {
	// Color marks verdicts with terminal colours.
	Color bool
	// Program is how the user calls this program; "" is "conform".
	Program string
	// Again holds the further flags that a repetition of the run needs, such as
	// --plan FILE. Scenario, mode, seed and defect come from the result itself.
	Again []string
	// Warn makes what is unproven or inconclusive a warning, which by default is a
	// failure, in the forms that have both.
	Warn bool
	// Baseline says which findings are known; nil without one.
	Baseline *Applied
}

func (o Options) program() string {
	if o.Program == "" {
		return "conform"
	}
	return o.Program
}

// Text writes the summary of a run.
func Text(w io.Writer, r *harness.RunResult, o Options) error {
	p := &page{color: o.Color}
	verdict := r.Verdict
	if r.Interrupted {
		verdict = max(verdict, spec.Inconclusive)
	}
	p.headline(verdict, runHeadline(r))
	runScope(p, r)
	if r.Verdict != spec.Error || slices.ContainsFunc(r.Rules, func(s harness.RuleSummary) bool { return s.Judged > 0 }) {
		p.runRules(r.Rules)
	}
	groups := runGroups(r)
	writeGroups(p, groups)
	notReached(p, r)
	runTables(p, r)
	closing(p, r, groups, o)
	return p.flush(w)
}

func runHeadline(r *harness.RunResult) string {
	findings := 0
	for _, rule := range r.Rules {
		findings += rule.Findings
	}
	switch {
	case r.Interrupted:
		return fmt.Sprintf("interrupted; this is what had been judged until then (%s)", count(findings, "finding"))
	case r.Verdict == spec.Pass:
		return "every rule that was judged held, and evidence forced it"
	case r.Verdict == spec.Error:
		return "a scenario could not be run or judged; this says nothing about the stack"
	case findings == 0:
		return "no rule was broken, but the run did not show all that it was for"
	}
	return count(findings, "finding") + " against " + broken(r.Rules)
}

func broken(rules []harness.RuleSummary) string {
	var ids []string
	for _, rule := range rules {
		if rule.Findings > 0 {
			ids = append(ids, string(rule.ID))
		}
	}
	return strings.Join(ids, ", ")
}

// runScope says in two or three lines what the verdict is about, and no more.
func runScope(p *page, r *harness.RunResult) {
	for _, f := range scopeOf(r) {
		p.field(f.name, f.value)
	}
}

// scopeField is one line of a scope.
type scopeField struct{ name, value string }

func scopeOf(r *harness.RunResult) []scopeField {
	stack := r.Adapter
	if strings.HasPrefix(r.Engine, r.Adapter+"@") {
		stack = r.Engine
	} else if r.Engine != "" {
		stack += " " + r.Engine
	}
	if r.Device != "" {
		stack += " on " + r.Device
	}
	if r.Defect != "" {
		stack += " with defect " + r.Defect
	}
	var modes, ids []string
	var seeds []uint64
	var rules []check.RuleResult
	var s check.Stats
	fired := 0
	for _, sc := range r.Scenarios {
		if sc.Mode != "" {
			modes = append(modes, sc.Mode)
		}
		ids, seeds, rules = append(ids, sc.ID), append(seeds, sc.Seed), append(rules, sc.Rules...)
		for _, f := range sc.Faults {
			fired += f.Fired
		}
		s = addStats(s, sc.Stats)
	}
	saved := r.Dir == "" && r.Seconds == 0 && len(r.Scenarios) > 0 // traces that were judged without a run: nobody told of plans and times
	if saved {
		fired = s.Faults
	}
	ran := fmt.Sprintf("%s of %s, %s", count(len(r.Scenarios), "run"), count(distinct(ids), "scenario"), seedRange(seeds))
	if !saved {
		ran += fmt.Sprintf(", in %.0f s", r.Seconds)
	}
	return []scopeField{
		{"stack", strings.Join(append([]string{stack}, orNone(joinSet(modes, " and "))...), ", ")},
		{"ran", ran},
		{"judged", fmt.Sprintf("%s; %s fired; evidence up to %s", statsLine(s), count(fired, "fault"), levelReached(rules))},
	}
}

func addStats(a, b check.Stats) check.Stats {
	return check.Stats{
		Events: a.Events + b.Events, Sources: a.Sources + b.Sources, Workers: a.Workers + b.Workers,
		Blocks: a.Blocks + b.Blocks, Leases: a.Leases + b.Leases, Reused: a.Reused + b.Reused,
		Accesses: a.Accesses + b.Accesses, Handoffs: a.Handoffs + b.Handoffs, Requests: a.Requests + b.Requests,
		Signals: a.Signals + b.Signals, Faults: a.Faults + b.Faults,
		Histories: a.Histories + b.Histories, Refused: a.Refused + b.Refused, Undecided: a.Undecided + b.Undecided,
	}
}

func statsLine(s check.Stats) string {
	return fmt.Sprintf("%s, %s (%s of a reused block), %s", count(s.Requests, "request"), count(s.Leases, "lease"),
		number(s.Reused), count(s.Accesses, "access"))
}

// levelReached is the highest level of a rule that had something to judge.
func levelReached(rules []check.RuleResult) spec.Level {
	top := spec.L0
	for _, r := range rules {
		if r.Judged > 0 {
			top = max(top, r.Level)
		}
	}
	return top
}

func (p *page) runRules(rules []harness.RuleSummary) {
	rows := make([]ruleRow, 0, len(rules))
	for _, rule := range rules {
		rows = append(rows, ruleRow{rule.ID, rule.Verdict, rule.Judged, rule.Findings})
	}
	p.rules(rows)
}

func notReached(p *page, r *harness.RunResult) {
	var lines []string
	for _, sc := range r.Scenarios {
		if why := missed(&sc); why != "" {
			lines = append(lines, named(&sc)+": "+why)
		}
	}
	p.list("what the run did not show", limit(lines, maxLines))
}

// missed says what a scenario was for and did not show, "" if nothing.
func missed(sc *harness.ScenarioResult) string {
	if sc.Why != "" {
		return sc.Why
	}
	var why []string
	for _, b := range sc.Branches {
		if !b.Reached {
			why = append(why, fmt.Sprintf("never reached %q", b.Name))
		}
	}
	for _, f := range sc.Faults {
		if f.Fired == 0 {
			why = append(why, fmt.Sprintf("fault rule %q (%s) never fired", f.Rule, f.Do))
		}
	}
	return strings.Join(why, "; ")
}

func closing(p *page, r *harness.RunResult, groups []group, o Options) {
	p.line("")
	if r.Dir != "" {
		p.field("traces", r.Dir)
	}
	sc := worstScenario(r, groups)
	if sc == nil {
		return
	}
	if sc.Trace != "" {
		p.field("look closer", o.program()+" check "+Quote(sc.Trace))
	}
	if r.Verdict == spec.Pass {
		return
	}
	again := rerun{adapter: r.Adapter, scenario: sc.ID, mode: sc.Mode, defect: r.Defect, seed: sc.Seed, more: o.Again}
	if r.Engine != "" {
		_, again.engine, _ = strings.Cut(r.Engine, "@")
		again.device = r.Device
	}
	p.field("run again", o.program()+" "+again.command())
}

// worstScenario is where a person should look first: the scenario of the first
// finding that is shown, else the first with the worst verdict.
func worstScenario(r *harness.RunResult, groups []group) *harness.ScenarioResult {
	if len(groups) > 0 && groups[0].worst.scenario != nil {
		return groups[0].worst.scenario
	}
	var worst *harness.ScenarioResult
	for i := range r.Scenarios {
		if worst == nil || r.Scenarios[i].Verdict > worst.Verdict {
			worst = &r.Scenarios[i]
		}
	}
	return worst
}

// named is a scenario's run as a person says it.
func named(sc *harness.ScenarioResult) string {
	s := sc.ID
	if sc.Mode != "" {
		s += " " + sc.Mode
	}
	return fmt.Sprintf("%s seed %d", s, sc.Seed)
}
