package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"conform/harness/export"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// The values of --to, and how the names of their files end.
const (
	exportPorcupine = "porcupine"
	exportPerfetto  = "perfetto"
	exportParquet   = "parquet"
	exportCSV       = "csv"
)

var exportForms = []string{exportPorcupine, exportPerfetto, exportParquet, exportCSV}

func suffixOf(form string) string {
	switch form {
	case exportPorcupine:
		return ".html"
	case exportPerfetto:
		return ".pftrace"
	}
	return "." + form
}

func (a *app) exportCommand() *cobra.Command {
	var to, out string
	var drift int
	cmd := &cobra.Command{
		Use:   "export --to FORM TRACE [FINDING]",
		Short: "Write a trace, or a finding, in the form of another tool",
		Long: `Write a trace, or a finding of it, in the form of another tool.

perfetto: a timeline for ui.perfetto.dev, with a track for each block whose leases
and accesses are slices, an arrow for each signal, and each finding marked.
parquet, csv: a table with one row for each event and a column for each field.
porcupine: one HTML page, Porcupine's picture of the smallest history that it
refuses, of one finding, for what fails BLK-1 to BLK-4.

The first three write event by event, and take little memory for a trace of any
length; of perfetto, judging the trace takes what conform check takes. The same trace
gives the same bytes. Without -o csv and porcupine go to standard output.

` + findingWords,
		Args: traceAndFinding,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(exportForms, to) {
				return unknown("--to", to, exportForms, "")
			}
			if suffix := suffixOf(to); out != "" && !strings.HasSuffix(out, suffix) {
				return usage(fmt.Sprintf("--out is %q", out), "a file name that ends in "+suffix, "")
			}
			if to == exportPorcupine {
				return a.exportPicture(cmd.Context(), args, out, drift)
			}
			if len(args) > 1 {
				return usage("a finding is named, and --to "+to+" writes the whole trace", "a trace alone", "--to porcupine draws one finding")
			}
			return a.exportTrace(cmd.Context(), to, args[0], out, drift)
		},
	}
	cmd.Flags().StringVar(&to, "to", exportPorcupine, "the form: "+strings.Join(exportForms, ", "))
	driftFlag(cmd, &drift)
	cmd.Flags().StringVarP(&out, "out", "o", "", "the `FILE` to write to: .html, .pftrace, .parquet or .csv")
	return cmd
}

// exportPicture writes Porcupine's picture of a finding.
func (a *app) exportPicture(ctx context.Context, args []string, out string, drift int) error {
	c, err := a.choose(ctx, args, drift)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := c.judged.Picture(c.finding, &page); errors.Is(err, check.ErrNoPicture) {
		return usage(fmt.Sprintf("finding %s, %s %s, has no picture", c.name, c.finding.Rule, c.finding.Verdict),
			"what fails BLK-1, BLK-2, BLK-3 or BLK-4", "conform explain draws every finding")
	} else if err != nil {
		return err
	}
	if out == "" {
		_, err := a.stdout.Write(page.Bytes())
		return err
	}
	if err := os.WriteFile(out, page.Bytes(), 0o666); err != nil {
		return unreadable(out, "a file that can be written", err)
	}
	fmt.Fprintf(a.stdout, "%s %s: Porcupine's picture of it is in %s\n", c.finding.Rule, c.finding.Verdict, out)
	return nil
}

// exportTrace writes a whole trace.
func (a *app) exportTrace(ctx context.Context, to, path, out string, drift int) error {
	if err := checkDrift(drift); err != nil {
		return err
	}
	if out == "" && to != exportCSV {
		return usage("--out is missing: "+to+" is no text", "a file name that ends in "+suffixOf(to), "")
	}
	if path == "-" && to == exportPerfetto {
		return usage("--to perfetto reads a trace more than once, and standard input can't be", "a file or a run directory", "")
	}
	var result *check.Result
	if to == exportPerfetto {
		var err error
		if result, err = a.backend.check(ctx, path, a.stdin, check.Options{DriftPPM: drift}); err != nil {
			return err
		}
		signed := judgedTrace(path, result)
		signed.Sign()
	}
	var losses []spec.Loss
	rows := 0
	events := func(each func(*spec.Event) error) (err error) {
		rows = 0
		losses, err = traces.Walk(ctx, path, a.stdin, func(e *spec.Event) error {
			rows++
			return each(e)
		})
		return err
	}
	write := func(w io.Writer) error {
		switch to {
		case exportPerfetto:
			return export.Perfetto(w, events, result)
		case exportParquet:
			return export.Parquet(w, events)
		}
		return export.CSV(w, events)
	}
	var err error
	if out == "" {
		err = write(a.stdout)
	} else {
		err = newFile(out, write)
	}
	if err != nil {
		return notExported(path, out, err)
	}
	for _, l := range losses {
		fmt.Fprintf(a.stderr, "conform: source %q is not complete: %s\n", l.Src, l.Why)
	}
	if out != "" {
		fmt.Fprintf(a.stdout, "%d events of %s are in %s\n", rows, path, out)
	}
	return nil
}

// newFile writes a file that is there when it is whole.
func newFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// notExported is the failure to write a trace in another form.
func notExported(path, out string, err error) error {
	if limit, ok := errors.AsType[*export.LimitError](err); ok {
		return usage(path+" is too large to be drawn: "+limit.Error(), "a smaller trace", "conform shrink cuts it down to one finding; --to parquet and csv have no such limit")
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok && out != "" && strings.HasPrefix(filepath.Base(pe.Path), "."+filepath.Base(out)) {
		return unreadable(out, "a file that can be written", pe.Err)
	}
	return unreadableTrace(path, err)
}
