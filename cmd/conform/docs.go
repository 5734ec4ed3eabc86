package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"conform/faults"
	"conform/harness"
	"conform/spec"
)

// generated opens each page that conform docs writes.
const generated = "<!-- Written by `conform docs docs`. Do not edit: change the registry and run it again. -->\n\n"

// docsCommand writes the reference pages of docs/. It is hidden: it is for those
// who work on conform, and a test holds the committed pages to it.
func (a *app) docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "docs DIR",
		Short:  "Write the reference pages from the registries",
		Hidden: true,
		Args:   exactly(1, "one folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			for name, page := range pages() {
				path := filepath.Join(args[0], name)
				if err := os.WriteFile(path, page, 0o644); err != nil {
					return unreadable(path, "a folder that can be written to", err)
				}
			}
			return nil
		},
	}
}

// pages are the reference pages by file name.
func pages() map[string][]byte {
	return map[string][]byte{
		"track-record.md": trackRecordPage(),
		"rules.md":        rulesPage(),
		"scenarios.md":    scenariosPage(),
		"defects.md":      defectsPage(),
		"faults.md":       faultsPage(),
		"events.md":       eventsPage(),
		"commands.md":     commandsPage(),
	}
}

// commandsPage is every command with its flags, from the command line itself.
func commandsPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Commands\n\n" + generated)
	b.WriteString("What `conform --help` and `conform COMMAND --help` say, in one place.\n")
	for _, cmd := range everyCommand((&app{}).root()) {
		if !cmd.HasParent() {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n", cmd.CommandPath(), cmd.Short)
		if !cmd.HasAvailableLocalFlags() {
			continue
		}
		b.WriteString("\n| flag | what it is |\n|---|---|\n")
		cmd.LocalFlags().VisitAll(func(fl *pflag.Flag) {
			if fl.Name != "help" {
				fmt.Fprintf(&b, "| `--%s` | %s |\n", fl.Name, fl.Usage)
			}
		})
	}
	return b.Bytes()
}

// everyCommand lists a command and all that is below it, without the hidden ones.
func everyCommand(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			all = append(all, everyCommand(sub)...)
		}
	}
	return all
}

// eventsPage is the table of the trace format: every kind and its fields.
func eventsPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Events\n\n" + generated)
	b.WriteString("A trace is JSON Lines, one event a line. Every event has `src` (the recorder, one per process), `seq` (from 0\n" +
		"per source), `t` (ns on the source's clock) and `k` (its kind); it may have `t2` (the event took effect between\n" +
		"`t` and `t2`) and `th` (its thread, `main` by default). The other fields of each kind:\n\n" +
		"| `k` | required | optional |\n|---|---|---|\n")
	for _, k := range spec.Kinds() {
		var must, may []string
		for _, f := range spec.Fields(k)[commonFields:] {
			text := fmt.Sprintf("`%s` (%s)", f.Name, f.Type)
			if f.Enum != nil {
				text = fmt.Sprintf("`%s` (%s)", f.Name, strings.Join(f.Enum, ", "))
			}
			if f.Required {
				must = append(must, text)
			} else {
				may = append(may, text)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k, strings.Join(must, ", "), strings.Join(may, ", "))
	}
	b.WriteString("\nA list of blocks has numbers and inclusive pairs: `[4,[10,13]]` is 4, 10, 11, 12, 13. Unknown further fields are\n" +
		"kept and not judged. How a trace is written in good order is in [writing-traces.md](writing-traces.md).\n")
	return b.Bytes()
}

// commonFields is how many fields every kind has: src, seq, t, t2, th, k.
const commonFields = 6

func rulesPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Rules\n\n" + generated)
	b.WriteString("Each rule has a stable id, one sentence that a stack must keep, and the least level of evidence at\n" +
		"which it can be judged (L0 the client, L1 the wire, L2 events inside the engine, L3 digests of the bytes).\n" +
		"A rule that had nothing to judge is `unexercised` in the report and never counts as passed.\n\n" +
		"How each is judged is held clause by clause by small traces (spec/clauses): `conform spec RULE` lists them,\n" +
		"`conform spec --coverage` counts which transitions of the two machines they reach.\n")
	for _, r := range spec.Rules() {
		fmt.Fprintf(&b, "\n## %s %s\n\n**%s**\n\n%s\n\nLevel %s.", r.ID, r.Name, r.Must, r.Why, r.Level)
		if r.Harm != spec.HarmNone {
			fmt.Fprintf(&b, " Harm: %s.", r.Harm)
		}
		b.WriteString("\n")
		ruleTrace(&b, "A minimal trace that breaks it", r.Bad)
		ruleTrace(&b, "A minimal trace that keeps it", r.Good)
	}
	transitionTables(&b)
	return b.Bytes()
}

// transitionTables writes the two machines and the facts of ownership.
func transitionTables(b *bytes.Buffer) {
	b.WriteString("\n## Transitions\n\nWho may take which step, when, and what makes it final.\n\n" +
		"| step | who | guard | what makes it final | rules |\n|---|---|---|---|---|\n")
	for _, t := range spec.Transitions() {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", step(t), t.Who, t.Guard, t.Final, joinRules(t.Rules))
	}
	b.WriteString("\n## Ownership\n\n| what | owner | ended by | evidence required before it is reassigned |\n|---|---|---|---|\n")
	for _, f := range spec.Ownership() {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", f.Subject, f.Owner, f.EndedBy, f.Evidence)
	}
}

func ruleTrace(b *bytes.Buffer, title string, read func() ([]byte, error)) {
	trace, err := read()
	if err != nil {
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n```json\n%s\n```\n", title, bytes.TrimRight(trace, "\n"))
}

func scenariosPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Scenarios\n\n" + generated)
	b.WriteString("A scenario is a workload, a fault plan, and the branches that it exists for: a run that does not reach\n" +
		"one of them is inconclusive, whatever else it shows. Run one with `conform run --scenario ID`.\n")
	for _, s := range harness.Scenarios() {
		fmt.Fprintf(&b, "\n## %s\n\n**%s.** %s\n", s.ID, strings.TrimSuffix(s.Title, "."), s.Why)
		for _, name := range s.Adapters() {
			scenarioOn(&b, s, name)
		}
	}
	return b.Bytes()
}

// scenarioOn writes what a scenario is for one adapter.
func scenarioOn(b *bytes.Buffer, s harness.Scenario, name string) {
	info, _ := harness.AdapterByName(name)
	word := "mode"
	if info.Engine != "" {
		word = "connector"
	}
	fmt.Fprintf(b, "\nAdapter %s, %s %s.\n", name, word, strings.Join(s.Modes(info), ", "))
	for _, mode := range s.Modes(info) {
		if branches := s.BranchesOf(name, mode); len(branches) > 0 {
			fmt.Fprintf(b, "\nWith %s %s it must have been seen that:\n\n", word, mode)
			for _, br := range branches {
				fmt.Fprintf(b, "- %s\n", br)
			}
		}
		if plan := strings.TrimSpace(s.Plan(name, mode)); plan != "" {
			fmt.Fprintf(b, "\nPlan with %s %s:\n\n```yaml\n%s\n```\n", word, mode, plan)
		}
	}
}

func defectsPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Defects\n\n" + generated)
	b.WriteString("Each defect is a class of bugs that public engines really had, switched on in the reference stack with\n" +
		"`conform run --defect NAME`. Under the first scenario that is named, every rule that is named must find it; the\n" +
		"first of them is the one by which it is known. `conform list defects --matrix` runs each under every scenario.\n")
	for _, d := range harness.Defects() {
		fmt.Fprintf(&b, "\n## %s\n\n**%s.** %s\n\n", d.Name, strings.TrimSuffix(d.Title, "."), d.Cause)
		fmt.Fprintf(&b, "Harm: %s\n\n", d.Harm)
		fmt.Fprintf(&b, "- Rules: %s\n", joinRules(d.Rules))
		fmt.Fprintf(&b, "- Forced by: %s\n", strings.Join(d.Scenarios, ", "))
		if d.Mode != "" {
			fmt.Fprintf(&b, "- Mode: %s\n", d.Mode)
		}
		if d.Clockless {
			b.WriteString("- Clocks: minutes, as engines have them\n")
		}
		fmt.Fprintf(&b, "- Public reports: %s\n", strings.Join(d.Issues, ", "))
	}
	return b.Bytes()
}

func faultsPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Faults\n\n" + generated)
	b.WriteString("What a rule of a fault plan can `do`. How plans are written: [fault-plans.md](fault-plans.md).\n")
	for _, f := range faults.Registry() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n- Where: %s\n- Legal: %s\n", f.Name, f.Summary, f.Where, f.Legal)
	}
	return b.Bytes()
}
