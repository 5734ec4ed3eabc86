package main

import (
	"github.com/spf13/cobra"

	"conform/harness/report"
	"conform/traces"
)

func (a *app) explainCommand() *cobra.Command {
	var format string
	var drift int
	cmd := &cobra.Command{
		Use:   "explain TRACE [FINDING]",
		Short: "Tell one finding of a trace in words, with a picture of who did what when",
		Long: `Tell one finding of a trace in words: what happened, whose the block was before
and after, what evidence was missing, what would have been enough. Below it, a
line for each event around it, in three lanes: the block, the accesses, and what
was said and decided. > marks the events that prove the finding, | a block that is
leased or an access that is open, -> a signal that is sent, <- one that is taken in.
Last, the commands that show it again; of a run directory, also how it was made.
The exit status is 0 whatever the finding is.

` + findingWords,
		Args: traceAndFinding,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.choose(cmd.Context(), args, drift)
			if err != nil {
				return err
			}
			story, err := c.judged.Explain(c.finding)
			if err != nil {
				return err
			}
			told := report.Told{Trace: c.path, Finding: c.name, Story: story, DriftPPM: drift}
			if m, err := traces.ReadManifest(c.path); err == nil { // a run directory
				told.Manifest = &m
			}
			if format == formatJSON {
				return report.StoryJSON(a.stdout, told, a.reportOptions())
			}
			return report.StoryText(a.stdout, told, a.reportOptions())
		},
	}
	formatFlag(cmd, &format)
	driftFlag(cmd, &drift)
	return cmd
}
