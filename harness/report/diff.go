package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// Difference is what two runs have in common and what not: of two engine builds,
// of yesterday and today.
type Difference struct {
	// Verdict is the worst of what appeared, at least inconclusive where something
	// that the first run shows can't be compared, else pass.
	Verdict spec.Verdict `json:"verdict"`
	A       Side         `json:"a"`
	B       Side         `json:"b"`
	// Rules are those whose verdict changed, by scenario and mode.
	Rules []RuleChange `json:"rules"`
	// Appeared were found in B alone, Stayed in both, Gone in A alone while every run
	// of B judged the rule there and showed what its scenario is for. Of NotShown
	// nothing is known: B did not.
	Appeared []FindingChange `json:"appeared"`
	Gone     []FindingChange `json:"gone"`
	Stayed   []FindingChange `json:"stayed"`
	NotShown []FindingChange `json:"not_shown"`
	// Signals are all kinds that one of the two saw, those that changed first.
	Signals []SignalChange `json:"signals"`
	// Notes say what limits the comparison.
	Notes []string `json:"notes"`
}

// Side is one of the two runs.
type Side struct {
	Name    string       `json:"name"` // as the user gave it
	Adapter string       `json:"adapter,omitempty"`
	Engine  string       `json:"engine,omitempty"`
	Verdict spec.Verdict `json:"verdict"`
	Runs    int          `json:"runs"`
}

// RuleChange is a rule whose verdict differs in one scenario and mode, over all
// seeds. It is "not judged" where a run has no such scenario.
type RuleChange struct {
	Scenario string       `json:"scenario"` // with its mode
	Rule     spec.RuleID  `json:"rule"`
	Before   spec.Verdict `json:"before"`
	Now      spec.Verdict `json:"now"`
}

// FindingChange is a distinct finding; see [check.Finding.Fingerprint].
type FindingChange struct {
	Fingerprint string       `json:"fingerprint"`
	Rule        spec.RuleID  `json:"rule"`
	Verdict     spec.Verdict `json:"verdict"`
	Harm        spec.Harm    `json:"harm,omitempty"`
	Scenario    string       `json:"scenario"` // with its mode
	Before      int          `json:"before"`   // how many findings are listed, in A
	Now         int          `json:"now"`      // and in B
	Text        string       `json:"text"`     // of the first one, in B if it is there
	Why         string       `json:"why,omitempty"`
}

// SignalChange says what one kind of signal proved before and now; null where a
// run did not see it.
type SignalChange struct {
	Signal string        `json:"signal"`
	Before *SignalProved `json:"before"`
	Now    *SignalProved `json:"now"`
}

// SignalProved is what is declared of a kind of signal, and what held every time.
type SignalProved struct {
	Claims   spec.Predicate `json:"claims"`
	Inferred spec.Predicate `json:"inferred"`
	Seen     int            `json:"seen"`
}

func (s *SignalChange) changed() bool {
	if s.Before == nil || s.Now == nil {
		return true
	}
	return s.Before.Claims != s.Now.Claims || s.Before.Inferred != s.Now.Inferred
}

// Diff compares two runs. The seeds of a scenario and mode are taken together.
func Diff(nameA string, a *harness.RunResult, nameB string, b *harness.RunResult) *Difference {
	d := &Difference{
		A: sideOf(nameA, a), B: sideOf(nameB, b), Verdict: spec.Pass, Rules: []RuleChange{}, Appeared: []FindingChange{}, Gone: []FindingChange{},
		Stayed: []FindingChange{}, NotShown: []FindingChange{}, Signals: signalChanges(a.Signals, b.Signals), Notes: []string{},
	}
	before, now := judgedIn(a), judgedIn(b)
	for _, key := range slices.Compact(slices.Sorted(slices.Values(append(keysOf(a), keysOf(b)...)))) {
		for _, rule := range spec.Rules() {
			was, is := before[key][rule.ID], now[key][rule.ID]
			if was.verdict != is.verdict {
				d.Rules = append(d.Rules, RuleChange{key, rule.ID, was.verdict, is.verdict})
			}
			if was.verdict >= spec.Pass && (is.verdict < spec.Pass || is.open != "") {
				d.Verdict = max(d.Verdict, spec.Inconclusive)
			}
			if was.unlisted+is.unlisted > 0 {
				d.Notes = append(d.Notes, fmt.Sprintf("%s in %s: %s in A and %s in B are counted and not listed: what appeared or went away there may have been among them",
					rule.ID, key, number(was.unlisted), number(is.unlisted)))
			}
		}
	}
	d.findings(a, b, now)
	for _, f := range d.Appeared {
		d.Verdict = max(d.Verdict, f.Verdict)
	}
	if b.Verdict == spec.Error {
		d.Verdict = max(d.Verdict, spec.Inconclusive)
	}
	return d
}

func sideOf(name string, r *harness.RunResult) Side {
	return Side{Name: name, Adapter: r.Adapter, Engine: r.Engine, Verdict: r.Verdict, Runs: len(r.Scenarios)}
}

// ruleState is what the seeds of a scenario and mode say of a rule together.
type ruleState struct {
	verdict  spec.Verdict
	unlisted int
	open     string // why what was not found may have been there; "" if it was not
}

// openBy says why a run of a scenario does not settle that a rule's findings are
// gone.
func openBy(sc *harness.ScenarioResult, rule *check.RuleResult) string {
	switch {
	case sc.Verdict == spec.Error:
		return "in B a run of this scenario is an error"
	case missed(sc) != "":
		return "in B the scenario did not show what it is for"
	case rule.Verdict < spec.Pass || rule.Verdict == spec.Inconclusive:
		return fmt.Sprintf("in B the rule was %s there", rule.Verdict)
	case unlisted(rule) > 0:
		return "B counts more findings of the rule than it lists"
	}
	return ""
}

func judgedIn(r *harness.RunResult) map[string]map[spec.RuleID]ruleState {
	all := map[string]map[spec.RuleID]ruleState{}
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		if all[where(sc)] == nil {
			all[where(sc)] = map[spec.RuleID]ruleState{}
		}
		for j := range sc.Rules {
			rule := &sc.Rules[j]
			s := all[where(sc)][rule.ID]
			s.verdict, s.unlisted, s.open = max(s.verdict, rule.Verdict), s.unlisted+unlisted(rule), cmp.Or(s.open, openBy(sc, rule))
			all[where(sc)][rule.ID] = s
		}
	}
	return all
}

func keysOf(r *harness.RunResult) (keys []string) {
	for i := range r.Scenarios {
		keys = append(keys, where(&r.Scenarios[i]))
	}
	return keys
}

func (d *Difference) findings(a, b *harness.RunResult, now map[string]map[spec.RuleID]ruleState) {
	old := map[string]defect{}
	for _, f := range distinctOf(a) {
		old[f.id] = f
	}
	seen := map[string]bool{}
	ran := keysOf(a)
	for _, f := range distinctOf(b) {
		seen[f.id] = true
		c := changeOf(&f)
		c.Now = f.count
		was, both := old[f.id]
		if both {
			c.Before = was.count
			d.Stayed = append(d.Stayed, c)
			continue
		}
		if !slices.Contains(ran, c.Scenario) {
			c.Why = "A did not run this scenario"
		}
		d.Appeared = append(d.Appeared, c)
	}
	for _, f := range distinctOf(a) {
		if seen[f.id] {
			continue
		}
		c := changeOf(&f)
		c.Before = f.count
		switch state, judged := now[c.Scenario][c.Rule]; {
		case !judged:
			c.Why = "B did not judge this scenario"
		case state.open != "":
			c.Why = state.open
		default:
			d.Gone = append(d.Gone, c)
			continue
		}
		d.NotShown = append(d.NotShown, c)
	}
	if len(d.NotShown) > 0 {
		d.Verdict = max(d.Verdict, spec.Inconclusive)
	}
}

func changeOf(f *defect) FindingChange {
	return FindingChange{
		Fingerprint: f.id, Rule: f.finding.Rule, Verdict: f.finding.Verdict, Harm: f.finding.Harm, Scenario: where(f.scenario), Text: f.finding.Text,
	}
}

func signalChanges(a, b []check.SignalResult) []SignalChange {
	at := map[string]*SignalChange{}
	of := func(s check.SignalResult) *SignalChange {
		if at[s.Signal] == nil {
			at[s.Signal] = &SignalChange{Signal: s.Signal}
		}
		return at[s.Signal]
	}
	for _, s := range a {
		of(s).Before = &SignalProved{s.Claims, s.Inferred, s.Seen}
	}
	for _, s := range b {
		of(s).Now = &SignalProved{s.Claims, s.Inferred, s.Seen}
	}
	all := make([]SignalChange, 0, len(at))
	for _, s := range at {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(x, y SignalChange) int {
		if x.changed() != y.changed() {
			if x.changed() {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.Signal, y.Signal)
	})
	return all
}

// DiffJSON writes the comparison for a program.
func DiffJSON(w io.Writer, d *Difference) error { return Encode(w, d) }

// DiffText writes the comparison for a person.
func DiffText(w io.Writer, d *Difference, o Options) error {
	p := &page{color: o.Color}
	p.headline(d.Verdict, d.headline())
	p.field("A", d.A.words())
	p.field("B", d.B.words())
	p.changes("appeared", d.Appeared)
	p.changes("went away", d.Gone)
	p.changes("not shown by B, so that nothing is known of them", d.NotShown)
	p.changes("stayed", d.Stayed)
	if len(d.Rules) > 0 {
		p.line("")
		p.line(fmt.Sprintf("  %-28s %-13s %-13s %s", "rule", "A", "B", "in"))
		for _, c := range d.Rules[:min(len(d.Rules), 4*maxLines)] {
			p.line(fmt.Sprintf("  %-28s %-13s %s %s", string(c.Rule)+" "+ruleName(c.Rule), c.Before, p.paint(c.Now, fmt.Sprintf("%-13s", c.Now)), Clean(c.Scenario)))
		}
		if more := len(d.Rules) - 4*maxLines; more > 0 {
			p.line(fmt.Sprintf("  and %s more; --format json has all", number(more)))
		}
	}
	p.signalChanges(d.Signals)
	p.list("what limits the comparison", limit(d.Notes, maxLines))
	return p.flush(w)
}

func (d *Difference) headline() string {
	return fmt.Sprintf("%s appeared, %s went away, %s stayed, %s not shown", count(len(d.Appeared), "finding"), number(len(d.Gone)), number(len(d.Stayed)), number(len(d.NotShown)))
}

func (s *Side) words() string {
	stack := strings.TrimSpace(s.Adapter + " " + s.Engine)
	if strings.HasPrefix(s.Engine, s.Adapter) {
		stack = s.Engine
	}
	if stack != "" {
		stack += ", "
	}
	return fmt.Sprintf("%s: %s%s, %s", s.Name, stack, count(s.Runs, "run"), s.Verdict)
}

func (p *page) changes(title string, all []FindingChange) {
	if len(all) == 0 {
		return
	}
	p.line("")
	p.line("  " + title)
	for i := range all[:min(len(all), 2*maxLines)] {
		p.item("    - ", all[i].words())
	}
	if more := len(all) - 2*maxLines; more > 0 {
		p.line(fmt.Sprintf("    and %s more; --format json has all", number(more)))
	}
}

func (c *FindingChange) words() string {
	s := fmt.Sprintf("%s %s %s in %s, ", c.Fingerprint, c.Rule, c.Verdict, c.Scenario)
	switch {
	case c.Before > 0 && c.Now > 0:
		s += fmt.Sprintf("%s before and %s now", number(c.Before), number(c.Now))
	default:
		s += times(c.Before + c.Now)
	}
	if c.Why != "" {
		s += " (" + c.Why + ")"
	}
	return s + ": " + c.Text
}

func (p *page) signalChanges(all []SignalChange) {
	if len(all) == 0 {
		return
	}
	p.line("")
	p.line(fmt.Sprintf("  %-28s %-23s %s", "signal: declared, inferred", "A", "B"))
	for _, s := range all[:min(len(all), 2*maxLines)] {
		mark := " "
		if s.changed() {
			mark = "*"
		}
		p.line(fmt.Sprintf("%s %-28s %-23s %s", mark, Clean(s.Signal), s.Before.words(), s.Now.words()))
	}
	if more := len(all) - 2*maxLines; more > 0 {
		p.line(fmt.Sprintf("  and %s more", count(more, "kind")))
	}
}

func (s *SignalProved) words() string {
	if s == nil {
		return "not seen"
	}
	return orDash(s.Claims) + ", " + orDash(s.Inferred)
}

// DiffMarkdown writes the comparison as GitHub shows it; see [Markdown].
func DiffMarkdown(w io.Writer, d *Difference) error {
	p := &page{}
	p.line("## Conform: " + d.headline())
	p.line("")
	p.line("- A: " + code(d.A.words()))
	p.line("- B: " + code(d.B.words()))
	for _, part := range []struct {
		title string
		all   []FindingChange
	}{{"Appeared", d.Appeared}, {"Went away", d.Gone}, {"Not shown by B", d.NotShown}, {"Stayed", d.Stayed}} {
		for i := range part.all[:min(len(part.all), maxTold)] {
			if i == 0 {
				p.line("")
				p.line("### " + part.title)
			}
			p.line("")
			p.fenced(part.all[i].words())
		}
		if more := len(part.all) - maxTold; more > 0 {
			p.line("")
			p.line(fmt.Sprintf("And %s more.", number(more)))
		}
	}
	if len(d.Signals) > 0 {
		p.line("")
		p.line("### What signals prove: declared, inferred")
		p.line("")
		p.line("| signal | A | B |")
		p.line("|---|---|---|")
	}
	for _, s := range d.Signals[:min(len(d.Signals), maxTold)] {
		p.line(fmt.Sprintf("| %s | %s | %s |", cellCode(s.Signal), cellCode(s.Before.words()), cellCode(s.Now.words())))
	}
	return p.flush(w)
}
