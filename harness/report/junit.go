package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// maxBody is how many findings one JUnit case tells in full.
const maxBody = 20

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property,omitempty"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name      string     `xml:"name,attr"`
	Classname string     `xml:"classname,attr"`
	Time      string     `xml:"time,attr"`
	Skipped   *junitNote `xml:"skipped,omitempty"`
	Error     *junitNote `xml:"error,omitempty"`
	Failure   *junitNote `xml:"failure,omitempty"`
}

type junitNote struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// JUnit writes a run as JUnit XML: a suite for each run of a scenario, in it a case
// for each rule, and one for the scenario itself, whether it showed what it was
// for. A rule that was unexercised or not judged is skipped; one that failed, or
// was unproven or inconclusive, is a failure of that type. With o.Warn the latter
// two are skipped with a message, and with o.Baseline what it knows is.
func JUnit(w io.Writer, r *harness.RunResult, o Options) error {
	out := junitSuites{Name: "conform", Time: seconds(r.Seconds)}
	for i := range r.Scenarios {
		s := junitSuiteOf(r, &r.Scenarios[i], o)
		out.Tests, out.Failures, out.Errors = out.Tests+s.Tests, out.Failures+s.Failures, out.Errors+s.Errors
		out.Suites = append(out.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitSuiteOf(r *harness.RunResult, sc *harness.ScenarioResult, o Options) junitSuite {
	s := junitSuite{Name: Clean(named(sc)), Time: seconds(sc.Seconds)}
	for _, p := range []junitProperty{
		{"adapter", r.Adapter}, {"engine", r.Engine}, {"device", r.Device}, {"defect", r.Defect}, {"trace", sc.Trace}, {"verdict", sc.Verdict.String()},
	} {
		if p.Value != "" {
			s.Properties = append(s.Properties, junitProperty{p.Name, Clean(p.Value)})
		}
	}
	class := Clean(strings.Join(strings.Fields("conform "+r.Adapter+" "+where(sc)), "."))
	s.Cases = append(s.Cases, junitScenario(sc, o))
	for i := range sc.Rules {
		s.Cases = append(s.Cases, junitRule(r, sc, &sc.Rules[i], o))
	}
	for i := range s.Cases {
		c := &s.Cases[i]
		c.Classname, c.Time = class, "0"
		s.Tests++
		switch {
		case c.Error != nil:
			s.Errors++
		case c.Failure != nil:
			s.Failures++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	s.Cases[0].Time = s.Time
	return s
}

// junitScenario is the case that holds what no rule says.
func junitScenario(sc *harness.ScenarioResult, o Options) junitCase {
	c := junitCase{Name: "scenario"}
	why := Clean(missed(sc))
	switch {
	case sc.Verdict == spec.Error:
		c.Error = &junitNote{Message: why, Type: "error"}
	case why != "" && o.Warn:
		c.Skipped = &junitNote{Message: "inconclusive: " + why}
	case why != "":
		c.Failure = &junitNote{Message: why, Type: "inconclusive"}
	}
	return c
}

func junitRule(r *harness.RunResult, sc *harness.ScenarioResult, rule *check.RuleResult, o Options) junitCase {
	c := junitCase{Name: string(rule.ID) + " " + ruleName(rule.ID)}
	message := ruleMessage(rule)
	switch {
	case rule.Verdict < spec.Pass:
		c.Skipped = &junitNote{Message: rule.Verdict.String()}
	case rule.Verdict == spec.Pass:
	case o.Baseline.covers(r, sc, rule):
		c.Skipped = &junitNote{Message: "known to the baseline: " + message}
	case o.Warn && rule.Verdict < spec.Fail:
		c.Skipped = &junitNote{Message: message}
	case rule.Verdict == spec.Error:
		c.Error = &junitNote{Message: message, Type: "error"}
	default:
		c.Failure = &junitNote{Message: message, Type: rule.Verdict.String(), Text: junitBody(r, sc, rule)}
	}
	return c
}

// ruleMessage is what one line says of a rule that did not pass.
func ruleMessage(rule *check.RuleResult) string {
	s := rule.Verdict.String()
	if n := found(rule); n > 0 {
		s += ": " + count(n, "finding")
	}
	if len(rule.Findings) > 0 {
		s += ", first: " + Clean(rule.Findings[0].Text)
	}
	return s
}

func junitBody(r *harness.RunResult, sc *harness.ScenarioResult, rule *check.RuleResult) string {
	var b strings.Builder
	if must, ok := spec.RuleByID(rule.ID); ok {
		fmt.Fprintf(&b, "%s\n", must.Must)
	}
	shown := min(len(rule.Findings), maxBody)
	for i := range rule.Findings[:shown] {
		f := &rule.Findings[i]
		fmt.Fprintf(&b, "- [%s] %s\n", idOf(r, sc, f), Clean(f.Text+shownBy(*f)))
	}
	if more := found(rule) - shown; more > 0 {
		fmt.Fprintf(&b, "and %s more\n", number(more))
	}
	return b.String()
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
