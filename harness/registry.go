package harness

import (
	"context"
	"os"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/adapters/reference"
	"conform/adapters/sglang"
	"conform/adapters/vllm"
)

// kit is what a run can choose from. Tests have their own.
type kit struct {
	adapters  []adapters.Adapter
	scenarios []Scenario
	byPlan    []Scenario // that run only where they are asked for, with a plan
	engines   func() (shelf, error)
}

// shelf is where engine builds are kept.
type shelf interface {
	// versions are those that are installed or can be, the oldest first.
	versions(name, device string) []string
	// find gives the digest of an installed build's packages. The error is a
	// *engines.NotInstalledError or a *engines.UnknownError.
	find(ctx context.Context, spec, device string) (digest string, err error)
}

// store is the user's shelf.
type store struct{ *engines.Store }

func openStore() (shelf, error) {
	s, err := engines.Open(os.Getenv)
	return store{s}, err
}

func (s store) versions(name, device string) []string {
	var all []string
	for _, r := range s.Catalog.Recipes() {
		if r.Engine.Name == name && r.Device() == device {
			all = append(all, r.Engine.Version)
		}
	}
	return all
}

func (s store) find(ctx context.Context, spec, device string) (string, error) {
	e, err := s.Find(ctx, spec, device)
	if err != nil {
		return "", err
	}
	return e.Digest, nil
}

// builtin is what ships. The first adapter is the default. The adapters are made
// anew for each run: one may keep what its stacks share.
func builtin() *kit {
	return &kit{
		adapters:  []adapters.Adapter{reference.Adapter{}, sglang.New(), vllm.New()},
		scenarios: Scenarios(),
		byPlan:    byPlan(),
		engines:   openStore,
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
