package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"conform/harness/report"
	"conform/spec/check"
)

func (a *app) shrinkCommand() *cobra.Command {
	var format, out string
	var limit time.Duration
	var drift int
	cmd := &cobra.Command{
		Use:   "shrink TRACE [FINDING]",
		Short: "Cut a trace down to the smallest that still shows a finding",
		Long: `Cut a trace down to the smallest that still shows a finding: the same rule and
verdict, about the same block, handoff and request, shown by the same events. The
trace that is left is valid and sealed anew; without -o it goes to standard output.

` + findingWords,
		Args: traceAndFinding,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit <= 0 {
				return usage(fmt.Sprintf("--limit is %s", limit), "a time above 0, such as 2m", "")
			}
			if out != "" {
				if err := newTraceFile(out, args[0]); err != nil {
					return err
				}
			}
			c, err := a.choose(cmd.Context(), args, drift)
			if err != nil {
				return err
			}
			small, err := check.Shrink(cmd.Context(), c.trace, c.judged.Result, c.finding, check.ShrinkOptions{Limit: limit, DriftPPM: drift})
			if errors.Is(err, check.ErrCannotShrink) {
				return &failure{status: statusHarness, place: c.path, found: err.Error(), err: err}
			} else if err != nil {
				return err
			}
			return a.shrunk(c, small, out, format)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "the .jsonl `FILE` to write the trace to")
	cmd.Flags().DurationVar(&limit, "limit", 30*time.Second, "how long to go on at most; what is smallest then is the result")
	formatFlag(cmd, &format)
	driftFlag(cmd, &drift)
	return cmd
}

// newTraceFile refuses a file that a trace can't be written to.
func newTraceFile(out, trace string) error {
	if !strings.HasSuffix(out, ".jsonl") {
		return usage(fmt.Sprintf("--out is %q", out), "a file name that ends in .jsonl", "")
	}
	if a, err := os.Stat(out); err == nil {
		if b, err := os.Stat(trace); err == nil && os.SameFile(a, b) {
			return usage(fmt.Sprintf("--out is the trace itself, %q", out), "another file", "")
		}
	}
	return nil
}

// shrunkJSON is what shrink tells a program.
type shrunkJSON struct {
	Finding check.Finding `json:"finding"`
	Before  int           `json:"events_before"`
	After   int           `json:"events_after"`
	Judged  int           `json:"judged"`
	Minimal bool          `json:"minimal"`
	File    string        `json:"file,omitempty"`
	Trace   string        `json:"trace,omitempty"`
}

// shrunk writes the smaller trace, and says what it is.
func (a *app) shrunk(c *chosen, small *check.Shrunk, out, format string) error {
	var lines bytes.Buffer
	if err := check.WriteTrace(&lines, small.Trace); err != nil {
		return err
	}
	if out != "" {
		if err := os.WriteFile(out, lines.Bytes(), 0o666); err != nil {
			return unreadable(out, "a file that can be written", err)
		}
	}
	if format == formatJSON {
		j := shrunkJSON{
			Finding: small.Finding, Before: len(c.trace.Events), After: len(small.Trace.Events),
			Judged: small.Judged, Minimal: small.Minimal, File: out,
		}
		if out == "" {
			j.Trace = lines.String()
		}
		return report.Encode(a.stdout, j)
	}
	to := a.stdout
	if out == "" {
		to = a.stderr
	}
	least := "nothing more can be left out"
	if !small.Minimal {
		least = "the time was up before it was the smallest: --limit"
	}
	fmt.Fprintf(to, "%s %s: %d of %d events show it; %s\n", small.Finding.Rule, small.Finding.Verdict,
		len(small.Trace.Events), len(c.trace.Events), least)
	if out != "" {
		again := report.Quote(out)
		if c.driftPPM > 0 {
			again = fmt.Sprintf("--drift-ppm %d %s", c.driftPPM, again)
		}
		fmt.Fprintf(to, "  %s check %s\n", a.program, again)
		return nil
	}
	_, err := a.stdout.Write(lines.Bytes())
	return err
}
