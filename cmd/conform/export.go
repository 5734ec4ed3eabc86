package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"conform/spec/check"
)

// exportPorcupine is the value of --to for Porcupine's picture.
const exportPorcupine = "porcupine"

func (a *app) exportCommand() *cobra.Command {
	var to, out string
	var drift int
	cmd := &cobra.Command{
		Use:   "export --to porcupine TRACE [FINDING]",
		Short: "Draw a finding as another tool does",
		Long: `Draw a finding as another tool does. porcupine: one HTML page, Porcupine's picture
of the smallest history that it refuses, for what fails BLK-1 to BLK-4. Without
-o it goes to standard output.

` + findingWords,
		Args: traceAndFinding,
		RunE: func(cmd *cobra.Command, args []string) error {
			if to != exportPorcupine {
				return unknown("--to", to, []string{exportPorcupine}, "")
			}
			if out != "" && !strings.HasSuffix(out, ".html") {
				return usage(fmt.Sprintf("--out is %q", out), "a file name that ends in .html", "")
			}
			c, err := a.choose(cmd.Context(), args, drift)
			if err != nil {
				return err
			}
			var page bytes.Buffer
			if err := c.judged.Picture(c.finding, &page); errors.Is(err, check.ErrNoPicture) {
				return usage(fmt.Sprintf("finding %s, %s %s, has no picture", c.name, c.finding.Rule, c.finding.Verdict),
					"what fails BLK-1, BLK-2, BLK-3 or BLK-4", "conform explain draws every finding")
			} else if err != nil {
				return err
			}
			if out == "" {
				_, err := a.stdout.Write(page.Bytes())
				return err
			}
			if err := os.WriteFile(out, page.Bytes(), 0o666); err != nil {
				return unreadable(out, "a file that can be written", err)
			}
			fmt.Fprintf(a.stdout, "%s %s: Porcupine's picture of it is in %s\n", c.finding.Rule, c.finding.Verdict, out)
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", exportPorcupine, "the form: porcupine")
	driftFlag(cmd, &drift)
	cmd.Flags().StringVarP(&out, "out", "o", "", "the .html `FILE` to write to")
	return cmd
}
