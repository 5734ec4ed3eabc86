package check

import (
	"cmp"
	"slices"

	"conform/spec"
)

// Ranked lists the rules that have findings, the worst first: by the worst
// verdict of a finding, then by harm, then in the order of the registry; and of
// each rule the findings, the worst first. It is the order in which findings are
// numbered for people.
func (r *Result) Ranked() []RuleResult {
	var out []RuleResult
	for _, rule := range r.Rules {
		if len(rule.Findings) == 0 {
			continue
		}
		rule.Findings = slices.Clone(rule.Findings)
		slices.SortStableFunc(rule.Findings, func(a, b Finding) int {
			return worseFirst(a.Verdict, b.Verdict, a.Harm, b.Harm)
		})
		out = append(out, rule)
	}
	slices.SortStableFunc(out, func(a, b RuleResult) int {
		return worseFirst(a.Findings[0].Verdict, b.Findings[0].Verdict, maxHarm(a.Findings), maxHarm(b.Findings))
	})
	return out
}

func worseFirst(v, w spec.Verdict, h, i spec.Harm) int {
	return cmp.Or(cmp.Compare(w, v), cmp.Compare(i.Rank(), h.Rank()))
}

// Harm is the worst harm of the rule's findings, none without any.
func (r *RuleResult) Harm() spec.Harm { return maxHarm(r.Findings) }

func maxHarm(findings []Finding) spec.Harm {
	most := spec.HarmNone
	for _, f := range findings {
		if f.Harm.Rank() > most.Rank() {
			most = f.Harm
		}
	}
	return most
}
