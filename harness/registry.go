package harness

import (
	"conform/adapters"
	"conform/adapters/reference"
)

// kit is what a run can choose from. Tests have their own.
type kit struct {
	adapters  []adapters.Adapter
	scenarios []Scenario
}

// builtin is what ships. The first adapter is the default. The adapters are made
// anew for each run: one may keep what its stacks share.
func builtin() *kit {
	return &kit{
		adapters:  []adapters.Adapter{reference.Adapter{}},
		scenarios: Scenarios(),
	}
}

// Adapters lists what stacks can be driven.
func Adapters() []adapters.Info {
	var all []adapters.Info
	for _, a := range builtin().adapters {
		all = append(all, a.Info())
	}
	return all
}

// AdapterByName finds what an adapter is.
func AdapterByName(name string) (adapters.Info, bool) {
	for _, info := range Adapters() {
		if info.Name == name {
			return info, true
		}
	}
	return adapters.Info{}, false
}

// Defects lists the defects of the reference stack.
func Defects() []reference.Defect { return reference.Defects() }
