package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"conform/faults"
	"conform/harness"
	"conform/harness/report"
	"conform/spec"
)

// listing is one registry that conform list shows.
type listing struct {
	name, short string
	head        []string
	rows        func() [][]string
}

// listings are the registries. The columns of a row are those of head; in JSON
// they are the fields of an object.
func listings() []listing {
	return []listing{
		{"adapters", "the stacks that can be driven", []string{"name", "modes", "level", "engine", "title"}, adapterRows},
		{"scenarios", "what a stack is put through", []string{"id", "adapters", "title"}, scenarioRows},
		{"defects", "the bug classes of the reference stack", []string{"name", "rules", "mode", "title"}, defectRows},
		{"faults", "what a fault plan can do", []string{"do", "where", "summary"}, faultRows},
		{"rules", "the rules of the protocol", []string{"id", "name", "level", "must"}, ruleRows},
	}
}

func (a *app) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List adapters, scenarios, defects, faults or rules",
		Args:  noUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var names []string
			for _, l := range listings() {
				names = append(names, l.name)
			}
			return usage("conform list was not told what to list", "one of "+strings.Join(names, ", "), "")
		},
	}
	for _, l := range listings() {
		var format string
		sub := &cobra.Command{
			Use: l.name, Short: "List " + l.short, Args: noArgs,
			RunE: func(*cobra.Command, []string) error {
				if format == formatJSON {
					return listJSON(a.stdout, l.head, l.rows())
				}
				return listText(a.stdout, l.head, l.rows())
			},
		}
		formatFlag(sub, &format)
		if l.name == "defects" {
			a.matrixFlags(sub, &format)
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

func listText(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ToUpper(strings.Join(head, "\t")))
	for _, row := range rows {
		for i := range row {
			row[i] = report.Clean(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

func listJSON(w io.Writer, head []string, rows [][]string) error {
	out := make([]map[string]string, 0, len(rows))
	for _, row := range rows {
		o := map[string]string{}
		for i, name := range head {
			o[name] = row[i]
		}
		out = append(out, o)
	}
	return report.Encode(w, out)
}

func adapterRows() [][]string {
	var rows [][]string
	for _, x := range harness.Adapters() {
		engine := x.Engine
		if engine == "" {
			engine = "-"
		}
		rows = append(rows, []string{x.Name, strings.Join(x.Modes, ","), x.Level.String(), engine, x.Title})
	}
	return rows
}

func scenarioRows() [][]string {
	var rows [][]string
	for _, x := range harness.Scenarios() {
		var where []string
		for _, name := range x.Adapters() {
			info, _ := harness.AdapterByName(name)
			where = append(where, name+" ("+strings.Join(x.Modes(info), ",")+")")
		}
		rows = append(rows, []string{x.ID, strings.Join(where, " "), x.Title})
	}
	return rows
}

func defectRows() [][]string {
	var rows [][]string
	for _, x := range harness.Defects() {
		mode := x.Mode
		if mode == "" {
			mode = "each"
		}
		rows = append(rows, []string{x.Name, joinRules(x.Rules), mode, x.Title})
	}
	return rows
}

func faultRows() [][]string {
	var rows [][]string
	for _, x := range faults.Registry() {
		rows = append(rows, []string{x.Name, x.Where, x.Summary})
	}
	return rows
}

func ruleRows() [][]string {
	var rows [][]string
	for _, r := range spec.Rules() {
		rows = append(rows, []string{string(r.ID), r.Name, r.Level.String(), r.Must})
	}
	return rows
}

func joinRules(ids []spec.RuleID) string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = string(id)
	}
	return strings.Join(s, ", ")
}
