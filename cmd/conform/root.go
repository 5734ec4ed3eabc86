package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"conform/harness/report"
)

// The values of --format.
const (
	formatText = "text"
	formatJSON = "json"
)

// root is the command line. Errors and usage are written by app alone.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "conform",
		Short: "Conformance tests for disaggregated LLM serving",
		Long: `Conform drives a serving stack through faults, records who owns which KV block
when, and judges the recording: can a block reach its next owner while somebody
may still read or write it, and can a refused request still do work?

Exit status: 0 pass, 1 fail, 2 unproven or inconclusive, 3 bad input or usage,
4 the harness or the engine failed.`,
		Args:              noUnknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: noEmptyFlag,

		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return flagFailure(err, cmd.Flags(), cmd.CommandPath())
	})
	root.AddCommand(a.runCommand(), a.checkCommand(), a.diffCommand(), a.explainCommand(), a.shrinkCommand(), a.huntCommand(), a.exportCommand(), a.redactCommand(), a.keygenCommand(), a.certifyCommand(), a.verifyCommand(), a.specCommand(), a.listCommand(), a.writersCommand(), a.engineCommand(),
		a.doctorCommand(), a.versionCommand(), a.docsCommand())
	return root
}

// noUnknownCommand refuses a word where a command is expected.
func noUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return unknown("command", args[0], names, cmd.CommandPath()+" --help")
}

// exactly refuses any other number of arguments than n.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return usage(fmt.Sprintf("%s was given %d arguments", cmd.CommandPath(), len(args)), what,
			fmt.Sprintf("see %s --help", cmd.CommandPath()))
	}
}

// noArgs refuses any argument.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage(fmt.Sprintf("%s was given the argument %q", cmd.CommandPath(), args[0]), "flags only",
		fmt.Sprintf("see %s --help", cmd.CommandPath()))
}

// noEmptyFlag refuses a flag that was given nothing, as by a script whose variable is not
// set: it would do what the flag left out does, such as to run every scenario.
func noEmptyFlag(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		switch list, ok := f.Value.(pflag.SliceValue); {
		case f.Value.Type() == "stringArray":
			return // each value has a form of its own, and an engine's argument may be empty
		case ok:
			values = list.GetSlice()
		}
		if len(values) == 0 || slices.Contains(values, "") {
			err = usage(fmt.Sprintf("--%s has an empty value", f.Name), "a value", "leave the flag out for its default")
		}
	})
	return err
}

// formatFlag adds --format.
func formatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "format", formatText, "how to write the result: text or json")
	inner := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if formats := []string{formatText, formatJSON}; !slices.Contains(formats, *format) {
			return unknown("--format", *format, formats, "")
		}
		return inner(cmd, args)
	}
}

// reportOptions are the options of a text summary on standard output.
func (a *app) reportOptions(again ...string) report.Options {
	return report.Options{Color: a.colorOut && a.getenv("NO_COLOR") == "", Program: a.program, Again: again}
}

// programName is what a person types to call this program again. Under go run
// the binary is a temporary file that is gone by then.
func programName(arg0 string) string {
	if strings.Contains(filepath.ToSlash(arg0), "/go-build") {
		return "go run ./cmd/conform"
	}
	if arg0 == "" || !strings.ContainsRune(arg0, filepath.Separator) {
		return "conform"
	}
	return arg0
}
