package certify

import (
	"fmt"
	"slices"

	"conform/harness"
	"conform/spec"
)

// holdToProfile notes what is missing for the profile.
func (r *record) holdToProfile() {
	if r.subject.Build.Adapter != r.profile.Adapter {
		r.lack(false, "the profile %s is for adapter %s, and the attempts were of %q", r.profile.Name, r.profile.Adapter, r.subject.Build.Adapter)
		return
	}
	r.checkAttempts()
	for _, s := range r.profile.Scenarios {
		for _, mode := range s.Modes {
			for _, seed := range r.quarter.Seeds {
				r.needs(s.ID, mode, seed)
			}
		}
	}
	r.checkRules()
	for _, p := range r.profile.Planted {
		r.needsFound(p)
	}
}

// checkAttempts holds every attempt against the subject, needed or not: a failure
// that another attempt did not show is still a failure.
func (r *record) checkAttempts() {
	retries := 0
	for _, a := range r.journal {
		if !a.Start.IsZero() && QuarterOf(a.Start) != r.quarter.Name {
			r.lack(false, "attempt %d (%s) began in %s, others in %s", a.N, a.Attempt, QuarterOf(a.Start), r.quarter.Name)
		}
		switch {
		case a.Defect != "":
		case a.Outcome == Finished && (a.Verdict == spec.Fail || a.Verdict == spec.Unproven):
			r.lack(true, "attempt %d (%s) is %s: %s", a.N, a.Attempt, a.Verdict, r.worstRules(a.N))
		case a.Outcome != Finished && a.Verdict == spec.Fail:
			r.lack(true, "attempt %d (%s) was aborted, and what there is of it is fail: %s", a.N, a.Attempt, r.worstRules(a.N))
		case a.Outcome != Finished, a.Verdict != spec.Pass:
			retries++
		}
	}
	if retries > r.profile.Retries {
		r.lack(false, "%d attempts came to no result; the profile allows %d", retries, r.profile.Retries)
	}
}

func (r *record) worstRules(n int) string {
	text := ""
	res := r.results[n-1]
	for _, rule := range res.Rules {
		if rule.Verdict == res.Verdict {
			text += fmt.Sprintf(" %s (%d)", rule.ID, rule.Found)
		}
	}
	if text == "" {
		return r.journal[n-1].Why
	}
	return text[1:]
}

// needs looks for a passing attempt of a required scenario under its own plan.
func (r *record) needs(id, mode string, seed uint64) {
	s, _ := harness.ScenarioByID(id)
	why := "there is no attempt"
	for i, a := range r.journal {
		if a.Scenario != id || a.Mode != mode || a.Seed != seed || a.Defect != "" {
			continue
		}
		switch {
		case a.plan != s.Plan(r.profile.Adapter, mode):
			why = fmt.Sprintf("attempt %d ran under another plan than the scenario's", a.N)
		case a.Outcome != Finished || a.Verdict != spec.Pass:
			why = fmt.Sprintf("attempt %d is %s, %s", a.N, a.Outcome, a.Verdict)
			if a.Why != "" {
				why += ": " + a.Why
			}
		default:
			r.required = append(r.required, i)
			return
		}
	}
	r.lack(false, "%s %s with seed %d: %s", id, mode, seed, why)
}

// checkRules looks whether each rule of the profile was put to the test.
func (r *record) checkRules() {
	for _, id := range r.profile.Rules {
		if n := r.judgedBy(id); n == 0 && len(r.required) > 0 {
			r.lack(false, "rule %s was exercised in no required attempt", id)
		}
	}
}

// judgedBy counts to how much a rule was applied in the required attempts.
func (r *record) judgedBy(id spec.RuleID) (n int) {
	for _, i := range r.required {
		for _, rule := range r.results[i].Rules {
			if rule.ID == id && rule.Verdict == spec.Pass {
				n += rule.Judged
			}
		}
	}
	return n
}

// needsFound looks whether a planted defect was found.
func (r *record) needsFound(p Planted) {
	if len(r.quarter.Seeds) == 0 {
		return
	}
	seed := r.quarter.Seeds[0]
	found := slices.ContainsFunc(r.journal, func(a Attempt) bool {
		return a.Defect == p.Defect && a.Scenario == p.Scenario && a.Mode == p.Mode && a.Seed == seed && a.Outcome == Finished && a.Verdict == spec.Fail &&
			slices.ContainsFunc(r.results[a.N-1].Rules, func(rule RuleResult) bool { return rule.ID == p.Rule && rule.Verdict == spec.Fail })
	})
	if !found {
		r.lack(false, "the planted defect %s was not found by %s: no attempt of %s %s with seed %d fails it", p.Defect, p.Rule, p.Scenario, p.Mode, seed)
	}
}
