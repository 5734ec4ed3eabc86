package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"conform/adapters/reference"
	"conform/harness"
	"conform/harness/hunt"
	"conform/spec/check"
)

// workerMain runs this process as a worker of a stack, if that is what it was
// started for, and reports whether it did.
func workerMain() bool { return reference.Main() }

// backend is what the commands call that can fail or takes long. Tests put
// failures in its place that the real one would have to be broken for.
type backend struct {
	run    func(context.Context, harness.Config) (*harness.RunResult, error)
	dryRun func(context.Context, harness.Config) (string, error)
	matrix func(context.Context, harness.MatrixConfig) (*harness.Matrix, error)
	hunt   func(context.Context, hunt.Config) (*hunt.Result, error)
	check  func(ctx context.Context, path string, stdin io.Reader, opt check.Options) (*check.Result, error)
	doctor func(context.Context) []harness.Check
}

func realBackend() backend {
	return backend{run: harness.Run, dryRun: harness.DryRun, matrix: harness.RunMatrix, hunt: hunt.Hunt, check: checkTrace, doctor: harness.Doctor}
}

// within is where a file that a reader names by its base name lies.
func within(path, base string) string {
	switch info, err := os.Stat(path); {
	case path == "-" || base == "" || err != nil:
		return base
	case !info.IsDir():
		return path
	case base == "manifest.json", base == "events":
		return filepath.Join(path, base)
	}
	return filepath.Join(path, "events", base)
}
