package report

import (
	"fmt"
	"strings"

	"conform/harness"
	"conform/traces"
)

// rerun is what the command line needs to run one scenario again.
type rerun struct {
	adapter, engine, device string // engine is a version; "" without one
	scenario, mode, defect  string
	seed                    uint64
	more                    []string // further flags
}

// command is the command without the name of the program.
func (r rerun) command() string {
	args := []string{"run"}
	if r.adapter != "" && r.adapter != "reference" {
		args = append(args, "--adapter", Quote(r.adapter))
	}
	mode := "--mode"
	if r.engine != "" {
		mode = "--connector"
		args = append(args, "--engine", Quote(r.engine))
		if r.device != "" && r.device != "cpu" {
			args = append(args, "--device", Quote(r.device))
		}
	}
	args = append(args, "--scenario", Quote(r.scenario))
	if r.mode != "" {
		args = append(args, mode, Quote(r.mode))
	}
	args = append(args, "--seed", fmt.Sprint(r.seed))
	if r.defect != "" {
		args = append(args, "--defect", Quote(r.defect))
	}
	for _, a := range r.more {
		args = append(args, Quote(a))
	}
	return strings.Join(args, " ")
}

// rerunOf is how the run that a manifest describes was made, false where the
// manifest does not say. A plan or a model that was the user's own has the word
// FILE or FOLDER in its place, since a manifest holds no paths; so it holds no
// --env and no --engine-arg either.
func rerunOf(m *traces.Manifest) (rerun, bool) {
	if m == nil || m.Tool != "conform" || len(m.Scenarios) != 1 || m.Adapter.Name == "" {
		return rerun{}, false
	}
	r := rerun{
		adapter: m.Adapter.Name, engine: m.Config["engine_version"], device: m.Config["device"],
		scenario: m.Scenarios[0], mode: m.Mode, defect: m.Defect, seed: m.Seed,
	}
	if model := m.Config["model"]; model != "" && model != "built-in" {
		r.more = append(r.more, "--model", "FOLDER")
	}
	if s, ok := harness.ScenarioByID(r.scenario); ok && m.Plan != s.Plan(r.adapter, r.mode) {
		r.more = append(r.more, "--plan", "FILE")
	}
	return r, true
}
