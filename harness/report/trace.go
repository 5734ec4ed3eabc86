package report

import (
	"fmt"
	"io"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// Judged is one saved trace, named as the user gave it, and what judging it gave.
type Judged struct {
	Trace  string
	Result *check.Result
	// Manifest is that of the run directory that the trace is; nil without one.
	Manifest *traces.Manifest
	// Failure is why there is no result, and Why says it in one line.
	Failure *Failure
	Why     string
}

// TraceText writes the summary of one judged trace. The trace is named as the
// user gave it.
func TraceText(w io.Writer, trace string, r *check.Result, o Options) error {
	p := &page{color: o.Color}
	p.headline(r.Verdict, traceHeadline(r))
	p.field("trace", trace)
	p.judged(r.Stats, r.Rules)
	rows := make([]ruleRow, 0, len(r.Rules))
	for i := range r.Rules {
		rule := &r.Rules[i]
		rows = append(rows, ruleRow{rule.ID, rule.Verdict, rule.Judged, found(rule)})
	}
	p.rules(rows)
	groups := groupPlaces(placesOf(nil, r.Rules))
	writeGroups(p, groups)
	p.settled(r.Settled)
	p.signals(r.Signals, "")
	p.traceEnd(trace, r, groups, o)
	return p.flush(w)
}

// TracesText writes the summary of several traces that were judged: first what they
// show together, then each under its name.
func TracesText(w io.Writer, judged []Judged, o Options) error {
	p := &page{color: o.Color}
	sum := joined(judged)
	var stats check.Stats
	var rules []check.RuleResult
	for _, t := range judged {
		if t.Result != nil {
			stats, rules = addStats(stats, t.Result.Stats), append(rules, t.Result.Rules...)
		}
	}
	p.headline(sum.Verdict, tracesHeadline(judged))
	if len(rules) > 0 { // else there is nothing to sum up
		p.judged(stats, rules)
		p.runRules(sum.Rules)
		p.signals(sum.Signals, "")
	}
	for _, t := range judged {
		p.line("")
		if t.Result == nil {
			p.headline(spec.Error, Clean(t.Trace)+": it could not be judged")
			p.wrapped("  ", t.Why)
			continue
		}
		head := Clean(t.Trace)
		if more := traceHeadline(t.Result); more != "" {
			head += ": " + more
		}
		p.headline(t.Result.Verdict, head)
		p.judged(t.Result.Stats, t.Result.Rules)
		groups := groupPlaces(placesOf(nil, t.Result.Rules))
		writeGroups(p, groups)
		p.settled(t.Result.Settled)
		p.traceEnd(t.Trace, t.Result, groups, o)
	}
	return p.flush(w)
}

// judged says how much was judged, and by what evidence.
func (p *page) judged(s check.Stats, rules []check.RuleResult) {
	p.field("judged", fmt.Sprintf("%s of %s, %s; %s", count(s.Events, "event"), count(s.Sources, "source"),
		count(s.Workers, "worker"), statsLine(s)))
	p.field("evidence", "up to "+levelReached(rules).String())
	if s.Histories > 0 {
		p.field("porcupine", fmt.Sprintf("judged %s of blocks too: %s refused, %s undecided",
			historyCount(s.Histories), number(s.Refused), number(s.Undecided)))
	}
}

// traceEnd says what limits a trace's verdict, and what looks closer.
func (p *page) traceEnd(trace string, r *check.Result, groups []group, o Options) {
	p.clocks(r.Clocks)
	p.list("what limits the verdict", r.Notes)
	if len(groups) > 0 {
		p.line("")
		p.field("in words", fmt.Sprintf("%s explain %s", o.program(), Quote(trace)))
		p.field("the rule", fmt.Sprintf("%s spec %s", o.program(), groups[0].rule))
	}
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

// tracesHeadline counts the traces by their verdicts, the worst first.
func tracesHeadline(judged []Judged) string {
	var parts []string
	all := spec.Verdicts()
	for i := range all {
		v, n := all[len(all)-1-i], 0
		for _, t := range judged {
			if t.verdict() == v {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", number(n), v))
		}
	}
	return count(len(judged), "trace") + ": " + strings.Join(parts, ", ")
}

func (t *Judged) verdict() spec.Verdict {
	if t.Result == nil {
		return spec.Error
	}
	return t.Result.Verdict
}

// tracesJSON is what several traces show together, and each alone.
type tracesJSON struct {
	Verdict spec.Verdict          `json:"verdict"`
	Rules   []harness.RuleSummary `json:"rules"`
	Signals []check.SignalResult  `json:"signals"`
	Traces  []any                 `json:"traces"`

	Baseline *Applied `json:"baseline,omitempty"`
}

// joined takes the worst of the traces, and sums up their rules and signals.
func joined(judged []Judged) tracesJSON {
	sum := tracesJSON{Verdict: spec.Pass}
	var rules [][]check.RuleResult
	var signals []check.TraceSignals
	for _, t := range judged {
		sum.Verdict = spec.Worst(sum.Verdict, t.verdict())
		if t.Result != nil {
			rules, signals = append(rules, t.Result.Rules), append(signals, check.TraceSignals{Trace: t.Trace, Signals: t.Result.Signals})
		}
	}
	sum.Rules, sum.Signals = harness.SumRules(rules), list(check.JoinSignals(signals))
	return sum
}

// TracesJSON writes the result of judging several traces.
func TracesJSON(w io.Writer, judged []Judged, o Options) error {
	sum := joined(judged)
	sum.Baseline = o.Baseline
	for _, t := range judged {
		if t.Result == nil {
			sum.Traces = append(sum.Traces, struct {
				Trace   string       `json:"trace"`
				Verdict spec.Verdict `json:"verdict"`
				Error   *Failure     `json:"error"`
			}{t.Trace, spec.Error, t.Failure})
			continue
		}
		sum.Traces = append(sum.Traces, struct {
			Trace string `json:"trace"`
			*check.Result
		}{t.Trace, listed(t.Result)})
	}
	return Encode(w, sum)
}

func historyCount(n int) string {
	if n == 1 {
		return "1 history"
	}
	return number(n) + " histories"
}
