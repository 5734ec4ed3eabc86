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

// notJudged are the rules that this version registers and has no judge for.
func isJudged(id spec.RuleID) bool {
	return id != spec.REQ3 && id != spec.SIG3 && id != spec.SIG4
}

func (a *app) specCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "spec [RULE]",
		Short: "Show the protocol: its rules and its transitions, or one rule",
		Long: `Show the protocol that traces are judged by: each rule with its sentence, and who
may take which transition, when, and on what evidence. With a rule's id: that
rule with a minimal trace that breaks it and one that keeps it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactly(1, "one rule id or none")(cmd, args)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
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
	ID     spec.RuleID `json:"id"`
	Name   string      `json:"name"`
	Must   string      `json:"must"`
	Why    string      `json:"why"`
	Level  spec.Level  `json:"level"`
	Judged bool        `json:"judged"`
	Harm   spec.Harm   `json:"harm,omitempty"`
	Bad    string      `json:"bad,omitempty"`
	Good   string      `json:"good,omitempty"`
}

func ruleFields(r spec.Rule) ruleJSON {
	return ruleJSON{ID: r.ID, Name: r.Name, Must: r.Must, Why: r.Why, Level: r.Level, Judged: isJudged(r.ID), Harm: r.Harm}
}

func (a *app) specAll(format string) error {
	if format == formatJSON {
		return specAllJSON(a.stdout)
	}
	fmt.Fprintln(a.stdout, "RULES")
	for _, r := range spec.Rules() {
		fmt.Fprintln(a.stdout)
		writeRule(a.stdout, r)
	}
	return writeTransitions(a.stdout)
}

func writeRule(w io.Writer, r spec.Rule) {
	fmt.Fprintf(w, "%s %s (level %s, %s)\n", r.ID, r.Name, r.Level, judgedWord(r.ID))
	fmt.Fprintf(w, "  must  %s\n", r.Must)
	fmt.Fprintf(w, "  why   %s\n", r.Why)
	if r.Harm != spec.HarmNone {
		fmt.Fprintf(w, "  harm  %s\n", r.Harm)
	}
}

func (a *app) specRule(r spec.Rule, format string) error {
	bad, errBad := r.Bad()
	good, errGood := r.Good()
	if format == formatJSON {
		out := ruleFields(r)
		out.Bad, out.Good = string(bad), string(good)
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
	return nil
}

// TODO until spec.Transitions has landed.
func writeTransitions(w io.Writer) error { _, err := fmt.Fprintln(w, "\nTRANSITIONS"); return err }

func transitionsPage() string { return "" }

func specAllJSON(w io.Writer) error { _, err := fmt.Fprintln(w, `{"transitions":[]}`); return err }
