package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"conform/harness/report"
	"conform/spec/check"
	"conform/spec/check/clock"
)

func (a *app) checkCommand() *cobra.Command {
	var format string
	var opt check.Options
	cmd := &cobra.Command{
		Use:   "check TRACE",
		Short: "Judge a saved trace",
		Long: `Judge a saved trace: a run directory, a .jsonl or .jsonl.zst file, or - for
standard input. Starts nothing and needs no engine.

Clocks of different hosts may be any constant time apart: what is found is wrong
whatever that is. For a long run on several hosts, --drift-ppm says how much
their rates may differ from each other besides. That only lets more pass: clocks
that keep within it give no false alarm.`,
		Args: exactly(1, "one trace: "+traceWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opt.DriftPPM < 0 || opt.DriftPPM > clock.MaxDriftPPM {
				return usage(fmt.Sprintf("--drift-ppm is %d", opt.DriftPPM), fmt.Sprintf("a number from 0 to %d", clock.MaxDriftPPM), "")
			}
			result, err := a.backend.check(cmd.Context(), args[0], a.stdin, opt)
			if err != nil {
				return err
			}
			a.status = result.Verdict.ExitStatus()
			if format == formatJSON {
				return report.TraceJSON(a.stdout, result)
			}
			return report.TraceText(a.stdout, args[0], result, a.reportOptions())
		},
	}
	formatFlag(cmd, &format)
	cmd.Flags().IntVar(&opt.DriftPPM, "drift-ppm", 0,
		"by how many millionths the clocks of different hosts may run at different rates; 0: their offsets are constant")
	return cmd
}
