package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"conform/harness"
	"conform/harness/report"
	"conform/spec"
)

// matrixFlags lets a command that lists the defects run them all instead.
func (a *app) matrixFlags(cmd *cobra.Command, format *string) {
	var cfg harness.MatrixConfig
	run := false
	fl := cmd.Flags()
	fl.BoolVar(&run, "matrix", false, "run each defect, and the correct stack, under each scenario, and show what caught it (minutes)")
	fl.StringSliceVar(&cfg.Defects, "defect", nil, "with --matrix: this defect only (repeatable)")
	fl.StringSliceVar(&cfg.Scenarios, "scenario", nil, "with --matrix: this scenario only (repeatable)")
	fl.Uint64Var(&cfg.Seed, "seed", 1, "with --matrix: the seed of every run")
	fl.IntVar(&cfg.Jobs, "jobs", 0, "with --matrix: how many run at once (default: 6)")
	list := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if run {
			return a.matrix(cmd.Context(), cfg, *format)
		}
		for _, name := range []string{"defect", "scenario", "seed", "jobs"} {
			if cmd.Flags().Changed(name) {
				return usage("--"+name+" is given without --matrix", "both, or neither", "")
			}
		}
		return list(cmd, args)
	}
}

// matrix runs each defect against each scenario and shows what became of it.
func (a *app) matrix(ctx context.Context, cfg harness.MatrixConfig, format string) error {
	dir, err := os.MkdirTemp("", "conform-matrix-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cfg.Dir = dir
	n := 0
	cfg.Progress = func(c harness.MatrixCell) {
		if n++; a.liveErr {
			fmt.Fprintf(a.stderr, "\r%d runs; the latest: %s under %s %s\x1b[K", n, orCorrect(c.Defect), c.Scenario, c.Mode)
		}
	}
	m, err := a.backend.matrix(ctx, cfg)
	if a.liveErr {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	if len(m.Missed()) > 0 || slices.ContainsFunc(m.Cells, falseAlarm) {
		a.status = spec.Fail.ExitStatus()
	}
	if format == formatJSON {
		return report.Encode(a.stdout, m)
	}
	return matrixText(a.stdout, m)
}

// falseAlarm reports whether something was found on the correct stack.
func falseAlarm(c harness.MatrixCell) bool { return c.Defect == "" && c.Verdict != spec.Pass }

func orCorrect(defect string) string {
	if defect == "" {
		return "the correct stack"
	}
	return defect
}

func matrixText(w io.Writer, m *harness.Matrix) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DEFECT\tSCENARIO\tMODE\tCAUGHT\tVERDICT\tRULES\tHARM")
	for _, c := range m.Cells {
		if len(c.Rules) == 0 && !falseAlarm(c) {
			continue
		}
		caught := "by another rule"
		if c.Caught {
			caught = "by its rule"
		}
		if c.Defect == "" {
			caught = "FALSE ALARM"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orCorrect(c.Defect), c.Scenario, c.Mode, caught, c.Verdict, joinRules(c.Rules), c.Harm)
	}
	fmt.Fprintln(t, "\nSCENARIO\tWHAT NO OTHER CATCHES")
	var ids []string
	for id := range m.Alone {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		fmt.Fprintf(t, "%s\t%s\n", id, strings.Join(m.Alone[id], ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	clean := 0
	for _, c := range m.Cells {
		if c.Defect == "" && c.Verdict == spec.Pass {
			clean++
		}
	}
	_, err := fmt.Fprintf(w, "\n%d runs; the correct stack passed %d; defects that no scenario caught by their rule: %s\n", len(m.Cells), clean, strings.Join(m.Missed(), ", "))
	return err
}
