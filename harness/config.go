package harness

import (
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
	Modes      []string // a subset of the adapter's; empty: every mode that a scenario applies to
	Scenarios  []string // ids; empty: all that apply
	Defect     string   // "" for the correct stack
	Plan       string   // path of a fault plan that replaces the scenarios' own; "" for none
	Seeds      []uint64 // empty: 1
	OutDir     string   // the run directory; "" makes one below runs/
	Jobs       int      // scenarios at once; 0: 2
	Port       int      // of the loopback interface, where clients reach the stack; 0: any. One scenario at a time
	Env        []string // NAME=VALUE for the stack's processes
	EngineArgs []string // arguments for the engine; the reference stack takes none
	// Progress is told of each step. It is never called twice at once.
	Progress func(Progress)

	planText string // of Plan
}

// Progress is one step of a run.
type Progress struct {
	Done, Total int
	Scenario    string
	Mode        string
	Seed        uint64
	Phase       string // starting, running, settling, judging
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

// Adapters lists what stacks can be driven.
func Adapters() []adapters.Info { return []adapters.Info{reference.Adapter{}.Info()} }

// Defects lists the defects of the reference stack.
func Defects() []reference.Defect { return reference.Defects() }

// cell is one scenario under one mode and seed.
type cell struct {
	scenario Scenario
	mode     string
	seed     uint64
	plan     *faults.Plan // nil for no faults
	planText string
}

func (c cell) name() string { return fmt.Sprintf("%s.%s.%d", c.scenario.ID, c.mode, c.seed) }

// cells validates a configuration and lists what it asks for.
func (cfg *Config) cells() ([]cell, error) {
	if cfg.Adapter == "" {
		cfg.Adapter = "reference"
	}
	if len(cfg.Seeds) == 0 {
		cfg.Seeds = []uint64{1}
	}
	if cfg.Jobs == 0 {
		cfg.Jobs = 2
	}
	if cfg.Port != 0 {
		cfg.Jobs = 1
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	scenarios, err := cfg.scenarios()
	if err != nil {
		return nil, err
	}
	if err := cfg.readPlan(); err != nil {
		return nil, err
	}
	var all []cell
	for _, seed := range cfg.Seeds {
		for _, s := range scenarios {
			for _, mode := range s.Modes {
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
		return nil, &UsageError{
			What: "no scenario that was asked for applies to mode " + strings.Join(cfg.Modes, ", "), Where: "--mode",
			Expected: "a mode of the scenario", Try: "run 'conform list scenarios' for which applies to which",
		}
	}
	return all, nil
}

func (cfg *Config) check() error {
	if cfg.Adapter != "reference" {
		return &UsageError{What: fmt.Sprintf("unknown adapter %q", cfg.Adapter), Where: "--adapter", Expected: "reference", Try: "run 'conform list adapters'"}
	}
	for _, m := range cfg.Modes {
		if !slices.Contains(bothModes, m) {
			return &UsageError{What: fmt.Sprintf("unknown mode %q", m), Where: "--mode", Expected: "push or pull"}
		}
	}
	if _, ok := reference.DefectByName(cfg.Defect); cfg.Defect != "" && !ok {
		var names []string
		for _, d := range reference.Defects() {
			names = append(names, d.Name)
		}
		return &UsageError{
			What: fmt.Sprintf("unknown defect %q%s", cfg.Defect, near(cfg.Defect, names)), Where: "--defect",
			Expected: "a defect of the reference stack", Try: "run 'conform list defects'",
		}
	}
	if len(cfg.EngineArgs) > 0 {
		return &UsageError{What: "the reference stack takes no engine arguments", Where: "--engine-arg", Expected: "none"}
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

func (cfg *Config) scenarios() ([]Scenario, error) {
	if len(cfg.Scenarios) == 0 {
		return Scenarios(), nil
	}
	var got []Scenario
	for _, id := range cfg.Scenarios {
		s, ok := ScenarioByID(id)
		if !ok {
			var ids []string
			for _, s := range Scenarios() {
				ids = append(ids, s.ID)
			}
			return nil, &UsageError{
				What: fmt.Sprintf("unknown scenario %q%s", id, near(id, ids)), Where: "--scenario",
				Expected: "the id of a scenario", Try: "run 'conform list scenarios'",
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
	c := cell{scenario: s, mode: mode, seed: seed, planText: s.Plan(mode)}
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
	return c, nil
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
