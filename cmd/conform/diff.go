package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"conform/harness"
	"conform/harness/report"
	"conform/spec/check"
)

// maxResult bounds a result that is read from a file, in bytes.
const maxResult = 256 << 20

func (a *app) diffCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "diff RUN_A RUN_B",
		Short: "Compare two runs: what appeared, went away, stayed",
		Long: `Compare two runs, such as of two builds of an engine: which findings and verdicts
of rules appeared, went away or stayed, and what each signal proved before and now.
Findings are the same if their fingerprints are, whatever their seeds and times.

A run is a folder of run directories, as conform run writes it, one of these, or a
trace, all of which are judged again; or a .json file with what --report json=FILE
wrote.

A finding went away only if B judged its rule in that scenario; else it is told as
not shown. Exit status: 0 if nothing appeared, 1 or 2 for the worst that did, as of
a run, and 2 if B did not judge what A did.`,
		Args: exactly(2, "two runs: folders of run directories, "+traceWords+", or .json results"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if formats := []string{formatText, formatJSON, formatMarkdown}; !slices.Contains(formats, format) {
				return unknown("--format", format, formats, "")
			}
			var sides [2]*harness.RunResult
			for i, path := range args {
				var err error
				if sides[i], err = a.readRun(cmd.Context(), path); err != nil {
					return err
				}
			}
			d := report.Diff(args[0], sides[0], args[1], sides[1])
			a.status = d.Verdict.ExitStatus()
			switch format {
			case formatJSON:
				return report.DiffJSON(a.stdout, d)
			case formatMarkdown:
				return report.DiffMarkdown(a.stdout, d)
			}
			return report.DiffText(a.stdout, d, a.reportOptions())
		},
	}
	cmd.Flags().StringVar(&format, "format", formatText, "how to write the result: text, json, markdown")
	return cmd
}

// readRun reads a run's result, or judges its traces again.
func (a *app) readRun(ctx context.Context, path string) (*harness.RunResult, error) {
	if strings.HasSuffix(path, ".json") {
		return readResult(path)
	}
	paths := []string{path}
	if _, err := os.Stat(filepath.Join(path, "manifest.json")); errors.Is(err, os.ErrNotExist) {
		if runs, _ := filepath.Glob(filepath.Join(path, "*", "manifest.json")); len(runs) > 0 {
			paths = nil
			for _, run := range runs {
				paths = append(paths, filepath.Dir(run))
			}
		}
	}
	var judged []report.Judged
	for _, p := range paths {
		result, err := a.backend.check(ctx, p, a.stdin, check.Options{})
		if err != nil {
			return nil, err
		}
		judged = append(judged, judgedTrace(p, result))
	}
	return report.Tree(judged...), nil
}

// readResult reads what --report json=FILE wrote.
func readResult(path string) (*harness.RunResult, error) {
	const expected = "the result of a run, as --report json=FILE writes it"
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, expected, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxResult+1))
	if err != nil {
		return nil, unreadable(path, expected, err)
	}
	bad := &failure{status: statusUsage, place: path, file: filepath.Base(path), expected: expected}
	if len(text) > maxResult {
		bad.found = fmt.Sprintf("more than %d bytes", maxResult)
		return nil, bad
	}
	var r harness.RunResult
	if err := json.Unmarshal(text, &r); err != nil {
		bad.found, bad.err = err.Error(), err
		return nil, bad
	}
	if len(r.Scenarios) == 0 {
		bad.found = "no scenarios"
		return nil, bad
	}
	return &r, nil
}
