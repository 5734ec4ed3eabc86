package main

import (
	"github.com/spf13/cobra"

	"conform/harness/report"
	"conform/spec/check"
)

func (a *app) explainCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "explain TRACE [FINDING]",
		Short: "Tell one finding of a trace in words, with a picture of who did what when",
		Long: `Tell one finding of a trace in words: what happened, whose the block was before
and after, what evidence was missing, what would have been enough. Below it, a
line for each event around it, in three lanes: the block, the accesses, and what
was said and decided. > marks the events that prove the finding.

` + findingWords,
		Args: traceAndFinding,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.choose(cmd.Context(), args)
			if err != nil {
				return err
			}
			story, err := check.Explain(cmd.Context(), c.trace, c.finding, check.Options{})
			if err != nil {
				return err
			}
			if format == formatJSON {
				return report.StoryJSON(a.stdout, story)
			}
			return report.StoryText(a.stdout, c.path, c.name, story, a.reportOptions())
		},
	}
	formatFlag(cmd, &format)
	return cmd
}
