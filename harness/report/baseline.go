package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// Baseline is a list of findings that are known, each until a day.
type Baseline struct {
	Findings []Entry `yaml:"findings"`
}

// Entry is one known finding.
type Entry struct {
	Fingerprint string      `yaml:"fingerprint" json:"fingerprint"`
	Rule        spec.RuleID `yaml:"rule,omitempty" json:"rule,omitempty"`
	// Until is the last day on which the finding does not count, in UTC.
	Until Day `yaml:"until" json:"until"`
	// Why says whose word it is and where it is being mended, such as a link.
	Why string `yaml:"why,omitempty" json:"why,omitempty"`
}

// Day is a date, written 2026-12-31.
type Day struct{ midnight time.Time }

const dayForm = "2006-01-02"

// DayOf is the day of a time, in UTC.
func DayOf(t time.Time) Day { return Day{t.UTC().Truncate(24 * time.Hour)} }

func (d Day) String() string { return d.midnight.Format(dayForm) }

// MarshalText writes the date.
func (d Day) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the date.
func (d *Day) UnmarshalText(b []byte) (err error) {
	d.midnight, err = time.Parse(dayForm, string(b))
	return err
}

// maxBaseline bounds a baseline file, in bytes.
const maxBaseline = 4 << 20

// ReadBaseline reads a baseline, which is YAML. What is wrong with it is a
// *harness.UsageError with name, the file's, in it.
func ReadBaseline(name string, r io.Reader) (*Baseline, error) {
	bad := func(what string) error {
		return &harness.UsageError{
			Where: name, What: what, Expected: "a list findings with a fingerprint and a date until in each",
			Try: "docs/reports.md shows one",
		}
	}
	text, err := io.ReadAll(io.LimitReader(r, maxBaseline+1))
	switch {
	case err != nil:
		return nil, bad(err.Error())
	case len(text) > maxBaseline:
		return nil, bad(fmt.Sprintf("more than %d bytes", maxBaseline))
	}
	var b Baseline
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&b); err != nil && !errors.Is(err, io.EOF) {
		return nil, bad(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	seen := map[string]bool{}
	for i, e := range b.Findings {
		switch {
		case e.Fingerprint == "":
			return nil, bad(fmt.Sprintf("entry %d has no fingerprint", i+1))
		case e.Until.midnight.IsZero():
			return nil, bad(fmt.Sprintf("entry %d, %s, has no date until: it would hide the finding for ever", i+1, e.Fingerprint))
		case seen[e.Fingerprint]:
			return nil, bad(fmt.Sprintf("the fingerprint %s is there twice", e.Fingerprint))
		}
		seen[e.Fingerprint] = true
	}
	return &b, nil
}

// WriteBaseline writes all findings of a run as known until a day, for a person to
// go through.
func WriteBaseline(w io.Writer, r *harness.RunResult, until time.Time) error {
	b := Baseline{Findings: []Entry{}}
	for _, d := range distinctOf(r) {
		b.Findings = append(b.Findings, Entry{
			Fingerprint: d.id, Rule: d.finding.Rule, Until: DayOf(until),
			Why: short(Clean(fmt.Sprintf("%s in %s: %s", d.finding.Verdict, where(d.scenario), d.finding.Shape()))),
		})
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(b); err != nil {
		return err
	}
	return e.Close()
}

// Applied is what a baseline says of a run.
type Applied struct {
	// Verdict is the run's with the known findings set aside.
	Verdict spec.Verdict `json:"verdict"`
	// Known were found and don't count. Expired were found and count again. Unseen
	// are in the baseline, in force, and were not found: mended, or not reached.
	Known   []Entry `json:"known"`
	Expired []Entry `json:"expired"`
	Unseen  []Entry `json:"unseen"`
	// New are the fingerprints that were found and are not in the baseline.
	New []string `json:"new"`

	known map[string]Entry
}

// Apply sets the known findings of a run aside, as of now. A rule counts no longer
// when all its findings are known; those that the judge counted and did not list
// can't be known. A branch that was not reached, a fault that never fired, a hook
// that is missing, an error: these are no findings, and count as before.
func (b *Baseline) Apply(r *harness.RunResult, now time.Time) *Applied {
	a := &Applied{known: map[string]Entry{}, Known: []Entry{}, Expired: []Entry{}, Unseen: []Entry{}, New: []string{}}
	seen, listed := map[string]bool{}, map[string]bool{}
	for _, d := range distinctOf(r) {
		seen[d.id] = true
	}
	for _, e := range b.Findings {
		listed[e.Fingerprint] = true
		expired := !now.UTC().Before(e.Until.midnight.AddDate(0, 0, 1))
		switch {
		case expired && seen[e.Fingerprint]:
			a.Expired = append(a.Expired, e)
		case expired:
		case seen[e.Fingerprint]:
			a.Known = append(a.Known, e)
			a.known[e.Fingerprint] = e
		default:
			a.Unseen = append(a.Unseen, e)
		}
	}
	for _, d := range distinctOf(r) {
		if !listed[d.id] {
			a.New = append(a.New, d.id)
		}
	}
	a.Verdict = a.verdict(r)
	return a
}

// entry is what the baseline knows of a fingerprint; a nil one knows nothing.
func (a *Applied) entry(id string) (Entry, bool) {
	if a == nil {
		return Entry{}, false
	}
	e, known := a.known[id]
	return e, known
}

// covers reports whether a rule that did not pass owes that to known findings alone.
func (a *Applied) covers(r *harness.RunResult, sc *harness.ScenarioResult, rule *check.RuleResult) bool {
	return a != nil && bad(rule.Verdict) && a.left(r, sc, rule) <= spec.Pass
}

// left is a rule's verdict without the known findings.
func (a *Applied) left(r *harness.RunResult, sc *harness.ScenarioResult, rule *check.RuleResult) spec.Verdict {
	if !bad(rule.Verdict) || len(rule.Findings) == 0 || unlisted(rule) > 0 {
		return rule.Verdict
	}
	worst, left := spec.NotJudged, spec.NotJudged
	for i := range rule.Findings {
		f := &rule.Findings[i]
		worst = max(worst, f.Verdict)
		if _, known := a.entry(idOf(r, sc, f)); !known {
			left = max(left, f.Verdict)
		}
	}
	if rule.Verdict > worst { // not by its findings
		return rule.Verdict
	}
	for i := range sc.Hooks {
		if len(sc.Hooks[i].Missing[rule.ID]) > 0 {
			left = max(left, spec.Inconclusive)
		}
	}
	return left
}

func (a *Applied) verdict(r *harness.RunResult) spec.Verdict {
	left, all := spec.NotJudged, spec.NotJudged
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		ofRules, cell := spec.NotJudged, spec.NotJudged
		for j := range sc.Rules {
			ofRules, cell = max(ofRules, sc.Rules[j].Verdict), max(cell, a.left(r, sc, &sc.Rules[j]))
		}
		switch {
		case sc.Verdict > ofRules:
			cell = sc.Verdict
		case missed(sc) != "":
			cell = max(cell, spec.Inconclusive)
		}
		left, all = max(left, cell), max(all, sc.Verdict)
	}
	switch {
	case r.Verdict > all: // of the run itself
		left = max(left, r.Verdict)
	case r.Interrupted:
		left = max(left, spec.Inconclusive)
	case left < spec.Pass && len(a.known) > 0: // all that was judged is known
		left = spec.Pass
	case left < spec.Pass:
		left = r.Verdict
	}
	return left
}

// sentence says it in one line.
func (a *Applied) sentence() string {
	s := fmt.Sprintf("With the baseline: %s; %s known", a.Verdict, count(len(a.Known), "finding"))
	if n := len(a.New); n > 0 {
		s += fmt.Sprintf(", %s new", number(n))
	}
	if n := len(a.Expired); n > 0 {
		s += fmt.Sprintf(", %s whose time is over", number(n))
	}
	if n := len(a.Unseen); n > 0 {
		s += fmt.Sprintf(", %s that the run did not show", number(n))
	}
	return s + "."
}

// firstOf is the beginning of a text, of n letters at most.
func firstOf(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// BaselineText writes what a baseline says of a run, below its summary.
func BaselineText(w io.Writer, a *Applied, o Options) error {
	p := &page{color: o.Color}
	p.line("")
	p.item("  baseline     ", a.sentence())
	for _, part := range []struct {
		title   string
		entries []Entry
	}{{"known", a.Known}, {"expired, and counts again", a.Expired}, {"not seen in this run", a.Unseen}} {
		var lines []string
		for _, e := range part.entries {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s until %s %s", e.Fingerprint, e.Rule, e.Until, firstOf(e.Why, 50))))
		}
		p.list(part.title, limit(lines, maxLines))
	}
	p.list("new", limit(a.New, maxLines))
	return p.flush(w)
}
