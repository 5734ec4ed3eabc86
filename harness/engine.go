package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"conform/adapters"
	"conform/adapters/engines"
)

// engine is which build of an engine a run drives. It is zero for a stack that has
// none.
type engine struct {
	name, version, device string
	digest                string // of its packages
}

// spec is how a person names it, such as sglang@0.5.23; "" for none.
func (e engine) spec() string {
	if e.name == "" {
		return ""
	}
	return e.name + "@" + e.version
}

// resolveEngine finds the build that cfg asks for. An engine that could be
// installed and is not is a *[engines.NotInstalledError].
func (cfg *Config) resolveEngine(ctx context.Context, info adapters.Info) (engine, error) {
	if info.Engine == "" {
		return engine{}, cfg.noEngine(info)
	}
	e := engine{name: info.Engine, device: cfg.Device}
	if e.device == "" {
		e.device = engines.CPU
	}
	if devices := []string{engines.CPU, engines.CUDA}; !slices.Contains(devices, e.device) {
		return e, &UsageError{What: fmt.Sprintf("unknown device %q%s", e.device, near(e.device, devices)), Where: "--device", Expected: strings.Join(devices, " or ")}
	}
	if cfg.Model != "" {
		if st, err := os.Stat(cfg.Model); err != nil || !st.IsDir() {
			return e, &UsageError{What: fmt.Sprintf("there is no folder %s", cfg.Model), Where: "--model", Expected: "the folder of a model"}
		}
	}
	store, err := engines.Open(os.Getenv)
	if err != nil {
		return e, err
	}
	name, version, named := strings.Cut(cfg.Engine, "@")
	switch {
	case !named:
		version = cfg.Engine
	case name != info.Engine || version == "":
		return e, &UsageError{
			What: fmt.Sprintf("%q is no version of %s, which adapter %s drives", cfg.Engine, info.Engine, info.Name), Where: "--engine",
			Expected: "VERSION or " + info.Engine + "@VERSION", Try: "run 'conform engine list'",
		}
	}
	if version == "" {
		version = newest(ctx, store, e)
	}
	e.version = version
	env, err := store.Find(ctx, e.spec(), e.device)
	var unknown *engines.UnknownError
	if errors.As(err, &unknown) {
		return e, unknownEngine(e, unknown.Known)
	}
	if err != nil {
		return e, err
	}
	e.digest = env.Digest
	return e, nil
}

// noEngine refuses the options that only an engine has.
func (cfg *Config) noEngine(info adapters.Info) error {
	for _, o := range []struct{ flag, value string }{{"--engine", cfg.Engine}, {"--device", cfg.Device}, {"--model", cfg.Model}} {
		if o.value != "" {
			return &UsageError{
				What: fmt.Sprintf("the stack of adapter %s has no engine to choose", info.Name), Where: o.flag,
				Expected: "none", Try: "name the adapter of an engine with --adapter",
			}
		}
	}
	return nil
}

// unknownEngine is the mistake of a version that no lock is for.
func unknownEngine(e engine, known []string) error {
	var versions []string
	for _, spec := range known {
		if name, version, _ := strings.Cut(spec, "@"); name == e.name {
			versions = append(versions, version)
		}
	}
	u := &UsageError{
		What: fmt.Sprintf("unknown version %q of %s on %s%s", e.version, e.name, e.device, near(e.version, versions)), Where: "--engine",
		Expected: "a version that has a lock file", Try: "run 'conform engine list'",
	}
	if len(versions) > 0 {
		u.Expected = "one of " + strings.Join(versions, ", ")
	}
	return u
}

// newest is the newest version that is installed, else the newest that could be;
// "" if there is none.
func newest(ctx context.Context, store *engines.Store, e engine) string {
	known, installed := "", ""
	for _, r := range store.Catalog.Recipes() { // the oldest first
		if r.Engine.Name != e.name || r.Device() != e.device {
			continue
		}
		known = r.Engine.Version
		if _, err := store.Find(ctx, r.Spec(), e.device); err == nil {
			installed = known
		}
	}
	if installed != "" {
		return installed
	}
	return known
}
