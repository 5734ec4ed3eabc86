package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"conform/harness/hunt"
	"conform/harness/report"
	"conform/spec"
	"conform/spec/check"
)

// huntFlags are the flags of conform hunt as they were given.
type huntFlags struct {
	cfg    hunt.Config
	modes  []string
	links  []string
	seed   uint64
	format string
}

func (a *app) huntCommand() *cobra.Command {
	var f huntFlags
	cmd := &cobra.Command{
		Use:   "hunt [TRACE [FINDING]]",
		Short: "Predict from a clean run what may go wrong, and force it",
		Long: `Make a clean run, or take the folder of a saved one, list which accesses nothing
but luck or an unproven word keeps from the next owner of their block, and force
each bad order on the same stack by a fault plan. The answer to each is: confirmed,
with the failing trace, the harm, and the command that shows it again; refuted, and
what orders it; or not forced, and why. With FINDING (named as for conform explain)
only what that finding leaves open is hunted.

The exit status is 1 if a prediction was confirmed, 0 if each was refuted, 2 else.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				return exactly(2, "at most a trace and a finding")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.hunt(cmd, args, &f) },
	}
	fl, run := cmd.Flags(), &f.cfg.Run
	fl.StringVar(&run.Adapter, "adapter", "", "the stack to hunt on (default: that of TRACE, else reference)")
	fl.StringVar(&run.Engine, "engine", "", "version of the adapter's engine (default: that of TRACE, else the newest that is installed)")
	fl.StringVar(&run.Device, "device", "", "what the engine computes on: cpu or cuda (default: cpu)")
	fl.StringVar(&run.Model, "model", "", "folder of a model for the engine (default: a tiny one that is built in)")
	fl.StringSliceVar(&f.modes, "mode", nil, "transfer mode of the reference stack, push or pull; repeatable (default: each)")
	fl.StringSliceVar(&f.links, "connector", nil, "what an engine transfers with (default: the adapter's first)")
	fl.StringVar(&run.Defect, "defect", "", "name of a bug class to switch on in the reference stack")
	fl.StringArrayVar(&run.Env, "env", nil, "NAME=VALUE for the engine's environment; repeatable")
	fl.StringArrayVar(&run.EngineArgs, "engine-arg", nil, "argument for the engine; repeatable")
	fl.StringVar(&f.cfg.Clean, "scenario", "baseline", "id of the scenario of the clean run")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the clean run, and the first of the forced ones")
	fl.StringSliceVar(&f.cfg.Ends, "end", nil, "only this way of ending a lease, such as abort or silence; repeatable (default: all, see docs/hunt.md)")
	fl.DurationVar(&f.cfg.Budget, "budget", 5*time.Minute, "time for the whole hunt; what was not tried by then was not forced")
	fl.BoolVar(&f.cfg.First, "first", false, "end with the first prediction that is confirmed up to a wrong answer")
	fl.IntVar(&f.cfg.Jobs, "jobs", 0, "how many predictions are forced at once (default: 2; 1 for an engine)")
	fl.StringVar(&run.OutDir, "out", "", "folder for the traces and plans (default hunts/TIME)")
	formatFlag(cmd, &f.format)
	return cmd
}

func (a *app) hunt(cmd *cobra.Command, args []string, f *huntFlags) error {
	cfg := f.cfg
	if len(f.modes) > 0 && len(f.links) > 0 {
		return usage("--mode and --connector are both given", "one of the two: a connector is an engine's mode", "")
	}
	if cfg.Budget <= 0 {
		return usage(fmt.Sprintf("--budget is %s", cfg.Budget), "a time above 0, such as 2m", "")
	}
	if cmd.Flags().Changed("jobs") && (cfg.Jobs < 1 || cfg.Jobs > 64) {
		return usage(fmt.Sprintf("--jobs is %d", cfg.Jobs), "a number from 1 to 64", "")
	}
	cfg.Run.Modes, cfg.Run.Seeds = append(f.modes, f.links...), []uint64{f.seed}
	if len(args) > 0 {
		cfg.Trace = args[0]
		about, err := a.huntedFinding(cmd, args)
		if err != nil {
			return err
		}
		cfg.About = about
	}
	cfg.Progress = func(p hunt.Progress) {
		fmt.Fprintf(a.stderr, "[%d/%d] %s\n", p.Done, p.Total, report.Clean(p.Text))
	}
	result, err := a.backend.hunt(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	a.status = result.Verdict.ExitStatus()
	if f.format == formatJSON {
		return report.Encode(a.stdout, result)
	}
	return hunt.Text(a.stdout, result, a.reportOptions())
}

// huntedFinding judges the trace, so that a bad one is refused as by check, and picks
// the finding that is named; nil without one.
func (a *app) huntedFinding(cmd *cobra.Command, args []string) (*check.Finding, error) {
	if args[0] == "-" {
		return nil, usage("the trace is standard input", "the folder of one run: its manifest says which stack to hunt on", "")
	}
	_, judged, err := readAndJudge(cmd.Context(), args[0], a.stdin, check.Options{})
	if err != nil || len(args) == 1 {
		return nil, err
	}
	f, _, err := pick(judged.Result, args[1])
	if err == nil && f.Verdict == spec.Fail {
		return nil, usage("the finding has gone wrong already: it fails", "one that is unproven", "run 'conform explain' for what it says")
	}
	return &f, err
}
