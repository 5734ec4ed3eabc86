package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"conform/adapters"
	"conform/adapters/reference"
	"conform/faults"
	"conform/internal/spelling"
	"conform/spec"
)

// Config is what a run is asked for.
type Config struct {
	Adapter    string   // "reference" by default
	Engine     string   // VERSION or NAME@VERSION; "": the newest that is installed, else the newest that could be
	Device     string   // cpu or cuda; "": cpu
	Model      string   // folder of a model; "": the adapter's own
	Modes      []string // a subset of the adapter's; empty: every mode that a scenario applies to
	Scenarios  []string // ids; empty: all that apply
	Defect     string   // "" for the correct stack
	Plan       string   // path of a fault plan that replaces the scenarios' own; "" for none
	Seeds      []uint64 // empty: 1
	OutDir     string   // the run directory; "" makes one below runs/
	Jobs       int      // scenarios at once; 0: 1 for an engine, else 2
	Port       int      // of the loopback interface, where clients reach the stack; 0: any. One scenario at a time
	Env        []string // NAME=VALUE for the stack's processes
	EngineArgs []string // arguments for the engine; the reference stack takes none
	// Progress is told of each step. It is never called twice at once.
	Progress func(Progress)

	kit *kit // what can be chosen; nil: what ships

	adapter  adapters.Adapter // of Adapter
	engine   engine           // of Engine
	planText string           // of Plan
}

// Progress is one step of a run.
type Progress struct {
	Done, Total int
	Scenario    string // "" for a step of the whole run
	Mode        string
	Seed        uint64
	Phase       string // opening, taking reference answers, starting, running, settling, judging
	Verdict     spec.Verdict
	Finished    bool // this scenario has ended, with Verdict
}

// UsageError says that a run was asked for something that does not exist or can't
// be. It is found before anything is started or written.
type UsageError struct {
	What     string // what is wrong: unknown scenario "x"
	Where    string // which option
	Expected string
	Try      string // what to do
}

func (e *UsageError) Error() string {
	s := e.Where + ": " + e.What + "; expected " + e.Expected
	if e.Try != "" {
		s += "; " + e.Try
	}
	return s
}

// cell is one scenario under one mode and seed.
type cell struct {
	scenario Scenario
	shape    shape // of the adapter
	mode     string
	seed     uint64
	plan     *faults.Plan // nil for no faults
	planText string
}

func (c cell) name() string { return fmt.Sprintf("%s.%s.%d", c.scenario.ID, c.mode, c.seed) }

// cells validates a configuration and lists what it asks for.
func (cfg *Config) cells(ctx context.Context) ([]cell, error) {
	if cfg.kit == nil {
		cfg.kit = builtin()
	}
	if err := cfg.chooseAdapter(); err != nil {
		return nil, err
	}
	info := cfg.adapter.Info()
	if len(cfg.Seeds) == 0 {
		cfg.Seeds = []uint64{1}
	}
	if cfg.Jobs == 0 {
		cfg.Jobs = 2
		if info.Engine != "" { // several processes of a gigabyte each
			cfg.Jobs = 1
		}
	}
	if cfg.Port != 0 {
		cfg.Jobs = 1
	}
	if err := cfg.check(info); err != nil {
		return nil, err
	}
	scenarios, err := cfg.scenarios(info)
	if err != nil {
		return nil, err
	}
	if err := cfg.readPlan(); err != nil {
		return nil, err
	}
	var all []cell
	for _, seed := range cfg.Seeds {
		for _, s := range scenarios {
			for _, mode := range s.Modes(info) {
				if len(cfg.Modes) > 0 && !slices.Contains(cfg.Modes, mode) {
					continue
				}
				c, err := cfg.cell(s, mode, seed)
				if err != nil {
					return nil, err
				}
				all = append(all, c)
			}
		}
	}
	if len(all) == 0 {
		return nil, cfg.nothingApplies(info)
	}
	cfg.engine, err = cfg.resolveEngine(ctx, info) // the last: what else is wrong does not depend on it
	return all, err
}

// nothingApplies says why a configuration asks for no cell at all.
func (cfg *Config) nothingApplies(info adapters.Info) error {
	to := "adapter " + info.Name
	if len(cfg.Modes) > 0 {
		to = modeWord(info) + " " + strings.Join(cfg.Modes, ", ")
	}
	return &UsageError{
		What: "no scenario that was asked for applies to " + to, Where: modeFlag(info),
		Expected: "a " + modeWord(info) + " of the scenario", Try: "run 'conform list scenarios' for which applies to which",
	}
}

// modeWord is what an adapter's modes are called, and modeFlag their option.
func modeWord(info adapters.Info) string {
	if info.Engine != "" {
		return "connector"
	}
	return "mode"
}

func modeFlag(info adapters.Info) string { return "--" + modeWord(info) }

// chooseAdapter finds the adapter that is asked for.
func (cfg *Config) chooseAdapter() error {
	var names []string
	for _, a := range cfg.kit.adapters {
		name := a.Info().Name
		if cfg.Adapter == "" {
			cfg.Adapter = name
		}
		if name == cfg.Adapter {
			cfg.adapter = a
			return nil
		}
		names = append(names, name)
	}
	return &UsageError{
		What: fmt.Sprintf("unknown adapter %q%s", cfg.Adapter, near(cfg.Adapter, names)), Where: "--adapter",
		Expected: strings.Join(names, " or "), Try: "run 'conform list adapters'",
	}
}

func (cfg *Config) check(info adapters.Info) error {
	for _, m := range cfg.Modes {
		if !slices.Contains(info.Modes, m) {
			return &UsageError{
				What: fmt.Sprintf("unknown %s %q%s", modeWord(info), m, near(m, info.Modes)), Where: modeFlag(info),
				Expected: strings.Join(info.Modes, " or "),
			}
		}
	}
	if err := cfg.checkDefect(info); err != nil {
		return err
	}
	if len(cfg.EngineArgs) > 0 && info.Engine == "" {
		return &UsageError{What: "the " + info.Name + " stack takes no engine arguments", Where: "--engine-arg", Expected: "none"}
	}
	if cfg.Port != 0 && info.Engine != "" {
		return &UsageError{What: "clients of adapter " + info.Name + " send to each worker, not to one port", Where: "--port", Expected: "none"}
	}
	for _, e := range cfg.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return &UsageError{What: fmt.Sprintf("%q", e), Where: "--env", Expected: "NAME=VALUE"}
		}
	}
	if cfg.Port < 0 || cfg.Port > 65535 {
		return &UsageError{What: fmt.Sprintf("%d", cfg.Port), Where: "--port", Expected: "a port from 1 to 65535, or 0 for any"}
	}
	if cfg.Jobs < 1 || cfg.Jobs > 64 {
		return &UsageError{What: fmt.Sprintf("%d", cfg.Jobs), Where: "--jobs", Expected: "a number from 1 to 64"}
	}
	return nil
}

func (cfg *Config) checkDefect(info adapters.Info) error {
	if cfg.Defect == "" {
		return nil
	}
	if info.Name != onReference {
		return &UsageError{What: "adapter " + info.Name + " has no defects to switch on", Where: "--defect", Expected: "none", Try: "run 'conform list defects' for those of the reference stack"}
	}
	if _, ok := reference.DefectByName(cfg.Defect); ok {
		return nil
	}
	var names []string
	for _, d := range reference.Defects() {
		names = append(names, d.Name)
	}
	return &UsageError{
		What: fmt.Sprintf("unknown defect %q%s", cfg.Defect, near(cfg.Defect, names)), Where: "--defect",
		Expected: "a defect of the reference stack", Try: "run 'conform list defects'",
	}
}

// scenarios are those that are asked for; all that apply to the adapter if none is.
func (cfg *Config) scenarios(info adapters.Info) ([]Scenario, error) {
	var got []Scenario
	if len(cfg.Scenarios) == 0 {
		for _, s := range cfg.kit.scenarios {
			if len(s.Modes(info)) > 0 {
				got = append(got, s)
			}
		}
		return got, nil
	}
	known := slices.Concat(cfg.kit.scenarios, cfg.kit.byPlan)
	var ids []string
	for _, s := range known {
		ids = append(ids, s.ID)
	}
	for _, id := range cfg.Scenarios {
		i := slices.Index(ids, id)
		if i < 0 {
			return nil, &UsageError{
				What: fmt.Sprintf("unknown scenario %q%s", id, near(id, ids)), Where: "--scenario",
				Expected: "the id of a scenario", Try: "run 'conform list scenarios'",
			}
		}
		s := known[i]
		if i >= len(cfg.kit.scenarios) && cfg.Plan == "" {
			return nil, &UsageError{What: "scenario " + id + " has no fault plan of its own", Where: "--plan", Expected: "a plan, such as one of conform hunt"}
		}
		if len(s.Modes(info)) == 0 {
			return nil, &UsageError{
				What: fmt.Sprintf("scenario %s does not apply to adapter %s", id, info.Name), Where: "--scenario",
				Expected: "one that does", Try: "run 'conform list scenarios' for which applies to which",
			}
		}
		if !slices.ContainsFunc(got, func(x Scenario) bool { return x.ID == id }) {
			got = append(got, s)
		}
	}
	return got, nil
}

// maxPlanBytes is far above any plan; package faults has a limit of its own.
const maxPlanBytes = 4 << 20

// readPlan reads the plan file, once for all scenarios.
func (cfg *Config) readPlan() error {
	if cfg.Plan == "" {
		return nil
	}
	usage := func(err error) error {
		return &UsageError{What: fmt.Sprintf("can't read the plan %s: %v", cfg.Plan, unwrapPath(err)), Where: "--plan", Expected: "a readable YAML file"}
	}
	f, err := os.Open(cfg.Plan)
	if err != nil {
		return usage(err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxPlanBytes))
	if err := errors.Join(err, f.Close()); err != nil {
		return usage(err)
	}
	cfg.planText = string(b)
	plan, err := faults.ParsePlan(cfg.Plan, b)
	if err == nil && len(plan.Rules) == 0 {
		err = &UsageError{What: "the plan " + cfg.Plan + " has no rules", Where: "--plan", Expected: "at least one rule", Try: "leave --plan out for the scenarios' own plans"}
	}
	return err
}

// cell takes the plan that applies. A scenario's own is checked like anybody's.
func (cfg *Config) cell(s Scenario, mode string, seed uint64) (cell, error) {
	c := cell{scenario: s, shape: s.shapes[cfg.Adapter], mode: mode, seed: seed, planText: s.Plan(cfg.Adapter, mode)}
	name := "scenario " + s.ID
	if cfg.Plan != "" {
		c.planText, name = cfg.planText, cfg.Plan
	} else if c.planText == "" {
		return c, nil
	}
	plan, err := faults.ParsePlan(name, []byte(c.planText))
	if err != nil {
		return c, err
	}
	c.plan = plan
	return c, plan.Known(workersOf(c.shape.topology))
}

// workersOf are the ids of a stack's workers, the harness's own among them.
func workersOf(t adapters.Topology) []string {
	names := []string{string(spec.RoleClient), string(spec.RoleRouter), string(spec.RoleHarness)}
	for _, p := range t.Places() {
		names = append(names, p.ID)
	}
	return names
}

// listen is where the stack's clients are to reach it.
func (cfg *Config) listen() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(cfg.Port)) }

// portFree looks whether the port that was asked for can be had, before anything
// is written.
func (cfg *Config) portFree() error {
	ln, err := net.Listen("tcp", cfg.listen())
	if err != nil {
		return &UsageError{
			What: fmt.Sprintf("can't listen on %s: %v", cfg.listen(), errors.Unwrap(errors.Unwrap(err))), Where: "--port",
			Expected: "a port that is free", Try: "name another one, or leave --port out for any",
		}
	}
	return ln.Close()
}

// makeOut makes the run directory, which must be new or empty.
func (cfg *Config) makeOut(now time.Time) error {
	if cfg.OutDir == "" {
		cfg.OutDir = filepath.Join("runs", now.UTC().Format("20060102-150405.000"))
	}
	usage := func(what string) error {
		return &UsageError{What: what, Where: "--out", Expected: "a folder that is new or empty, and writable", Try: "name another one"}
	}
	if err := os.MkdirAll(cfg.OutDir, 0o755); err != nil {
		return usage(fmt.Sprintf("can't make the folder %s: %v", cfg.OutDir, unwrapPath(err)))
	}
	entries, err := os.ReadDir(cfg.OutDir)
	if err != nil {
		return usage(fmt.Sprintf("can't read the folder %s: %v", cfg.OutDir, unwrapPath(err)))
	}
	if len(entries) > 0 {
		return usage(fmt.Sprintf("the folder %s is not empty", cfg.OutDir))
	}
	probe, err := os.CreateTemp(cfg.OutDir, ".probe-*")
	if err != nil {
		return usage(fmt.Sprintf("can't write in the folder %s: %v", cfg.OutDir, unwrapPath(err)))
	}
	probe.Close()
	return os.Remove(probe.Name())
}

func unwrapPath(err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Err
	}
	return err
}

// near suggests the known word that an unknown one most likely meant.
func near(word string, known []string) string {
	if at := spelling.Nearest(word, known); at != "" {
		return fmt.Sprintf(" (did you mean %q?)", at)
	}
	return ""
}
