package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"conform/harness"
	"conform/harness/report"
)

// The forms of a result besides text and json.
const (
	formatJUnit    = "junit"
	formatSARIF    = "sarif"
	formatMarkdown = "markdown"
	formatGitHub   = "github"
	formatHTML     = "html"
	formatBaseline = "baseline"
)

// baselineDays is for how long a baseline that was written by the program knows
// its findings.
const baselineDays = 30

// reports says in which forms a result is written, and where to.
type reports struct {
	format   string
	wanted   []string // FORMAT=FILE, or github
	unproven string
	known    string // the baseline file

	files    []reportFile
	github   bool
	baseline *report.Baseline
}

type reportFile struct{ format, path string }

// outcome is a result in all its forms.
type outcome struct {
	tree *harness.RunResult
	text func(io.Writer, report.Options) error
	json func(io.Writer, report.Options) error

	driftPPM int // what the clocks were allowed when it was judged
}

// reportFlags adds the flags that say how a result is written.
func reportFlags(cmd *cobra.Command, r *reports) {
	fl := cmd.Flags()
	fl.StringVar(&r.format, "format", formatText, "how to write the result: "+strings.Join(printed(), ", "))
	fl.StringArrayVar(&r.wanted, "report", nil, "write the result to a file besides, as `FORMAT=FILE`, with FORMAT one of --format's or baseline; "+
		"or github: annotations on standard error, and the Markdown added to the file that GITHUB_STEP_SUMMARY names; repeatable")
	fl.StringVar(&r.unproven, "unproven", "fail", "what unproven and inconclusive are in the reports: fail, or warn (skipped in JUnit, a warning elsewhere); the exit status is the same")
	fl.StringVar(&r.known, "baseline", "", "`FILE` of known findings, each until a date, that don't count for the exit status")
	inner := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(printed(), r.format) {
			return unknown("--format", r.format, printed(), "")
		}
		return inner(cmd, args)
	}
}

// printed are the forms that standard output takes.
func printed() []string {
	return []string{formatText, formatJSON, formatJUnit, formatSARIF, formatMarkdown, formatGitHub, formatHTML}
}

// open reads what the flags name, and holds that the files can be written: a run
// may take hours before it has something to write there.
func (r *reports) open() error {
	if words := []string{"fail", "warn"}; !slices.Contains(words, r.unproven) {
		return unknown("--unproven", r.unproven, words, "")
	}
	for _, w := range r.wanted {
		if w == formatGitHub {
			r.github = true
			continue
		}
		format, path, ok := strings.Cut(w, "=")
		if formats := append(printed(), formatBaseline); !slices.Contains(formats, format) {
			return unknown("--report", format, formats, "")
		}
		if !ok || path == "" {
			return usage(fmt.Sprintf("--report is %q", w), "FORMAT=FILE, such as junit=conform.xml", "")
		}
		if err := appendTo(path, nil); err != nil {
			return unreadable(path, "a file that can be written", err)
		}
		r.files = append(r.files, reportFile{format, path})
	}
	if r.known == "" {
		return nil
	}
	f, err := os.Open(r.known)
	if err != nil {
		return unreadable(r.known, "a baseline", err)
	}
	defer f.Close()
	r.baseline, err = report.ReadBaseline(r.known, f)
	return err
}

// appendTo adds to a file, which it makes if it is not there.
func appendTo(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// write writes a result in every form that was asked for. status is the exit
// status of the result, and verdict's that of the baseline takes its place.
func (a *app) write(ctx context.Context, r *reports, res outcome) error {
	o := a.reportOptions()
	o.Warn = r.unproven == "warn"
	if r.baseline != nil {
		o.Baseline = r.baseline.Apply(res.tree, a.clock())
		if a.status != statusHarness && a.status != statusUsage {
			a.status = o.Baseline.Verdict.ExitStatus()
		}
	}
	for _, f := range r.files {
		var b bytes.Buffer
		plain := o
		plain.Color = false
		if err := a.form(ctx, &b, f.format, res, plain); err != nil {
			return err
		}
		if err := os.WriteFile(f.path, b.Bytes(), 0o666); err != nil {
			return &failure{status: statusHarness, place: f.path, found: err.Error(), expected: "a file that can be written", err: err}
		}
	}
	if r.github {
		if err := a.postOnGitHub(res, o); err != nil {
			return err
		}
	}
	return a.form(ctx, a.stdout, r.format, res, o)
}

// form writes a result in one form.
func (a *app) form(ctx context.Context, w io.Writer, format string, res outcome, o report.Options) error {
	switch format {
	case formatJSON:
		return res.json(w, o)
	case formatJUnit:
		return report.JUnit(w, res.tree, o)
	case formatSARIF:
		return report.SARIF(w, res.tree, o)
	case formatMarkdown:
		return report.Markdown(w, res.tree, o)
	case formatGitHub:
		return report.Annotations(w, res.tree, o)
	case formatHTML:
		tale, err := report.Tell(ctx, res.tree, res.driftPPM)
		if err != nil {
			return err
		}
		return report.HTML(w, res.tree, tale, o)
	case formatBaseline:
		return report.WriteBaseline(w, res.tree, a.clock().AddDate(0, 0, baselineDays))
	}
	if err := res.text(w, o); err != nil || o.Baseline == nil {
		return err
	}
	return report.BaselineText(w, o.Baseline, o)
}

// postOnGitHub writes annotations where a step's log is read, and adds the summary
// to that of the step.
func (a *app) postOnGitHub(res outcome, o report.Options) error {
	if err := report.Annotations(a.stderr, res.tree, o); err != nil {
		return err
	}
	path := a.getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	var b bytes.Buffer
	if err := report.Markdown(&b, res.tree, o); err != nil {
		return err
	}
	if err := appendTo(path, append(b.Bytes(), '\n')); err != nil {
		return unreadable(path, "the file that GITHUB_STEP_SUMMARY names, which can be written", err)
	}
	return nil
}

// failed writes a tree that holds nothing but the error to what was asked for: who
// reads those files must not find those of the run before. It returns err.
func (a *app) failed(r *reports, err error) error {
	tree := report.Broken(asFailure(err).Error())
	res := outcome{
		tree: tree,
		text: func(w io.Writer, o report.Options) error { return report.Text(w, tree, o) },
		json: func(w io.Writer, _ report.Options) error { return report.FailureJSON(w, asFailure(err).json()) },
	}
	o := a.reportOptions()
	o.Color = false
	for _, f := range r.files {
		var b bytes.Buffer
		if f.format != formatBaseline && a.form(context.Background(), &b, f.format, res, o) == nil {
			_ = os.WriteFile(f.path, b.Bytes(), 0o666)
		}
	}
	if r.github {
		_ = a.postOnGitHub(res, o)
	}
	if r.format != formatText && r.format != formatJSON { // main writes these
		_ = a.form(context.Background(), a.stdout, r.format, res, o)
	}
	return err
}

// clock is the time now, which tests set.
func (a *app) clock() time.Time {
	if a.now != nil {
		return a.now()
	}
	return time.Now()
}
