package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// matrixCell is a verdict in few signs: a letter for its style, a glyph and a word,
// so that none has to be told by its colour.
type matrixCell struct {
	Class, Glyph, Word string
	Count, Href        string
}

type matrixRow struct {
	Name  string
	Cell  matrixCell
	Cells []matrixCell
}

type htmlRule struct {
	ID            spec.RuleID
	Name, Must    string
	Level         spec.Level
	Cell          matrixCell
	Judged, Found string
}

// htmlTable is a section that is a table, with notes below it.
type htmlTable struct {
	ID, Short, Title, Lead string
	Head                   []string
	Rows                   []tableRow
	Notes                  []string
}

type tableRow struct {
	Class string
	Cells []string
}

func (t *htmlTable) add(class string, cells ...string) {
	t.Rows = append(t.Rows, tableRow{class, cells})
}

// bounded keeps the first rows, cuts their texts, and says how many more there are.
func (t *htmlTable) bounded(room room) {
	for _, row := range t.Rows[:min(len(t.Rows), room.rows)] {
		for i := range row.Cells {
			row.Cells[i] = fit(row.Cells[i], room.said/2)
		}
	}
	for i := range t.Notes {
		t.Notes[i] = fit(t.Notes[i], room.said)
	}
	if more := len(t.Rows) - room.rows; more > 0 {
		t.Rows = t.Rows[:room.rows]
		t.Notes = append(t.Notes, "And "+count(more, "row")+" more; --report json has all.")
	}
}

func glyphOf(v spec.Verdict) string { return cellOf(v).Glyph }

func cellOf(v spec.Verdict) matrixCell {
	c := map[spec.Verdict]matrixCell{
		spec.NotJudged: {Class: "n", Glyph: "–"}, spec.Unexercised: {Class: "x", Glyph: "·"}, spec.Pass: {Class: "p", Glyph: "✓"},
		spec.Inconclusive: {Class: "i", Glyph: "?"}, spec.Unproven: {Class: "u", Glyph: "◐"}, spec.Fail: {Class: "f", Glyph: "✗"}, spec.Error: {Class: "e", Glyph: "!"},
	}[v]
	c.Word = v.String()
	return c
}

func (p *htmlPage) rules(r *harness.RunResult) {
	by := map[spec.RuleID]harness.RuleSummary{}
	for _, s := range r.Rules {
		by[s.ID] = s
	}
	for _, rule := range spec.Rules() {
		s := by[rule.ID]
		h := htmlRule{ID: rule.ID, Name: rule.Name, Must: rule.Must, Level: rule.Level, Cell: cellOf(s.Verdict), Judged: "-", Found: "-"}
		if s.Judged > 0 {
			h.Judged = number(s.Judged)
		}
		if s.Findings > 0 {
			h.Found = number(s.Findings)
		}
		p.Rules = append(p.Rules, h)
	}
}

// matrix has a row for each run; where these are too many, for each scenario and
// mode with the worst of its seeds.
func (p *htmlPage) matrix(r *harness.RunResult) {
	for _, v := range slices.Backward(spec.Verdicts()) {
		p.Legend = append(p.Legend, cellOf(v))
	}
	shown := map[string]bool{}
	for i := range p.Findings {
		shown[p.Findings[i].ID] = true
	}
	name := named
	if len(r.Scenarios) > p.room.rows {
		name = where
		p.MatrixNote = "The seeds of a scenario and mode are one row, with the worst verdict and all findings."
	}
	type sum struct {
		verdict spec.Verdict
		rules   map[spec.RuleID]*matrixSum
	}
	var order []string
	rows := map[string]*sum{}
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		key := name(sc)
		if rows[key] == nil {
			order = append(order, key)
			rows[key] = &sum{rules: map[spec.RuleID]*matrixSum{}}
		}
		row := rows[key]
		row.verdict = max(row.verdict, sc.Verdict)
		for j := range sc.Rules {
			rule := &sc.Rules[j]
			if row.rules[rule.ID] == nil {
				row.rules[rule.ID] = &matrixSum{}
			}
			row.rules[rule.ID].add(r, sc, rule, shown)
		}
	}
	for _, key := range order[:min(len(order), p.room.rows)] {
		out := matrixRow{Name: fit(key, 100), Cell: cellOf(rows[key].verdict)}
		for _, rule := range spec.Rules() {
			cell := cellOf(spec.NotJudged)
			if s := rows[key].rules[rule.ID]; s != nil {
				cell = cellOf(s.verdict)
				cell.Count, cell.Href = countOr(s.found), s.href
			}
			out.Cells = append(out.Cells, cell)
		}
		p.Matrix = append(p.Matrix, out)
	}
	if more := len(order) - p.room.rows; more > 0 {
		p.MatrixNote += fmt.Sprintf(" And %s more.", count(more, "row"))
	}
}

// matrixSum is what a cell joins.
type matrixSum struct {
	verdict spec.Verdict
	found   int
	href    string
}

func (s *matrixSum) add(r *harness.RunResult, sc *harness.ScenarioResult, rule *check.RuleResult, shown map[string]bool) {
	s.verdict = max(s.verdict, rule.Verdict)
	s.found += found(rule)
	for i := range rule.Findings {
		if id := fit(idOf(r, sc, &rule.Findings[i]), 32); s.href == "" && shown[id] {
			s.href = "f-" + id
		}
	}
}

// tables adds what the run says of the stack itself.
func (p *htmlPage) tables(r *harness.RunResult, tale *Tale) {
	for _, t := range []htmlTable{
		signalsTable(r), settledTable(r), capacityHTML(r), faultsTable(r), branchesTable(r), coverageTable(tale), hooksTable(r),
	} {
		if len(t.Rows) == 0 && len(t.Notes) == 0 {
			continue
		}
		t.Notes = limit(t.Notes, maxLines)
		t.bounded(p.room)
		p.Tables = append(p.Tables, t)
	}
}

// strength orders predicates from what proves nothing to what proves most; stopped
// and completed say different things, and neither more than the other.
func strength(v spec.Predicate) int {
	return map[spec.Predicate]int{spec.ClaimsReceived: 1, spec.ClaimsScheduled: 2, spec.ClaimsStopped: 3, spec.ClaimsCompleted: 3, spec.ClaimsDrained: 4}[v]
}

func signalsTable(r *harness.RunResult) htmlTable {
	t := htmlTable{
		ID: "signals", Short: "Acknowledgements", Title: "What each acknowledgement proves",
		Lead: "Declared: what the adapter says that the signal means. Inferred: the strongest that held at every emission seen. Marked: it proves less than is declared.",
		Head: []string{"signal", "declared", "inferred", "seen", "what refutes more"},
	}
	for i := range r.Signals {
		s := &r.Signals[i]
		class := ""
		if strength(s.Claims) > strength(s.Inferred) {
			class = "bad"
		}
		t.add(class, s.Signal, orDash(s.Claims), orDash(s.Inferred), number(s.Seen), counterexample(s, r.Dir))
	}
	return t
}

func settledTable(r *harness.RunResult) htmlTable {
	t := htmlTable{ID: "settled", Short: "Ended requests", Title: "How ended requests gave back what they held", Head: []string{"on", "requests", "ended by", "given back", "how", "after"}}
	for _, s := range runSettled(r) {
		how, class, by := s.How, "", "-"
		switch {
		case s.How == "":
			how, class = "not seen", "bad"
		case s.By != "":
			how += ", on " + s.By
		case s.Evidence != "":
			how += ", after " + s.Evidence
		default:
			how, class = how+", on nobody’s word", "bad"
		}
		if s.After != nil {
			if by = after(s.After[0]); after(s.After[1]) != by {
				by += " to " + after(s.After[1])
			}
		}
		t.add(class, s.Worker, number(s.Requests), strings.Join(s.Ended, ", "), count(s.Holds, "hold"), how, by)
	}
	return t
}

func capacityHTML(r *harness.RunResult) htmlTable {
	t := htmlTable{
		ID: "capacity", Short: "Capacity", Title: "What each stage can process",
		Lead: "A stage that admits by what is configured and computes by what it can process is where refused requests still do work.",
		Head: []string{"stage", "configured", "can process", "unit", "why", "in"},
	}
	rows, in := capacities(r)
	for _, c := range rows {
		class := ""
		if c.Processable > 0 && c.Configured > c.Processable {
			class = "bad"
		}
		t.add(class, c.Stage, limitWord(c.Configured), limitWord(c.Processable), c.Unit, c.Why, fmt.Sprintf("%d of %s", in[c], count(len(r.Scenarios), "run")))
	}
	return t
}

// faultsTable joins the rules of the plans over the seeds.
func faultsTable(r *harness.RunResult) htmlTable {
	t := htmlTable{ID: "faults", Short: "Faults", Title: "Faults planned and fired", Head: []string{"rule of the plan", "does", "in", "planned in", "fired", "never fired in"}}
	type key struct{ where, rule, do string }
	type sum struct{ runs, fired, never int }
	sums := map[key]*sum{}
	var order []key
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		for _, f := range sc.Faults {
			k := key{where(sc), f.Rule, f.Do}
			if sums[k] == nil {
				sums[k] = &sum{}
				order = append(order, k)
			}
			s := sums[k]
			s.runs, s.fired = s.runs+1, s.fired+f.Fired
			if f.Fired == 0 {
				s.never++
			}
		}
	}
	for _, k := range order {
		s := sums[k]
		never, class := "-", ""
		if s.never > 0 {
			never, class = count(s.never, "run"), "bad"
		}
		t.add(class, k.rule, k.do, k.where, count(s.runs, "run"), times(s.fired), never)
	}
	return t
}

// branchesTable says what each scenario exists for, and whether it was reached.
func branchesTable(r *harness.RunResult) htmlTable {
	t := htmlTable{ID: "branches", Short: "Aims", Title: "What each scenario is for", Head: []string{"scenario", "must be reached", "reached in"}}
	type key struct{ where, name string }
	reached, runs := map[key]int{}, map[key]int{}
	var order []key
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		for _, b := range sc.Branches {
			k := key{where(sc), b.Name}
			if runs[k]++; runs[k] == 1 {
				order = append(order, k)
			}
			if b.Reached {
				reached[k]++
			}
		}
	}
	for _, k := range order {
		class := ""
		if reached[k] < runs[k] {
			class = "bad"
		}
		t.add(class, k.where, k.name, fmt.Sprintf("%d of %s", reached[k], count(runs[k], "run")))
	}
	return t
}

// coverageTable says which transitions of the two machines the traces take.
func coverageTable(tale *Tale) htmlTable {
	t := htmlTable{ID: "coverage", Short: "Coverage", Title: "Coverage of the specification", Head: []string{"transition", "taken", "traces", "refused by", "first in"}, Notes: slices.Clone(tale.left)}
	var parts []string
	for _, machine := range []string{"Block", "Request"} {
		rows, taken := tale.coverage(machine)
		if tale.traces == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d of %d transitions of the %s machine", taken, len(rows), strings.ToLower(machine)))
		for _, row := range rows {
			var refused []string
			for _, id := range slices.Sorted(maps.Keys(row.Refused)) {
				refused = append(refused, fmt.Sprintf("%s %s", id, times(row.Refused[id])))
			}
			class, first := "", row.First
			if row.Taken == 0 {
				class, first = "unmet", "not reached"
			}
			t.add(class, fmt.Sprintf("%s: %s –%s→ %s", row.Machine, row.From, row.Event, row.To), number(row.Taken), number(row.Traces), cmp.Or(strings.Join(refused, ", "), "-"), first)
		}
	}
	if len(parts) > 0 {
		t.Lead = strings.Join(parts, " and ") + " were taken in " + count(tale.traces, "trace") + "."
	}
	return t
}

// hooksTable says what became of the probes' hooks.
func hooksTable(r *harness.RunResult) htmlTable {
	t := htmlTable{ID: "hooks", Short: "Hooks", Title: "Hooks of the engine’s probes", Head: []string{"source", "asked", "bound", "fired", "in", "missing"}}
	type sum struct {
		h       harness.HookReport
		runs    int
		missing map[string]bool
	}
	sums := map[string]*sum{}
	var order []string
	for i := range r.Scenarios {
		for _, h := range r.Scenarios[i].Hooks {
			s := sums[h.Source]
			if s == nil {
				s = &sum{h: harness.HookReport{Asked: h.Asked, Bound: h.Bound}, missing: map[string]bool{}}
				sums[h.Source] = s
				order = append(order, h.Source)
			}
			s.runs++
			s.h.Bound = min(s.h.Bound, h.Bound)
			s.h.Fired += max(h.Fired, 0)
			for _, names := range h.Missing {
				for _, n := range names {
					s.missing[n] = true
				}
			}
		}
	}
	for _, src := range order {
		s := sums[src]
		class := ""
		if len(s.missing) > 0 {
			class = "bad"
		}
		t.add(class, src, number(s.h.Asked), number(s.h.Bound), number(s.h.Fired), count(s.runs, "run"), cmp.Or(strings.Join(slices.Sorted(maps.Keys(s.missing)), ", "), "-"))
	}
	return t
}
