package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"conform/adapters/engines"
	"conform/harness/report"
)

// engineCommand groups the commands for environments of real engines.
func (a *app) engineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Install, list or remove engine versions",
		Long: `Install, list or remove isolated environments of published engine versions, such as
sglang@0.5.23. They are kept in the folder that CONFORM_ENGINES names, by default
conform/engines in the user's cache, and made from lock files that name every
package by its hash. docs/engines/README.md tells more.`,
		Args: noUnknownCommand,
		RunE: func(*cobra.Command, []string) error {
			return usage("conform engine was not told what to do", "one of install, list, remove", "")
		},
	}
	cmd.AddCommand(a.engineInstallCommand(), a.engineListCommand(), a.engineRemoveCommand())
	return cmd
}

// deviceFlag adds --device.
func deviceFlag(cmd *cobra.Command, device *string) {
	cmd.Flags().StringVar(device, "device", engines.CPU, "what the engine computes on: cpu or cuda")
}

const oneEngine = "one engine, such as sglang@0.5.23"

func (a *app) engineInstallCommand() *cobra.Command {
	var device, format string
	cmd := &cobra.Command{
		Use:   "install NAME@VERSION",
		Short: "Install an engine version, or go on with an interrupted installation",
		Long: `Install an engine version in an environment of its own. An installation that was
interrupted goes on where it was; one that is complete is left as it is.`,
		Args: exactly(1, oneEngine),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := engines.Open(a.getenv)
			if err != nil {
				return engineFailure(err)
			}
			begun, p := time.Now(), &engineProgress{w: a.stderr, live: a.liveErr, columns: a.columns}
			e, err := store.Install(cmd.Context(), args[0], device, engines.Options{Progress: p.show, Waiting: a.engineWaiting})
			p.end()
			if err != nil {
				return engineFailure(err)
			}
			if format == formatJSON {
				return report.Encode(a.stdout, environmentJSON(e))
			}
			fmt.Fprintf(a.stdout, "%s is installed for %s: Python %s, %s of its own and %s shared with other versions, %.0f s\n",
				e.Spec(), e.Device, e.PythonVersion, engines.Megabytes(e.SizeBytes), engines.Megabytes(e.BaseBytes), time.Since(begun).Seconds())
			return nil
		},
	}
	deviceFlag(cmd, &device)
	formatFlag(cmd, &format)
	return cmd
}

// engineWaiting says for whom this process waits.
func (a *app) engineWaiting(holder string) {
	fmt.Fprintf(a.stderr, "waiting for %s, which writes in the same folder\n", report.Clean(holder))
}

func (a *app) engineListCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the engine versions that are installed, or can be",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			store, err := engines.Open(a.getenv)
			if err != nil {
				return engineFailure(err)
			}
			all, err := store.List()
			if err != nil {
				return engineFailure(err)
			}
			if format == formatJSON {
				return report.Encode(a.stdout, listingsJSON(store.Root, all))
			}
			return listingsText(a.stdout, all)
		},
	}
	formatFlag(cmd, &format)
	return cmd
}

func (a *app) engineRemoveCommand() *cobra.Command {
	var device string
	cmd := &cobra.Command{
		Use:   "remove NAME@VERSION",
		Short: "Remove an engine version, also one that is only partly installed",
		Args:  exactly(1, oneEngine),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := engines.Open(a.getenv)
			if err != nil {
				return engineFailure(err)
			}
			freed, err := store.Remove(cmd.Context(), args[0], device, a.engineWaiting)
			if err != nil {
				if e, ok := errors.AsType[*engines.NotInstalledError](err); ok {
					return usage(fmt.Sprintf("%s is not installed for %s", e.Spec, e.Device), "", "conform engine list shows what is")
				}
				return engineFailure(err)
			}
			fmt.Fprintf(a.stdout, "%s is removed from %s: %s freed\n", args[0], device, engines.Megabytes(freed))
			return nil
		},
	}
	deviceFlag(cmd, &device)
	return cmd
}

// engineFailure puts the errors of package engines into one line.
func engineFailure(err error) error {
	if f := ofEngines(err); f != nil {
		return f
	}
	f := &failure{status: statusHarness, found: err.Error(), err: err}
	if errors.Is(err, context.Canceled) {
		f.found, f.try = "interrupted; what is done so far is kept", "the same command goes on from there"
	}
	return f
}

// ofEngines is the failure that only package engines knows; nil for another.
func ofEngines(err error) *failure {
	if e, ok := errors.AsType[*engines.UnknownError](err); ok {
		if e.Device != engines.CPU && e.Device != engines.CUDA {
			return unknown("--device", e.Device, []string{engines.CPU, engines.CUDA}, "")
		}
		return unknown("engine", e.Spec, e.Known, "conform engine list")
	}
	if e, ok := errors.AsType[*engines.LockError](err); ok {
		return &failure{status: statusUsage, place: e.File, line: e.Line, found: e.Found, expected: "a lock file as docs/engines/README.md tells", err: err}
	}
	if e, ok := errors.AsType[*engines.NotInstalledError](err); ok {
		return &failure{status: statusHarness, found: e.Error(), err: err}
	}
	return nil
}

// environmentObject is an environment for programs.
type environmentObject struct {
	Engine     string            `json:"engine"`
	Version    string            `json:"version"`
	Device     string            `json:"device"`
	Python     string            `json:"python"`
	PythonPath []string          `json:"python_path"`
	Env        []string          `json:"env"`
	Packages   map[string]string `json:"packages"`
	Digest     string            `json:"digest"`
	SizeBytes  int64             `json:"size_bytes"`
	BaseBytes  int64             `json:"base_bytes"`
}

func environmentJSON(e *engines.Environment) environmentObject {
	return environmentObject{
		e.Engine, e.Version, e.Device, e.Python, e.PythonPath, e.Env, e.Packages, e.Digest, e.SizeBytes, e.BaseBytes,
	}
}

// listingObject is one line of conform engine list for programs.
type listingObject struct {
	Engine    string `json:"engine"`
	Device    string `json:"device"`
	State     string `json:"state"`
	Reason    string `json:"reason,omitempty"`
	Python    string `json:"python,omitempty"`
	Digest    string `json:"digest"`
	SizeBytes int64  `json:"size_bytes"`
	Base      string `json:"base"`
	BaseBytes int64  `json:"base_bytes"`
}

func listingsJSON(root string, all []engines.Listing) any {
	out := struct {
		Root    string          `json:"root"`
		Engines []listingObject `json:"engines"`
	}{root, []listingObject{}}
	for _, l := range all {
		out.Engines = append(out.Engines, listingObject{
			l.Spec, l.Device, l.State, l.Reason, l.Python, l.Digest, l.SizeBytes, l.Base, l.BaseBytes,
		})
	}
	return out
}

func listingsText(w io.Writer, all []engines.Listing) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ENGINE\tDEVICE\tSTATE\tSIZE\tSHARED\tPYTHON")
	for _, l := range all {
		state, python := l.State, l.Python
		if l.Reason != "" {
			state += " (" + l.Reason + ")"
		}
		if python == "" {
			python = "-"
		}
		fmt.Fprintln(t, strings.Join([]string{
			report.Clean(l.Spec), report.Clean(l.Device), report.Clean(state), engines.Megabytes(l.SizeBytes),
			engines.Megabytes(l.BaseBytes), report.Clean(python),
		}, "\t"))
	}
	return t.Flush()
}

// engineProgress shows an installation: on a terminal in one line that changes,
// elsewhere a line for each step and now and then one for the bytes.
type engineProgress struct {
	w       io.Writer
	live    bool
	columns int

	shown string    // the step of the last line
	open  bool      // a line without its end is on the terminal
	last  time.Time // of the last line about bytes
}

// quietEvery is how often bytes are told where every line stays.
const quietEvery = 10 * time.Second

func (p *engineProgress) show(x engines.Progress) {
	line := x.Part + ": " + x.Step
	if x.Total > 0 {
		line += fmt.Sprintf(", %s of %s downloaded", engines.Megabytes(x.Bytes), engines.Megabytes(x.Total))
	}
	if p.live {
		if limit := p.columns - 1; limit > 0 && len(line) > limit {
			line = line[:limit]
		}
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		p.open = true
		if x.Done {
			p.end()
		}
		return
	}
	step := x.Part + x.Step
	if x.Done || (step == p.shown && time.Since(p.last) < quietEvery) {
		return
	}
	p.shown, p.last = step, time.Now()
	fmt.Fprintln(p.w, line)
}

// end ends the line that changes.
func (p *engineProgress) end() {
	if p.open {
		fmt.Fprintln(p.w)
		p.open = false
	}
}
