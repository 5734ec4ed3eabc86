package harness

import (
	"conform/spec"
	"conform/spec/check"
)

// RunResult is the root of the result tree: run → scenario → rule → finding.
// Its JSON form is that of DESIGN.md section 8.
type RunResult struct {
	Verdict  spec.Verdict  `json:"verdict"`
	Adapter  string        `json:"adapter"`
	Engine   string        `json:"engine,omitempty"`   // such as sglang@0.5.23
	Device   string        `json:"device,omitempty"`   // cpu or cuda
	Packages string        `json:"packages,omitempty"` // the digest of the engine's packages
	Defect   string        `json:"defect,omitempty"`
	Dir      string        `json:"dir"` // the run directory that holds the scenarios'
	Rules    []RuleSummary `json:"rules"`
	// Signals say what each kind of signal proves in all scenarios together.
	Signals   []check.SignalResult `json:"signals"`
	Scenarios []ScenarioResult     `json:"scenarios"`
	// Seconds is the run's duration on the wall.
	Seconds float64 `json:"seconds"`
	// Interrupted is set when the run was asked to stop before its end.
	Interrupted bool `json:"interrupted,omitempty"`
}

// RuleSummary joins one rule over all scenarios.
type RuleSummary struct {
	ID       spec.RuleID  `json:"id"`
	Verdict  spec.Verdict `json:"verdict"`
	Judged   int          `json:"judged"`
	Findings int          `json:"findings"`
}

// ScenarioResult is one scenario under one mode and seed.
type ScenarioResult struct {
	ID      string       `json:"id"`
	Mode    string       `json:"mode,omitempty"` // push, pull; of an engine its connector
	Seed    uint64       `json:"seed"`
	Verdict spec.Verdict `json:"verdict"`
	Trace   string       `json:"trace"` // the run directory of this scenario
	// Branches are the "sometimes" properties that the scenario exists for; one
	// that was not reached makes a pass inconclusive.
	Branches []Branch `json:"branches"`
	// Faults says how often each rule of the plan fired; one that never did makes
	// a pass inconclusive.
	Faults []FaultCount `json:"faults"`
	// Why says in one line what made the verdict worse than that of the rules, or
	// what stopped the scenario.
	Why     string               `json:"why,omitempty"`
	Seconds float64              `json:"seconds"`
	Rules   []check.RuleResult   `json:"rules"`
	Signals []check.SignalResult `json:"signals"`
	Stats   check.Stats          `json:"stats"`
	Notes   []string             `json:"notes,omitempty"`
	// Settled says how rejected, cancelled and expired requests gave back what they
	// held.
	Settled []check.SettledResult `json:"settled,omitempty"`
	// Capacity is what each stage is configured for, and what it can process.
	Capacity []Capacity `json:"capacity"`
	// Probe is what recorded the engine, with its version.
	Probe string `json:"probe,omitempty"`
	// Hooks say what became of each probe's hooks.
	Hooks []HookReport `json:"hooks,omitempty"`
}

// Branch is one property that a run of a scenario must reach at least once.
type Branch struct {
	Name    string `json:"name"`
	Reached bool   `json:"reached"`
}

// FaultCount says how often a rule of the plan fired.
type FaultCount struct {
	Rule  string `json:"rule"`
	Do    string `json:"do"`
	Fired int    `json:"fired"`
}
