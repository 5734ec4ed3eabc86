package explore

import (
	"context"
	"fmt"

	"conform/spec"
)

// scopes are tried in this order for a counterexample, the smallest first.
func scopes(mode Mode) []Scope {
	return []Scope{
		{Mode: mode, Blocks: 1, Requests: 1},
		{Mode: mode, Blocks: 1, Requests: 1, Loss: true},
		{Mode: mode, Blocks: 1, Requests: 1, Duplicates: 1},
		{Mode: mode, Blocks: 1, Requests: 2},
		{Mode: mode, Blocks: 2, Requests: 2},
		FullScope(mode),
	}
}

// Counterexample finds the shortest run that breaks a rule once a guard is taken
// away, in the smallest scope that has one. The same arguments give the same run.
// It is nil if there is none: then the guard does not protect that rule.
func Counterexample(ctx context.Context, mode Mode, g Guard, rule spec.RuleID) (*Violation, error) {
	for _, scope := range scopes(mode) {
		scope.Without = g
		rep, err := Explore(ctx, scope, Options{Workers: 1, Until: rule})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scope, err)
		}
		if rep.Violation != nil {
			return rep.Violation, nil
		}
	}
	return nil, nil
}
