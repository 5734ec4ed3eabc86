package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"conform/harness/report"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// coveredJSON is one row of the coverage as programs see it.
type coveredJSON struct {
	Machine string              `json:"machine"`
	From    string              `json:"from"`
	Event   spec.Kind           `json:"event"`
	To      string              `json:"to"`
	Taken   int                 `json:"taken"`
	Traces  int                 `json:"traces"`
	First   string              `json:"first,omitempty"` // of the traces
	Refused map[spec.RuleID]int `json:"refused"`
}

// specCoverage counts which transitions traces reach: those given, or the rules'
// own.
func (a *app) specCoverage(ctx context.Context, files []string, format string) error {
	cov := check.NewCoverage()
	n := len(files)
	var err error
	if n > 0 {
		err = a.coverFiles(ctx, cov, files)
	} else {
		n, err = coverRules(ctx, cov)
	}
	if err != nil {
		return err
	}
	if format == formatJSON {
		out := []coveredJSON{}
		for _, r := range cov.Rows() {
			out = append(out, coveredJSON{r.Machine, r.From, r.Event, r.To, r.Taken, r.Traces, r.First, r.Refused})
		}
		return report.Encode(a.stdout, out)
	}
	a.writeCoverage(cov.Rows(), n)
	return nil
}

func (a *app) coverFiles(ctx context.Context, cov *check.Coverage, files []string) error {
	for _, file := range files {
		tr, err := readTrace(ctx, file, a.stdin)
		if err != nil {
			return err
		}
		if err := cov.Add(ctx, file, tr); err != nil {
			return inTrace(file, err)
		}
	}
	return nil
}

// coverRules counts the minimal traces of the rules and their clauses.
func coverRules(ctx context.Context, cov *check.Coverage) (n int, err error) {
	add := func(name string, data []byte, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		tr, err := traces.Read("-", bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		n++
		return cov.Add(ctx, name, tr)
	}
	for _, r := range spec.Rules() {
		bad, err := r.Bad()
		if err = add(string(r.ID)+".bad", bad, err); err != nil {
			return n, err
		}
		good, err := r.Good()
		if err = add(string(r.ID)+".good", good, err); err != nil {
			return n, err
		}
	}
	clauses, err := spec.Clauses()
	if err != nil {
		return n, fmt.Errorf("the rules' clauses: %w", err)
	}
	for _, c := range clauses {
		if err := add(c.ID(), c.Trace, nil); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (a *app) writeCoverage(rows []check.Covered, n int) {
	reached := 0
	for _, r := range rows {
		if r.Taken > 0 {
			reached++
		}
	}
	traces := "traces"
	if n == 1 {
		traces = "trace"
	}
	fmt.Fprintf(a.stdout, "%d of %d transitions are taken by %d %s\n\n", reached, len(rows), n, traces)
	fmt.Fprintf(a.stdout, "%-48s %6s %6s  %-24s %s\n", "transition", "taken", "traces", "refused by", "first in")
	for _, r := range rows {
		var refused []string
		for id, times := range r.Refused {
			refused = append(refused, fmt.Sprintf("%s %d", id, times))
		}
		slices.Sort(refused)
		first := report.Clean(r.First)
		if r.Taken == 0 {
			first = "not reached"
		}
		fmt.Fprintf(a.stdout, "%-48s %6d %6d  %-24s %s\n", step(r.Transition), r.Taken, r.Traces, strings.Join(refused, ", "), first)
	}
}
