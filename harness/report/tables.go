package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"conform/harness"
)

// runTables writes what all scenarios of a run say of the stack itself: what its
// stages can process, how it gave back what ended requests held, what its signals prove, and what its probes recorded. Rows
// that are alike are one row; the JSON has them by scenario.
func runTables(p *page, r *harness.RunResult) {
	capacityTable(p, r)
	p.settled(runSettled(r))
	p.signals(r.Signals, r.Dir)
	hookTable(p, r)
}

// capacityTable sets what each stage is configured for against what it can process.
func capacityTable(p *page, r *harness.RunResult) {
	rows, in := capacities(r)
	if len(rows) == 0 {
		return
	}
	stage, unit := len("stage"), len("unit")
	for _, c := range rows {
		stage, unit = max(stage, len(c.Stage)), max(unit, len(c.Unit))
	}
	stage, unit = min(stage, maxWord), min(unit, maxWord)
	p.line("")
	p.line(fmt.Sprintf("  %-*s %11s %11s  %-*s  %s", stage, "stage", "configured", "can process", unit, "unit", "why"))
	shown := min(len(rows), 2*maxLines)
	for _, c := range rows[:shown] {
		line := fmt.Sprintf("  %-*s %11s %11s  %-*s  %s", stage, Clean(c.Stage), limitWord(c.Configured), limitWord(c.Processable), unit, Clean(c.Unit), Clean(c.Why))
		if n := in[c]; n < len(r.Scenarios) {
			line += fmt.Sprintf(" (in %d of %s)", n, count(len(r.Scenarios), "run"))
		}
		p.line(line)
	}
	if more := len(rows) - shown; more > 0 {
		p.line(fmt.Sprintf("  and %s more", count(more, "row")))
	}
}

// capacities are the distinct rows of all scenarios, those of most first, and in how
// many each is.
func capacities(r *harness.RunResult) ([]harness.Capacity, map[harness.Capacity]int) {
	var rows []harness.Capacity
	in := map[harness.Capacity]int{}
	for _, sc := range r.Scenarios {
		for _, c := range sc.Capacity {
			if in[c]++; in[c] == 1 {
				rows = append(rows, c)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b harness.Capacity) int { return cmp.Compare(in[b], in[a]) })
	return rows, in
}

// maxWord is how wide a column of words from outside gets.
const maxWord = 24

// limitWord writes a limit, - where there is none.
func limitWord(n int64) string {
	if n <= 0 {
		return "-"
	}
	return number(int(n))
}

// hookTable says what became of the probes' hooks: one line for the sources that
// are alike, and each hook that is missing.
func hookTable(p *page, r *harness.RunResult) {
	var rows []string
	sources := map[string][]string{}
	missing := map[string]bool{}
	for _, sc := range r.Scenarios {
		for _, h := range sc.Hooks {
			fired := "-"
			if h.Fired >= 0 {
				fired = number(h.Fired)
			}
			row := fmt.Sprintf("%8s %8s %8s", number(h.Asked), number(h.Bound), fired)
			if sources[row] == nil {
				rows = append(rows, row)
			}
			if !slices.Contains(sources[row], h.Source) {
				sources[row] = append(sources[row], h.Source)
			}
			for id, names := range h.Missing {
				for _, name := range names {
					missing[fmt.Sprintf("%s needs %s, which did not bind in %s", id, name, h.Source)] = true
				}
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	p.line("")
	p.line(fmt.Sprintf("  hooks %8s %8s %8s  %s", "asked", "bound", "fired", "in"))
	shown := min(len(rows), maxLines)
	for _, row := range rows[:shown] {
		p.line("        " + row + "  " + Clean(strings.Join(sources[row], ", ")))
	}
	if more := len(rows) - shown; more > 0 {
		p.line(fmt.Sprintf("  and %s more", count(more, "row")))
	}
	p.list("hooks that are missing", limit(slices.Sorted(maps.Keys(missing)), maxLines))
}
