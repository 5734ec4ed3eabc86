package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"conform/adapters"
	"conform/spec"
	"conform/spec/check"
)

// Run drives the stack through what cfg asks for, and judges it. A configuration
// that can't be is a *[UsageError] or a *faults.PlanError, found before anything
// is written. When ctx ends, the workers are ended, what was recorded is kept and
// judged, and the result says Interrupted. A scenario in which the stack or the
// harness failed has the verdict error, and the run goes on with the next.
//
// An engine that is not installed is a *engines.NotInstalledError, found before
// anything is written, too.
func Run(ctx context.Context, cfg Config) (*RunResult, error) {
	cells, err := cfg.cells(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cfg.portFree(); err != nil {
		return nil, err
	}
	if err := cfg.makeOut(start); err != nil {
		return nil, err
	}
	if err := writeAttempts(cfg.OutDir, start, cells); err != nil {
		return nil, err
	}
	results, err := cfg.opened(ctx, len(cells), func() []ScenarioResult {
		r := &runner{cfg: cfg, adapter: cfg.adapter, total: len(cells)}
		return r.all(ctx, cells)
	})
	if err != nil {
		return nil, err
	}
	res := &RunResult{
		Adapter: cfg.Adapter, Engine: cfg.engine.spec(), Device: cfg.engine.device, Packages: cfg.engine.digest, Defect: cfg.Defect, Dir: cfg.OutDir, Scenarios: results,
		Seconds: time.Since(start).Seconds(), Interrupted: ctx.Err() != nil,
	}
	res.Verdict, res.Rules, res.Signals = join(results)
	if res.Interrupted && res.Verdict < spec.Inconclusive {
		res.Verdict = spec.Inconclusive
	}
	return res, nil
}

// opened runs f while what the stacks of this run share is there.
func (cfg *Config) opened(ctx context.Context, cells int, f func() []ScenarioResult) ([]ScenarioResult, error) {
	o, ok := cfg.adapter.(adapters.Opener)
	if !ok {
		return f(), nil
	}
	if cfg.Progress != nil {
		cfg.Progress(Progress{Total: cells, Phase: "opening " + cfg.engine.spec()})
	}
	openCtx, cancel := context.WithTimeout(ctx, cfg.adapter.Pace().Start)
	defer cancel()
	if err := o.Open(openCtx, cfg.common(cfg.OutDir)); err != nil {
		return nil, errors.Join(fmt.Errorf("%w to open: %w", errStack, err), o.Close())
	}
	results := f()
	if err := o.Close(); err != nil {
		return nil, fmt.Errorf("%w to close: %w", errStack, err)
	}
	return results, nil
}

// DryRun says what Run would do: every process, setting and plan. It starts and
// writes nothing.
func DryRun(ctx context.Context, cfg Config) (string, error) {
	cells, err := cfg.cells(ctx)
	if err != nil {
		return "", err
	}
	out := cfg.OutDir
	if out == "" {
		out = filepath.Join("runs", "<time>")
	}
	var b strings.Builder
	for _, c := range cells {
		fmt.Fprintf(&b, "# %s, %s %s, seed %d: %s\n", c.scenario.ID, modeWord(cfg.adapter.Info()), c.mode, c.seed, c.shape.summary())
		if c.planText != "" {
			fmt.Fprintf(&b, "# fault plan:\n%s", strings.TrimRight(c.planText, "\n")+"\n")
		}
		text, err := cfg.adapter.Describe(c.adapterConfig(cfg, filepath.Join(out, c.name())))
		if err != nil {
			return "", err
		}
		b.WriteString(text + "\n")
	}
	return b.String(), nil
}

// summary says in a few words what clients do.
func (sh shape) summary() string {
	if sh.play != nil {
		return "requests in one order"
	}
	return fmt.Sprintf("%d requests by %d clients", sh.workload.requests, sh.workload.clients)
}

// common is what the stacks of all cells have in common.
func (cfg *Config) common(dir string) adapters.Config {
	return adapters.Config{
		Defect: cfg.Defect, Version: cfg.engine.version, Device: cfg.engine.device, Model: cfg.Model, Args: cfg.EngineArgs,
		Env: cfg.Env, Dir: dir, Listen: cfg.listen(),
	}
}

func (c cell) adapterConfig(cfg Config, dir string) adapters.Config {
	a := cfg.common(dir)
	a.Mode, a.Limits, a.Topology = c.mode, c.shape.limits, c.shape.topology
	a.Args, a.Env = slices.Concat(c.shape.args, a.Args), slices.Concat(c.shape.env, a.Env)
	return a
}

// runner runs cells, a few at once.
type runner struct {
	cfg     Config
	adapter adapters.Adapter
	total   int

	mu   sync.Mutex
	done int
}

func (r *runner) all(ctx context.Context, cells []cell) []ScenarioResult {
	results := make([]ScenarioResult, len(cells))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(r.cfg.Jobs, len(cells)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				results[i] = r.cell(ctx, cells[i])
				r.say(cells[i], "", results[i].Verdict, true)
			}
		}()
	}
	started := 0
	for i := range cells {
		if ctx.Err() != nil {
			break
		}
		select {
		case next <- i:
			started++
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return results[:started]
}

// say reports progress, never twice at once.
func (r *runner) say(c cell, phase string, v spec.Verdict, finished bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if finished {
		r.done++
	}
	if r.cfg.Progress != nil {
		r.cfg.Progress(Progress{
			Done: r.done, Total: r.total, Scenario: c.scenario.ID, Mode: c.mode, Seed: c.seed, Phase: phase, Verdict: v, Finished: finished,
		})
	}
}

// join takes the worst of the scenarios, sums up each rule over them, and says what
// each kind of signal proves in all of them together. A run in which nothing was
// judged is inconclusive.
func join(results []ScenarioResult) (spec.Verdict, []RuleSummary, []check.SignalResult) {
	worst := spec.Unexercised
	rules, signals := make([][]check.RuleResult, len(results)), make([]check.TraceSignals, len(results))
	for i := range results {
		res := &results[i]
		worst = max(worst, res.Verdict)
		rules[i], signals[i] = res.Rules, check.TraceSignals{Trace: res.Trace, Signals: res.Signals}
	}
	if worst < spec.Pass {
		worst = spec.Inconclusive
	}
	return worst, SumRules(rules), check.JoinSignals(signals)
}

// SumRules joins each rule over several judged traces: the worst verdict, and how
// much was judged and found in all.
func SumRules(traces [][]check.RuleResult) []RuleSummary {
	sums := make([]RuleSummary, 0, len(spec.Rules()))
	for _, rule := range spec.Rules() {
		s := RuleSummary{ID: rule.ID, Verdict: spec.Unexercised}
		for _, rules := range traces {
			for _, rr := range rules {
				if rr.ID == rule.ID {
					s.Verdict, s.Judged, s.Findings = max(s.Verdict, rr.Verdict), s.Judged+rr.Judged, s.Findings+max(rr.Found, len(rr.Findings))
				}
			}
		}
		sums = append(sums, s)
	}
	return sums
}

// errStack marks what the stack, not the trace, did wrong.
var errStack = errors.New("the stack failed")
