package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"conform/harness"
	"conform/harness/report"
	"conform/spec"
)

// maxSeeds bounds --seeds: each seed is a run of each scenario, seconds long.
const maxSeeds = 10_000

// runFlags are the flags of conform run as they were given.
type runFlags struct {
	cfg    harness.Config
	modes  []string
	links  []string // the modes of an engine
	seed   uint64
	seeds  string
	out    reports
	dryRun bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Drive a stack through faults, record it, judge the recording",
		Long: `Drive a serving stack through every scenario that applies, record who owns which
block when, judge the recording and report. Without flags: the reference stack,
correct, in each transfer mode. A real engine takes --adapter, and with --engine one
of the versions that conform engine list shows.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.cfg.Adapter, "adapter", "reference", "the stack to drive")
	fl.StringVar(&f.cfg.Engine, "engine", "", "version of the adapter's engine, such as 0.5.23 or sglang@0.5.23 (default: the newest that is installed)")
	fl.StringVar(&f.cfg.Device, "device", "", "what the engine computes on: cpu or cuda (default: cpu)")
	fl.StringVar(&f.cfg.Model, "model", "", "folder of a model for the engine (default: a tiny one that is built in)")
	fl.StringSliceVar(&f.modes, "mode", nil, "transfer mode of the reference stack, push or pull; repeatable (default: each that a scenario applies to)")
	fl.StringSliceVar(&f.links, "connector", nil, "what an engine transfers with, such as mooncake or nixl; repeatable (default: each that a scenario applies to)")
	fl.StringSliceVar(&f.cfg.Scenarios, "scenario", nil, "id of a scenario; repeatable (default: all that apply)")
	fl.StringVar(&f.cfg.Defect, "defect", "", "name of a bug class to switch on in the reference stack")
	fl.StringVar(&f.cfg.Plan, "plan", "", "file with a fault plan that replaces those of the scenarios")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the workload and of the fault decisions")
	fl.StringVar(&f.seeds, "seeds", "", "a range of seeds, A-B, instead of --seed")
	fl.StringArrayVar(&f.cfg.Env, "env", nil, "NAME=VALUE for the engine's environment; repeatable")
	fl.StringArrayVar(&f.cfg.EngineArgs, "engine-arg", nil, "argument for the engine; repeatable")
	fl.StringVar(&f.cfg.OutDir, "out", "", "folder for the traces (default runs/TIME)")
	fl.IntVar(&f.cfg.Port, "port", 0, "port on the loopback interface where clients reach the stack; one scenario at a time (default: any)")
	fl.IntVar(&f.cfg.Jobs, "jobs", 0, "how many scenarios run at once (default: 2; 1 for an engine)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print every command and setting, start nothing")
	reportFlags(cmd, &f.out)
	return cmd
}

func (a *app) run(cmd *cobra.Command, f *runFlags) error {
	seeds, err := f.seedList(cmd.Flags().Changed("seed"))
	if err != nil {
		return err
	}
	if len(f.modes) > 0 && len(f.links) > 0 {
		return usage("--mode and --connector are both given", "one of the two: a connector is an engine's mode", "")
	}
	if len(f.links) > 0 && f.cfg.Adapter == "reference" {
		return usage("--connector is given, and the reference stack has none", "--mode, or --adapter with an engine", "conform list adapters shows the engines")
	}
	if cmd.Flags().Changed("jobs") && f.cfg.Jobs < 1 {
		return usage(fmt.Sprintf("--jobs is %d", f.cfg.Jobs), "a number from 1", "")
	}
	cfg := f.cfg
	cfg.Seeds, cfg.Modes = seeds, append(f.modes, f.links...)
	if f.dryRun {
		return a.dryRun(cmd.Context(), cfg, f.out.format)
	}
	if err := f.out.open(); err != nil {
		return err
	}
	progress := report.NewProgress(a.stderr, a.liveErr, a.columns)
	cfg.Progress = progress.Update
	result, err := a.backend.run(cmd.Context(), cfg)
	progress.Clear()
	if err != nil {
		return a.failed(&f.out, err)
	}
	a.status = runStatus(result)
	return a.write(cmd.Context(), &f.out, outcome{
		tree: result,
		text: func(w io.Writer, o report.Options) error {
			o.Again = f.again()
			return report.Text(w, result, o)
		},
		json: func(w io.Writer, o report.Options) error { return report.JSON(w, result, o) },
	})
}

// runStatus is the exit status of a run. A scenario that could not be run or
// judged is a failure of the harness or the engine, not of the user's input; a
// run that was cut short has not shown what it was for.
func runStatus(r *harness.RunResult) int {
	switch {
	case r.Verdict == spec.Error:
		return statusHarness
	case r.Interrupted:
		return max(r.Verdict, spec.Inconclusive).ExitStatus()
	}
	return r.Verdict.ExitStatus()
}

func (a *app) dryRun(ctx context.Context, cfg harness.Config, format string) error {
	text, err := a.backend.dryRun(ctx, cfg)
	if err != nil {
		return err
	}
	if format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(map[string][]string{
			"dry_run": strings.Split(strings.TrimSuffix(text, "\n"), "\n"),
		})
	}
	_, err = io.WriteString(a.stdout, strings.TrimSuffix(text, "\n")+"\n")
	return err
}

// seedList is the seeds that --seed or --seeds ask for.
func (f *runFlags) seedList(seedGiven bool) ([]uint64, error) {
	if f.seeds == "" {
		return []uint64{f.seed}, nil
	}
	if seedGiven {
		return nil, usage("--seed and --seeds are both given", "one of the two", "")
	}
	bad := usage(fmt.Sprintf("--seeds is %q", f.seeds), "A-B with A not above B, such as 1-20", "")
	from, to, ok := strings.Cut(f.seeds, "-")
	if !ok {
		return nil, bad
	}
	lo, err1 := strconv.ParseUint(from, 10, 64)
	hi, err2 := strconv.ParseUint(to, 10, 64)
	if err1 != nil || err2 != nil || lo > hi {
		return nil, bad
	}
	if hi-lo >= maxSeeds {
		return nil, usage(fmt.Sprintf("--seeds %s are more than %d seeds", f.seeds, maxSeeds), "fewer seeds", "split the range into several runs")
	}
	seeds := make([]uint64, 0, hi-lo+1)
	for i := range hi - lo + 1 {
		seeds = append(seeds, lo+i)
	}
	return seeds, nil
}

// again is the flags of this run that its result does not hold.
func (f *runFlags) again() []string {
	var args []string
	if f.cfg.Model != "" {
		args = append(args, "--model", f.cfg.Model)
	}
	if f.cfg.Plan != "" {
		args = append(args, "--plan", f.cfg.Plan)
	}
	for _, v := range f.cfg.Env {
		args = append(args, "--env", v)
	}
	for _, v := range f.cfg.EngineArgs {
		args = append(args, "--engine-arg", v)
	}
	return args
}
