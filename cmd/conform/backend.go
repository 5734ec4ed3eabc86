package main

import (
	"context"
	"io"

	"conform/harness"
	"conform/harness/report"
	"conform/spec"
	"conform/spec/check"
)

// TODO until the harness has landed: its types, as agreed.
type runConfig struct {
	Adapter    string
	Modes      []string
	Scenarios  []string
	Defect     string
	Plan       string
	Seeds      []uint64
	OutDir     string
	Jobs       int
	Env        []string
	EngineArgs []string
	Progress   func(report.Step)
}

type scenarioInfo struct {
	ID, Title, Why string
	Modes          []string
	Branches       []string
	Plan           string
}

type defectInfo struct {
	Name, Title string
	Rules       []spec.RuleID
	Scenarios   []string
	Mode        string
	Issues      []string
	Cause, Harm string
}

type adapterInfo struct {
	Name, Title string
	Modes       []string
	Level       spec.Level
}

type machineCheck struct {
	Name  string
	OK    bool
	Found string
	Try   string
}

// backend is what the commands call. Tests put failures in its place that the
// real one would have to be broken for.
type backend struct {
	run       func(context.Context, runConfig) (*harness.RunResult, error)
	dryRun    func(runConfig) (string, error)
	check     func(ctx context.Context, path string, stdin io.Reader) (*check.Result, error)
	scenarios func() []scenarioInfo
	defects   func() []defectInfo
	adapters  func() []adapterInfo
	doctor    func(context.Context) []machineCheck
}

func realBackend() backend { return backend{} }

func workerMain() bool { return false }

func knownFailure(error) *failure { return nil }

// TODO until spec.Transitions has landed.
func writeTransitions(io.Writer) error { return nil }

func transitionsPage() string { return "" }

func specAllJSON(io.Writer) error { return nil }
