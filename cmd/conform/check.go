package main

import (
	"github.com/spf13/cobra"

	"conform/harness/report"
)

func (a *app) checkCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "check TRACE",
		Short: "Judge a saved trace",
		Long: `Judge a saved trace: a run directory, a .jsonl or .jsonl.zst file, or - for
standard input. Starts nothing and needs no engine.`,
		Args: exactly(1, "one trace: "+traceWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := a.backend.check(cmd.Context(), args[0], a.stdin)
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
	return cmd
}
