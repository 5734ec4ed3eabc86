package main

import (
	"fmt"
	"io"

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
			found := doctorReport{OK: true}
			for _, c := range a.backend.doctor(cmd.Context()) {
				found.Checks = append(found.Checks, doctorCheck(c))
				if !c.OK && c.Optional == "" {
					found.OK, a.status = false, statusHarness
				}
			}
			if format == formatJSON {
				return report.Encode(a.stdout, found)
			}
			found.text(a.stdout)
			return nil
		},
	}
	formatFlag(cmd, &format)
	return cmd
}

// doctorReport is what conform doctor found.
type doctorReport struct {
	OK     bool          `json:"ok"`
	Checks []doctorCheck `json:"checks"`
}

// doctorCheck is a harness.Check with names for programs.
type doctorCheck struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Found    string `json:"found"`
	Try      string `json:"try,omitempty"`
	Optional string `json:"optional,omitempty"`
}

func (r doctorReport) text(w io.Writer) {
	for _, c := range r.Checks {
		word, more := "ok", ""
		switch {
		case c.OK:
		case c.Optional != "":
			word, more = "-", "; "+c.Optional
		default:
			word, more = "NOT OK", "; try: "+c.Try
		}
		fmt.Fprintf(w, "%-7s %-18s %s\n", word, report.Clean(c.Name), report.Clean(c.Found+more))
	}
	if r.OK {
		fmt.Fprintln(w, "this machine is ready")
		return
	}
	fmt.Fprintln(w, "this machine is NOT ready")
}
