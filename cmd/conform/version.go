package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"conform/harness"
	"conform/traces"
)

// build says which program this is.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Trace    int    `json:"trace"`
}

func thisBuild() build {
	b := build{Version: harness.Version, Go: runtime.Version(), Trace: traces.SpecVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which program this is",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if format == formatJSON {
				return json.NewEncoder(a.stdout).Encode(b)
			}
			_, err := fmt.Fprintf(a.stdout, "conform %s, trace format %d, %s\n", b.Version, b.Trace, b.Go)
			return err
		},
	}
	formatFlag(cmd, &format)
	return cmd
}
