package harness

import (
	"context"
	"fmt"
	"strings"

	"conform/faults"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// Rejudge judges the saved run of one scenario from its run directory alone, as the
// run itself did: the rules, the branches that the scenario exists for, and the rules
// of its plan that must have fired. It starts nothing. What a run knew and no trace
// holds, such as messages that its proxies could not decode, is in the verdict that
// its manifest states, and makes the result no better than that. A trace that can't
// be read or judged has the verdict error, with the reason in Why.
//
// The error is that of a manifest that can't be read, or of ctx. A zero limit takes
// its default.
func Rejudge(ctx context.Context, dir string, lim traces.Limits) (ScenarioResult, traces.Manifest, error) {
	man, err := traces.ReadManifest(dir)
	if err != nil {
		return ScenarioResult{}, man, err
	}
	res := ScenarioResult{Mode: man.Mode, Seed: man.Seed, Trace: dir, Verdict: spec.Error, Probe: man.Adapter.Probe}
	if len(man.Scenarios) != 1 {
		res.Why = fmt.Sprintf("the manifest names %d scenarios, not one", len(man.Scenarios))
		return res, man, nil
	}
	res.ID = man.Scenarios[0]
	tr, err := traces.ReadLimited(dir, nil, lim)
	if err != nil {
		res.Why = oneLine(err)
		return res, man, nil
	}
	got, err := check.Judge(ctx, tr, check.Options{})
	if err != nil {
		res.Why = oneLine(err)
		return res, man, ctx.Err()
	}
	res.judged(man.Adapter.Name, tr, HooksOf(tr), got)
	again(newRecorded(tr), man, &res)
	return res, man, nil
}

// again looks whether a saved run did what its scenario exists for, and whether it
// said something of itself that is worse than what was found.
func again(r *recorded, man traces.Manifest, res *ScenarioResult) {
	var missing []string
	scenario, ok := ScenarioByID(res.ID)
	if !ok {
		missing = append(missing, "no scenario has the id "+res.ID)
	}
	fired, err := firedRules(r, man.Plan)
	missing = append(missing, res.exercised(scenario, man.Adapter.Name, r, fired)...)
	if err != nil {
		missing = append(missing, "its plan can't be read: "+oneLine(err))
	}
	if len(missing) > 0 {
		res.Verdict = max(res.Verdict, spec.Inconclusive)
	}
	var said spec.Verdict
	if err := said.UnmarshalText([]byte(man.Verdict)); err != nil {
		missing = append(missing, "the run was never judged: it did not come to its end")
		res.Verdict = max(res.Verdict, spec.Inconclusive)
	} else if said > res.Verdict {
		res.Verdict = said
		missing = append(missing, "the run said of itself: "+said.String()+" ("+man.Why+")")
	}
	res.Why = strings.Join(missing, "; ")
}

// firedRules says how often each rule of a plan fired, by the faults of the trace.
func firedRules(r *recorded, planText string) ([]FaultCount, error) {
	if planText == "" {
		return nil, nil
	}
	plan, err := faults.ParsePlan("the plan", []byte(planText))
	if err != nil {
		return nil, err
	}
	type act struct{ rule, do string }
	fired := map[act]int{} // by rule and word: what follows up on a fault, such as a restart, has another word
	for i := range r.events {
		if e := &r.events[i]; e.K == spec.KindFault && r.role[e.Src] == spec.RoleHarness {
			fired[act{e.Rule, e.Do}]++
		}
	}
	var all []FaultCount
	for _, rule := range plan.Rules {
		all = append(all, FaultCount{rule.Name, rule.Do, fired[act{rule.Name, rule.Do}]})
	}
	byRule(all)
	return all, nil
}
