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
		runRules(p, r)
	}
	groups := runGroups(r)
	writeGroups(p, groups)
	notReached(p, r)
	runTables(p, r)
	closing(p, r, groups, o)
	return p.flush(w)
}

// TraceText writes the summary of one judged trace. The trace is named as the
// user gave it.
func TraceText(w io.Writer, trace string, r *check.Result, o Options) error {
	p := &page{color: o.Color}
	p.headline(r.Verdict, traceHeadline(r))
	s := r.Stats
	p.field("trace", trace)
	p.field("judged", fmt.Sprintf("%s of %s, %s; %s", count(s.Events, "event"), count(s.Sources, "source"),
		count(s.Workers, "worker"), statsLine(s)))
	p.field("evidence", "up to "+levelReached(r.Rules).String())
	if s.Histories > 0 {
		p.field("porcupine", fmt.Sprintf("judged %s of blocks too: %s refused, %s undecided",
			historyCount(s.Histories), number(s.Refused), number(s.Undecided)))
	}
	p.rules(traceRules(r))
	groups := groupPlaces(placesOf(nil, r.Rules))
	writeGroups(p, groups)
	p.settled(r.Settled)
	p.signals(r.Signals)
	p.clocks(r.Clocks)
	p.list("what limits the verdict", r.Notes)
	if len(groups) > 0 {
		p.line("")
		p.field("in words", fmt.Sprintf("%s explain %s", o.program(), Quote(trace)))
		p.field("the rule", fmt.Sprintf("%s spec %s", o.program(), groups[0].rule))
	}
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

func traceHeadline(r *check.Result) string {
	n := 0
	for i := range r.Rules {
		n += found(&r.Rules[i])
	}
	switch {
	case n > 0:
		return count(n, "finding")
	case r.Verdict == spec.Pass:
		return "every rule that was judged held, and evidence forced it"
	case r.Verdict == spec.Inconclusive:
		return "events that the rules need are missing"
	}
	return ""
}

// runScope says in two or three lines what the verdict is about, and no more.
func runScope(p *page, r *harness.RunResult) {
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
	p.field("stack", strings.Join(append([]string{stack}, orNone(joinSet(modes, " and "))...), ", "))
	p.field("ran", fmt.Sprintf("%s of %s, %s, in %.0f s", count(len(r.Scenarios), "run"),
		count(distinct(ids), "scenario"), seedRange(seeds), r.Seconds))
	p.field("judged", fmt.Sprintf("%s; %s fired; evidence up to %s", statsLine(s), count(fired, "fault"), levelReached(rules)))
}

func addStats(a, b check.Stats) check.Stats {
	a.Events += b.Events
	a.Leases += b.Leases
	a.Reused += b.Reused
	a.Accesses += b.Accesses
	a.Handoffs += b.Handoffs
	a.Requests += b.Requests
	a.Signals += b.Signals
	a.Faults += b.Faults
	return a
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

func runRules(p *page, r *harness.RunResult) {
	rows := make([]ruleRow, 0, len(r.Rules))
	for _, rule := range r.Rules {
		rows = append(rows, ruleRow{rule.ID, rule.Verdict, rule.Judged, rule.Findings})
	}
	p.rules(rows)
}

func traceRules(r *check.Result) []ruleRow {
	rows := make([]ruleRow, 0, len(r.Rules))
	for i := range r.Rules {
		rule := &r.Rules[i]
		rows = append(rows, ruleRow{rule.ID, rule.Verdict, rule.Judged, found(rule)})
	}
	return rows
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

func historyCount(n int) string {
	if n == 1 {
		return "1 history"
	}
	return number(n) + " histories"
}
