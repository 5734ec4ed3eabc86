package harness

import (
	"cmp"
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
	shelf, err := cfg.kit.engines()
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
		version = newest(ctx, shelf, e)
	}
	e.version = version
	e.digest, err = shelf.find(ctx, e.spec(), e.device)
	if _, unknown := errors.AsType[*engines.UnknownError](err); unknown {
		return e, unknownEngine(e, shelf.versions(e.name, e.device))
	}
	return e, err
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
func unknownEngine(e engine, versions []string) error {
	u := &UsageError{
		What: fmt.Sprintf("unknown version %q of %s on %s%s", e.version, e.name, e.device, near(e.version, versions)), Where: "--engine",
		Expected: "one of " + strings.Join(versions, ", "), Try: "run 'conform engine list'",
	}
	if len(versions) == 0 {
		u.Expected = "a version that has a lock file, and there is none"
	}
	return u
}

// newest is the newest version that is installed, else the newest that could be;
// "" if there is none.
func newest(ctx context.Context, shelf shelf, e engine) string {
	known, installed := "", ""
	for _, v := range shelf.versions(e.name, e.device) {
		known = v
		e.version = v
		if _, err := shelf.find(ctx, e.spec(), e.device); err == nil {
			installed = v
		}
	}
	return cmp.Or(installed, known)
}
