package report

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// Sign gives the findings of a judged trace their fingerprints, in the scope that
// its manifest tells: adapter, scenario and mode, as a run does. A trace without a
// manifest has no scope: its name may differ from run to run.
func (t *Judged) Sign() {
	if t.Result == nil {
		return
	}
	if m := t.Manifest; m != nil && len(m.Scenarios) == 1 {
		check.Sign(t.Result.Rules, m.Adapter.Name, m.Scenarios[0], m.Mode)
		return
	}
	check.Sign(t.Result.Rules)
}

// cell is the branch of a result tree for a judged trace. Without a manifest its
// scenario is the file's name.
func (t *Judged) cell() harness.ScenarioResult {
	c := harness.ScenarioResult{ID: filepath.Base(t.Trace), Trace: t.Trace, Verdict: spec.Error, Why: t.Why}
	if t.Trace == "-" {
		c.ID = "standard-input"
	}
	if m := t.Manifest; m != nil && len(m.Scenarios) == 1 {
		c.ID, c.Mode, c.Seed, c.Probe = m.Scenarios[0], m.Mode, m.Seed, m.Adapter.Probe
	}
	if r := t.Result; r != nil {
		c.Verdict, c.Rules, c.Signals, c.Stats, c.Notes, c.Settled = r.Verdict, r.Rules, r.Signals, r.Stats, r.Notes, r.Settled
	}
	return c
}

// Tree is the result tree of judged traces. The adapter is that of the first
// manifest, the engines are those of all.
func Tree(judged ...Judged) *harness.RunResult {
	sum := joined(judged)
	r := &harness.RunResult{Verdict: sum.Verdict, Rules: sum.Rules, Signals: sum.Signals}
	var engines []string
	for i := range judged {
		t := &judged[i]
		t.Sign()
		r.Scenarios = append(r.Scenarios, t.cell())
		m := t.Manifest
		if m == nil {
			continue
		}
		engines = append(engines, m.Adapter.Engine)
		if r.Adapter == "" {
			r.Adapter, r.Defect, r.Device = m.Adapter.Name, m.Defect, m.Config["device"]
		}
	}
	r.Engine = joinSet(engines, ", ")
	return r
}

// Broken is the tree of a run that came to no result.
func Broken(why string) *harness.RunResult {
	return &harness.RunResult{Verdict: spec.Error, Scenarios: []harness.ScenarioResult{{ID: "run", Verdict: spec.Error, Why: why}}}
}

// defect is a defect as one run shows it: all findings of one fingerprint.
type defect struct {
	id       string
	rule     spec.Rule
	finding  check.Finding           // the first
	scenario *harness.ScenarioResult // of the first
	seeds    []uint64                // where it was found
	count    int                     // of listed findings
}

// distinctOf joins the findings of a run by fingerprint, the worst first: by
// verdict, then by harm, then as they come.
func distinctOf(r *harness.RunResult) []defect {
	var all []defect
	at := map[string]int{}
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		for j := range sc.Rules {
			for _, f := range sc.Rules[j].Findings {
				id := idOf(r, sc, &f)
				k, known := at[id]
				if !known {
					k = len(all)
					at[id] = k
					rule, _ := spec.RuleByID(f.Rule)
					all = append(all, defect{id: id, rule: rule, finding: f, scenario: sc})
				}
				d := &all[k]
				d.count++
				if !slices.Contains(d.seeds, sc.Seed) {
					d.seeds = append(d.seeds, sc.Seed)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b defect) int {
		return cmp.Or(cmp.Compare(b.finding.Verdict, a.finding.Verdict), cmp.Compare(b.finding.Harm.Rank(), a.finding.Harm.Rank()))
	})
	return all
}

// idOf is a finding's fingerprint, which older results don't hold.
func idOf(r *harness.RunResult, sc *harness.ScenarioResult, f *check.Finding) string {
	if f.ID != "" {
		return f.ID
	}
	return f.Fingerprint(r.Adapter, sc.ID, sc.Mode)
}

// where is where a scenario ran, without its seed.
func where(sc *harness.ScenarioResult) string { return strings.TrimSpace(sc.ID + " " + sc.Mode) }

// unlisted counts the findings of a rule that the judge counted and did not list.
func unlisted(r *check.RuleResult) int { return max(0, r.Found-len(r.Findings)) }

// bad reports a verdict that no report takes for good: worse than a pass.
func bad(v spec.Verdict) bool { return v > spec.Pass }
