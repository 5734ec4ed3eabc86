package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"conform/spec"
	"conform/spec/check"
)

// findingWords says how a finding is named.
const findingWords = `FINDING is a number as check's output has it, "2" for the worst finding of the
second rule there and "2.3" for that rule's third, or a rule, "SIG-2" or
"SIG-2.3". Default: the worst finding. A trace without findings is refused, with
exit status 3. Where check was given --drift-ppm, the same is to be given here.`

// chosen is a judged trace and one of its findings.
type chosen struct {
	path    string
	trace   *spec.Trace
	judged  *check.Judged
	finding check.Finding
	name    string // of the finding, as one can say it again

	driftPPM int // that the clocks were allowed
}

// choose judges the trace that the arguments name, and picks the finding.
func (a *app) choose(ctx context.Context, args []string, driftPPM int) (*chosen, error) {
	if err := checkDrift(driftPPM); err != nil {
		return nil, err
	}
	c := &chosen{path: args[0], driftPPM: driftPPM}
	var err error
	if c.trace, c.judged, err = readAndJudge(ctx, c.path, a.stdin, check.Options{DriftPPM: driftPPM}); err != nil {
		return nil, err
	}
	name := ""
	if len(args) > 1 {
		name = args[1]
	}
	if c.finding, c.name, err = pick(c.judged.Result, name); err != nil {
		return nil, err
	}
	return c, nil
}

// readAndJudge reads a whole trace and judges it.
func readAndJudge(ctx context.Context, path string, stdin io.Reader, opt check.Options) (*spec.Trace, *check.Judged, error) {
	trace, err := readTrace(ctx, path, stdin)
	if err != nil {
		return nil, nil, err
	}
	judged, err := check.Open(ctx, trace, opt)
	if err != nil {
		return nil, nil, inTrace(path, err)
	}
	return trace, judged, nil
}

// pick finds a finding by its name, "" for the worst.
func pick(r *check.Result, name string) (check.Finding, string, error) {
	ranked := r.Ranked()
	if len(ranked) == 0 {
		return check.Finding{}, "", usage("the trace has no finding: its verdict is "+r.Verdict.String(), "a trace in which a rule was broken, or left open", "")
	}
	if name == "" {
		name = "1"
	}
	group, nth, dotted := strings.Cut(name, ".")
	at := -1
	for i := range ranked {
		if strconv.Itoa(i+1) == group || strings.EqualFold(string(ranked[i].ID), group) {
			at = i
		}
	}
	if at < 0 {
		return check.Finding{}, "", unknown("finding", name, findingNames(ranked), "conform check")
	}
	n := 1
	if dotted {
		var err error
		if n, err = strconv.Atoi(nth); err != nil || n < 1 || n > len(ranked[at].Findings) {
			return check.Finding{}, "", usage(fmt.Sprintf("no finding %q", name),
				fmt.Sprintf("%s.1 to %s.%d", group, group, len(ranked[at].Findings)), "")
		}
	}
	full := strconv.Itoa(at + 1)
	if n > 1 {
		full += "." + strconv.Itoa(n)
	}
	return ranked[at].Findings[n-1], full, nil
}

func findingNames(ranked []check.RuleResult) []string {
	var names []string
	for i := range ranked {
		names = append(names, strconv.Itoa(i+1), string(ranked[i].ID))
	}
	return names
}

// traceAndFinding takes one trace, and perhaps a finding.
func traceAndFinding(cmd *cobra.Command, args []string) error {
	if len(args) == 1 || len(args) == 2 {
		return nil
	}
	return exactly(1, "one trace, "+traceWords+", and perhaps a finding")(cmd, args)
}
