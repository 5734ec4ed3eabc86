package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"conform/harness/report"
	"conform/spec"
)

func (a *app) specCommand() *cobra.Command {
	var format string
	var coverage bool
	cmd := &cobra.Command{
		Use:   "spec [RULE] | spec --coverage [TRACE...]",
		Short: "Show the protocol: its rules and its transitions, or one rule",
		Long: `Show the protocol that traces are judged by: each rule with its sentence, and who
may take which transition, when, and on what evidence. With a rule's id: that
rule with a minimal trace that breaks it, one that keeps it, and the clauses of
how it is judged that have traces of their own.

--coverage replays the minimal traces of all rules and clauses and counts how
often each transition is taken, and by which rules its guard refuses. With
traces, it counts those instead: what a run of a stack reached of the protocol.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 && !coverage {
				return exactly(1, "one rule id or none")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if coverage {
				return a.specCoverage(cmd.Context(), args, format)
			}
			if len(args) == 0 {
				return a.specAll(format)
			}
			r, err := ruleNamed(args[0])
			if err != nil {
				return err
			}
			return a.specRule(r, format)
		},
	}
	formatFlag(cmd, &format)
	cmd.Flags().BoolVar(&coverage, "coverage", false, "count which transitions the rules' own traces, or the given ones, reach")
	return cmd
}

func ruleNamed(name string) (spec.Rule, error) {
	if r, ok := spec.RuleByID(spec.RuleID(strings.ToUpper(name))); ok {
		return r, nil
	}
	var ids []string
	for _, r := range spec.Rules() {
		ids = append(ids, string(r.ID))
	}
	return spec.Rule{}, unknown("rule", name, ids, "conform list rules")
}

// ruleJSON is a rule as programs see it.
type ruleJSON struct {
	ID    spec.RuleID `json:"id"`
	Name  string      `json:"name"`
	Must  string      `json:"must"`
	Why   string      `json:"why"`
	Level spec.Level  `json:"level"`
	Harm  spec.Harm   `json:"harm,omitempty"`
	Bad   string      `json:"bad,omitempty"`
	Good  string      `json:"good,omitempty"`
	// Clauses are listed for one rule only.
	Clauses []clauseJSON `json:"clauses,omitempty"`
}

// clauseJSON is one clause of how a rule is judged.
type clauseJSON struct {
	Name    string       `json:"name"`
	Verdict spec.Verdict `json:"verdict"`
	Trace   string       `json:"trace"`
}

func clausesOf(id spec.RuleID) ([]clauseJSON, error) {
	all, err := spec.Clauses()
	if err != nil {
		return nil, fmt.Errorf("the rules' clauses: %w", err)
	}
	var out []clauseJSON
	for _, c := range all {
		if c.Rule == id {
			out = append(out, clauseJSON{c.Name, c.Want, string(c.Trace)})
		}
	}
	return out, nil
}

func ruleFields(r spec.Rule) ruleJSON {
	return ruleJSON{ID: r.ID, Name: r.Name, Must: r.Must, Why: r.Why, Level: r.Level, Harm: r.Harm}
}

func (a *app) specAll(format string) error {
	if format == formatJSON {
		return report.Encode(a.stdout, specJSON())
	}
	fmt.Fprintln(a.stdout, "RULES")
	for _, r := range spec.Rules() {
		fmt.Fprintln(a.stdout)
		writeRule(a.stdout, r)
	}
	writeTransitions(a.stdout)
	writeOwnership(a.stdout)
	return nil
}

func writeRule(w io.Writer, r spec.Rule) {
	fmt.Fprintf(w, "%s %s (level %s)\n", r.ID, r.Name, r.Level)
	fmt.Fprintf(w, "  must  %s\n", r.Must)
	fmt.Fprintf(w, "  why   %s\n", r.Why)
	if r.Harm != spec.HarmNone {
		fmt.Fprintf(w, "  harm  %s\n", r.Harm)
	}
}

func (a *app) specRule(r spec.Rule, format string) error {
	bad, errBad := r.Bad()
	good, errGood := r.Good()
	clauses, err := clausesOf(r.ID)
	if err != nil {
		return err
	}
	if format == formatJSON {
		out := ruleFields(r)
		out.Bad, out.Good, out.Clauses = string(bad), string(good), clauses
		return report.Encode(a.stdout, out)
	}
	writeRule(a.stdout, r)
	for _, t := range []struct {
		title string
		trace []byte
		err   error
	}{{"a minimal trace that breaks it", bad, errBad}, {"a minimal trace that keeps it", good, errGood}} {
		if t.err != nil {
			continue
		}
		fmt.Fprintf(a.stdout, "\n%s\n", t.title)
		for line := range bytes.Lines(t.trace) {
			fmt.Fprintf(a.stdout, "  %s\n", bytes.TrimRight(line, "\n"))
		}
	}
	fmt.Fprintln(a.stdout, "\nhow it is judged, by clause (--format json has the traces)")
	for _, c := range clauses {
		fmt.Fprintf(a.stdout, "  %-40s %s\n", c.Name, c.Verdict)
	}
	return nil
}

// writeTransitions writes who may take which step, when, and on what evidence.
func writeTransitions(w io.Writer) {
	fmt.Fprintln(w, "\nTRANSITIONS")
	for _, t := range spec.Transitions() {
		fmt.Fprintf(w, "\n%s\n", step(t))
		fmt.Fprintf(w, "  who    %s\n  guard  %s\n  final  %s\n", t.Who, t.Guard, t.Final)
		if len(t.Rules) > 0 {
			fmt.Fprintf(w, "  rules  %s\n", joinRules(t.Rules))
		}
	}
}

// step names a transition.
func step(t spec.Transition) string {
	if t.From == "" {
		return fmt.Sprintf("%s: %s -> %s", t.Machine, t.Event, t.To)
	}
	return fmt.Sprintf("%s %s: %s -> %s", t.Machine, t.From, t.Event, t.To)
}

func writeOwnership(w io.Writer) {
	fmt.Fprintln(w, "\nOWNERSHIP")
	for _, f := range spec.Ownership() {
		fmt.Fprintf(w, "\n%s\n  owner     %s\n  ended by  %s\n  evidence  %s\n", f.Subject, f.Owner, f.EndedBy, f.Evidence)
	}
}

// protocolJSON is the protocol as programs see it.
type protocolJSON struct {
	Rules       []ruleJSON       `json:"rules"`
	Transitions []transitionJSON `json:"transitions"`
	Ownership   []factJSON       `json:"ownership"`
}

type transitionJSON struct {
	Machine string        `json:"machine"`
	From    string        `json:"from"`
	Event   spec.Kind     `json:"event"`
	To      string        `json:"to"`
	Who     string        `json:"who"`
	Guard   string        `json:"guard"`
	Final   string        `json:"final"`
	Rules   []spec.RuleID `json:"rules"`
}

type factJSON struct {
	Subject  string `json:"subject"`
	Owner    string `json:"owner"`
	EndedBy  string `json:"ended_by"`
	Evidence string `json:"evidence"`
}

func specJSON() protocolJSON {
	var p protocolJSON
	for _, r := range spec.Rules() {
		p.Rules = append(p.Rules, ruleFields(r))
	}
	for _, t := range spec.Transitions() {
		t.Rules = append([]spec.RuleID{}, t.Rules...)
		p.Transitions = append(p.Transitions, transitionJSON(t))
	}
	for _, f := range spec.Ownership() {
		p.Ownership = append(p.Ownership, factJSON(f))
	}
	return p
}
