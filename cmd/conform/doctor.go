package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"conform/harness/report"
)

func (a *app) doctorCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell whether this machine is ready",
		Long: `Tell whether this machine can run what conform starts: each check with what was
found, and what to do where it is not enough. Exit status 4 if one failed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := a.backend.doctor(cmd.Context())
			for _, c := range checks {
				if !c.OK {
					a.status = statusHarness
				}
			}
			if format == formatJSON {
				e := json.NewEncoder(a.stdout)
				e.SetIndent("", "  ")
				return e.Encode(doctorReport{OK: a.status == 0, Checks: checks})
			}
			for _, c := range checks {
				word := "ok"
				if !c.OK {
					word = "NOT OK"
				}
				fmt.Fprintf(a.stdout, "%-7s %-22s %s\n", word, report.Clean(c.Name), report.Clean(c.Found))
				if !c.OK && c.Try != "" {
					fmt.Fprintf(a.stdout, "%-7s %-22s %s\n", "", "", "try: "+report.Clean(c.Try))
				}
			}
			return nil
		},
	}
	formatFlag(cmd, &format)
	return cmd
}

type doctorReport struct {
	OK     bool           `json:"ok"`
	Checks []machineCheck `json:"checks"`
}
