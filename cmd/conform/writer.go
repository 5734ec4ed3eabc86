package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"conform/adapters/external"
	"conform/harness/report"
	"conform/spec"
)

// writersCommand puts the writers of traces where the user wants them.
func (a *app) writersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "writers DIR",
		Short: "Put a C header and a Python module that write traces into a folder",
		Long: `Put conform_trace.h (C99, POSIX threads) and conform_trace.py (Python 3.10 or
later, standard library) into DIR, for stacks that record themselves. Each begins
with how it is used; docs/writing-traces.md tells what to record where, and
conform check --writer what a judge can make of what was recorded.`,
		Args: exactly(1, "a folder"),
		RunE: func(_ *cobra.Command, args []string) error { return a.unpackWriters(args[0]) },
	}
}

// unpackWriters leaves a file that is there already as it is, and says so.
func (a *app) unpackWriters(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return unreadable(dir, "a folder that can be made", err)
	}
	names, err := fs.Glob(external.Writers(), "*")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(external.Writers(), name)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return unreadable(path, "a file that is not there yet, in a folder that can be written to", err)
		}
		_, err = f.Write(text)
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return unreadable(path, "room for it", err)
		}
		fmt.Fprintln(a.stdout, path)
	}
	return nil
}

// checkWriterAlone is check --writer: one trace, and no flag that is about judging.
func (a *app) checkWriterAlone(cmd *cobra.Command, args []string, format string) error {
	if len(args) > 1 {
		return exactly(1, "one trace: "+traceWords)(cmd, args)
	}
	for _, name := range []string{"checker", "drift-ppm", "report", "baseline", "unproven"} {
		if cmd.Flags().Changed(name) {
			return usage("--"+name+" is about judging, and --writer judges nothing", "one of the two", "")
		}
	}
	if format != formatText && format != formatJSON {
		return unknown("--format", format, []string{formatText, formatJSON}, "")
	}
	return a.checkWriter(cmd.Context(), args[0], format)
}

// checkWriter says what a judge can make of what some writer has recorded.
func (a *app) checkWriter(ctx context.Context, path, format string) error {
	trace, err := readTrace(ctx, path, a.stdin)
	if err != nil {
		return err
	}
	points := external.Examine(trace)
	for _, p := range points {
		if p.Grade == external.Broken {
			a.status = spec.Fail.ExitStatus()
		}
	}
	if format == formatJSON {
		return writerJSON(a.stdout, path, len(trace.Events), points)
	}
	return writerText(a.stdout, path, len(trace.Events), points)
}

func writerText(w io.Writer, path string, events int, points []external.Point) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d events, each as the format wants it\n", report.Clean(path), events)
	for _, p := range points {
		fmt.Fprintf(&b, "  %-6s  %s", p.Grade, p.Name)
		switch {
		case p.Wrong > 0:
			fmt.Fprintf(&b, ": not in %d of %d\n          %s%s\n          %s\n", p.Wrong, max(p.Seen, p.Wrong), place(p.First), report.Clean(p.Found), p.Advice)
		case p.Grade == external.Absent:
			fmt.Fprintf(&b, ": nothing is about it\n          %s\n", p.Advice)
		default:
			fmt.Fprintf(&b, " (%d)\n", p.Seen)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func place(pos spec.Position) string {
	if pos.Line == 0 {
		return ""
	}
	return report.Clean(fmt.Sprintf("%s:%d: ", pos.File, pos.Line))
}

func writerJSON(w io.Writer, path string, events int, points []external.Point) error {
	type point struct {
		Name   string         `json:"name"`
		Grade  external.Grade `json:"grade"`
		Seen   int            `json:"seen"`
		Wrong  int            `json:"wrong"`
		File   string         `json:"file,omitempty"`
		Line   int            `json:"line,omitempty"`
		Found  string         `json:"found,omitempty"`
		Advice string         `json:"advice"`
	}
	out := struct {
		Trace  string  `json:"trace"`
		Events int     `json:"events"`
		Points []point `json:"points"`
	}{Trace: path, Events: events, Points: []point{}}
	for _, p := range points {
		out.Points = append(out.Points, point{p.Name, p.Grade, p.Seen, p.Wrong, p.First.File, p.First.Line, p.Found, p.Advice})
	}
	return json.NewEncoder(w).Encode(out)
}
