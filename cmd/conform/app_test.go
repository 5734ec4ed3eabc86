package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/adapters/engines"
	"conform/faults"
	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// call is one call of the program within the test.
type call struct {
	*app
	out, errs *bytes.Buffer
	env       map[string]string
}

func newCall(b backend) call {
	c := call{out: &bytes.Buffer{}, errs: &bytes.Buffer{}, env: map[string]string{}}
	c.app = &app{
		stdin: strings.NewReader(""), stdout: &pipe{w: c.out}, stderr: &pipe{w: c.errs},
		getenv:  func(name string) string { return c.env[name] },
		program: "conform", backend: b,
	}
	return c
}

// fake is a backend whose runs give one result.
func fake(r *harness.RunResult, err error) backend {
	b := realBackend()
	b.run = func(context.Context, harness.Config) (*harness.RunResult, error) { return r, err }
	return b
}

func TestExitStatusOfRuns(t *testing.T) {
	for _, c := range []struct {
		verdict     spec.Verdict
		interrupted bool
		want        int
	}{
		{spec.Pass, false, 0},
		{spec.Fail, false, 1},
		{spec.Unproven, false, 2},
		{spec.Inconclusive, false, 2},
		{spec.Error, false, 4},
		{spec.Pass, true, 2},
		{spec.Fail, true, 1},
		{spec.Error, true, 4},
	} {
		got := newCall(fake(&harness.RunResult{Verdict: c.verdict, Interrupted: c.interrupted}, nil))
		require.Equal(t, c.want, got.main(t.Context(), []string{"run"}), "%v %v", c.verdict, c.interrupted)
		require.Empty(t, got.errs.String())
		require.NotEmpty(t, got.out.String())
	}
}

func TestRunHandsItsFlagsOn(t *testing.T) {
	var got harness.Config
	b := fake(&harness.RunResult{Verdict: spec.Fail, Scenarios: []harness.ScenarioResult{{ID: "baseline", Seed: 4}}}, nil)
	inner := b.run
	b.run = func(ctx context.Context, cfg harness.Config) (*harness.RunResult, error) {
		got = cfg
		return inner(ctx, cfg)
	}
	c := newCall(b)
	status := c.main(t.Context(), []string{
		"run", "--mode", "push", "--scenario", "baseline", "--scenario", "ack-lost", "--defect", "free-at-cancel",
		"--plan", "p.yaml", "--seeds", "4-6", "--env", "A=b c", "--engine-arg", "--x", "--out", "o", "--jobs", "3",
		"--engine", "0.5.23", "--device", "cuda", "--model", "m",
	})
	require.Equal(t, 1, status, c.errs.String())
	require.NotNil(t, got.Progress)
	got.Progress = nil
	require.Equal(t, harness.Config{
		Adapter: "reference", Modes: []string{"push"}, Scenarios: []string{"baseline", "ack-lost"}, Defect: "free-at-cancel",
		Plan: "p.yaml", Seeds: []uint64{4, 5, 6}, Env: []string{"A=b c"}, EngineArgs: []string{"--x"}, OutDir: "o", Jobs: 3,
		Engine: "0.5.23", Device: "cuda", Model: "m",
	}, got)
	require.Contains(t, c.out.String(), "--seed 4 --model m --plan p.yaml --env 'A=b c' --engine-arg --x\n")
}

// A connector is an engine's mode.
func TestConnectorsAreModes(t *testing.T) {
	var got harness.Config
	b := realBackend()
	b.run = func(_ context.Context, cfg harness.Config) (*harness.RunResult, error) {
		got = cfg
		return &harness.RunResult{
			Verdict: spec.Fail, Adapter: "sglang", Engine: "sglang@0.5.23", Device: "cuda",
			Scenarios: []harness.ScenarioResult{{ID: "baseline", Mode: "nixl", Seed: 4}},
		}, nil
	}
	c := newCall(b)
	require.Equal(t, 1, c.main(t.Context(), []string{"run", "--adapter", "sglang", "--connector", "nixl,mooncake"}), c.errs.String())
	require.Equal(t, []string{"nixl", "mooncake"}, got.Modes)
	require.Contains(t, c.out.String(), "run --adapter sglang --engine 0.5.23 --device cuda --scenario baseline --connector nixl --seed 4\n")
}

func TestHarnessFailures(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		says   string
	}{
		{fmt.Errorf("start: %w", context.Canceled), 4, "interrupted"},
		{errors.New("prefill-0 ended\nbefore it was ready"), 4, `prefill-0 ended\x0abefore it was ready; conform doctor`},
		{usage("a", "b", "c"), 3, "a; expected b; c"},
		{
			&engines.NotInstalledError{Spec: "sglang@0.5.23", Device: engines.CPU}, 4,
			"conform: sglang@0.5.23 is not installed for cpu; install it with: conform engine install sglang@0.5.23\n",
		},
	} {
		got := newCall(fake(nil, c.err))
		require.Equal(t, c.status, got.main(t.Context(), []string{"run", "--format", "json"}))
		require.Contains(t, got.errs.String(), c.says)
		require.Equal(t, 1, strings.Count(got.errs.String(), "\n"), got.errs.String())
		require.Contains(t, got.out.String(), `{"verdict":"error"`)
	}
}

func TestNoPanicReachesAUser(t *testing.T) {
	b := realBackend()
	b.run = func(context.Context, harness.Config) (*harness.RunResult, error) { panic("index\nout of range") }
	c := newCall(b)
	require.Equal(t, 4, c.main(t.Context(), []string{"run"}))
	require.Equal(t, 1, strings.Count(c.errs.String(), "\n"), c.errs.String())
	require.Contains(t, c.errs.String(), "conform: internal error: ")
	require.Contains(t, c.errs.String(), "please report it")
	require.NotContains(t, c.errs.String(), "goroutine")

	c = newCall(b)
	c.env["CONFORM_DEBUG"] = "1"
	require.Equal(t, 4, c.main(t.Context(), []string{"run"}))
	require.Contains(t, c.errs.String(), "goroutine")
}

func TestJudgeThatIsInterrupted(t *testing.T) {
	b := realBackend()
	b.check = func(ctx context.Context, _ string, _ io.Reader, _ check.Options) (*check.Result, error) {
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newCall(b)
	require.Equal(t, 4, c.main(ctx, []string{"check", "x"}))
	require.Contains(t, c.errs.String(), "interrupted")
}

func TestFailuresOfTheJudge(t *testing.T) {
	bad := &check.BadTrace{Pos: spec.Position{File: "-", Line: 7}, Found: "no order", Expected: "one"}
	for _, c := range []struct {
		err    error
		status int
		says   string
	}{
		{inTrace("-", fmt.Errorf("judge: %w", bad)), 3, "conform: -:7: no order; expected one\n"},
		{inTrace("-", &check.LimitError{What: "accesses", Limit: 9}), 3, "conform: -: too many accesses; expected at most 9, "},
		{inTrace("-", errors.New("no memory")), 4, "conform: no memory; "},
	} {
		b := realBackend()
		b.check = func(context.Context, string, io.Reader, check.Options) (*check.Result, error) { return nil, c.err }
		got := newCall(b)
		require.Equal(t, c.status, got.main(t.Context(), []string{"check", "-"}))
		require.True(t, strings.HasPrefix(got.errs.String(), c.says), got.errs.String())
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestClosedPipeChangesNothing(t *testing.T) {
	for _, err := range []error{syscall.EPIPE, io.ErrClosedPipe, &os.PathError{Op: "write", Err: syscall.EPIPE}} {
		for _, args := range [][]string{{"run"}, {"run", "--format", "json"}, {"spec"}, {"list", "rules"}, {"version"}, {"--help"}} {
			c := newCall(fake(&harness.RunResult{Verdict: spec.Pass}, nil))
			c.app.stdout = &pipe{w: failingWriter{err}}
			require.Equal(t, 0, c.main(t.Context(), args), "%v", args)
			require.Empty(t, c.errs.String())
		}
	}
}

func TestFullDiskIsToldOf(t *testing.T) {
	c := newCall(fake(&harness.RunResult{Verdict: spec.Pass}, nil))
	c.app.stdout = &pipe{w: failingWriter{syscall.ENOSPC}}
	require.Equal(t, 4, c.main(t.Context(), []string{"run"}))
	require.Contains(t, c.errs.String(), "cannot write the result: no space left on device")
}

func TestColorOnlyOnATerminal(t *testing.T) {
	for _, c := range []struct {
		tty     bool
		noColor string
		want    bool
	}{{true, "", true}, {true, "1", false}, {false, "", false}} {
		got := newCall(fake(&harness.RunResult{Verdict: spec.Pass}, nil))
		got.colorOut, got.env["NO_COLOR"] = c.tty, c.noColor
		require.Equal(t, 0, got.main(t.Context(), []string{"run"}))
		require.Equal(t, c.want, strings.Contains(got.out.String(), "\x1b"))
	}
}

// Whatever is on the command line: a status from 0 to 4, and an error is one line.
func TestAnyCommandLine(t *testing.T) {
	words := rapid.OneOf(
		rapid.SampledFrom([]string{
			"run", "check", "spec", "list", "doctor", "version", "rules", "--seed", "--seeds", "1-2", "--format", "json",
			"--scenario", "baseline", "--jobs", "-1", "--", "-", "--mode", "push", "BLK-1", "--out=", "-h", "help", "completion",
		}),
		rapid.String(),
	)
	b := fake(&harness.RunResult{Verdict: spec.Pass}, nil)
	b.dryRun = func(context.Context, harness.Config) (string, error) { return "", nil }
	b.doctor = func(context.Context) []harness.Check { return nil }
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(words, 0, 5).Draw(t, "args")
		if len(args) > 0 && args[0] == "docs" {
			t.Skip("writes files")
		}
		c := newCall(b)
		status := c.main(context.Background(), args)
		if status < 0 || status > 4 || strings.Contains(c.errs.String(), "internal error") {
			t.Fatalf("status %d: %s", status, c.errs)
		}
		if status >= statusUsage && strings.Count(c.errs.String(), "\n") != 1 {
			t.Fatalf("status %d and %q", status, c.errs)
		}
	})
}

func TestProgramName(t *testing.T) {
	for in, want := range map[string]string{
		"/tmp/go-build123/b001/exe/conform": "go run ./cmd/conform", "conform": "conform", "": "conform", "./bin/conform": "./bin/conform",
	} {
		require.Equal(t, want, programName(in))
	}
}

// The committed reference pages are what the registries say.
func TestReferencePagesAreUpToDate(t *testing.T) {
	for name, page := range pages() {
		path := filepath.Join("../../docs", name)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(page, b), "docs/%s is out of date: go run ./cmd/conform docs docs", name)
	}
}

func TestDocsCommand(t *testing.T) {
	dir := t.TempDir()
	c := newCall(realBackend())
	require.Equal(t, 0, c.main(t.Context(), []string{"docs", dir}), c.errs.String())
	for name := range pages() {
		require.FileExists(t, filepath.Join(dir, name))
	}
	c = newCall(realBackend())
	require.Equal(t, 3, c.main(t.Context(), []string{"docs", filepath.Join(dir, "none")}))
	require.Contains(t, c.errs.String(), "no such file or directory")
}

// Links between the pages, and from the README, lead somewhere.
func TestDocsLinks(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../../README.md") {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, part := range strings.Split(string(b), "](")[1:] {
			target, _, ok := strings.Cut(part, ")")
			if !ok || strings.Contains(target, "://") {
				continue
			}
			target, _, _ = strings.Cut(target, "#")
			require.FileExists(t, filepath.Join(filepath.Dir(page), target), "%s", page)
		}
	}
}

// Each flag that the documentation names is a flag of some command.
func TestDocsFlags(t *testing.T) {
	known := map[string]bool{}
	for _, cmd := range everyCommand((&app{}).root()) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		cmd.InitDefaultHelpFlag()
	}
	known["help"] = true
	require.True(t, known["connector"])
	flags := regexp.MustCompile("(?:[ `(]|^)--([a-z][a-z-]*)")
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	seen := 0
	for _, page := range append(pages, "../../README.md", "../../docs/engines/README.md") {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			if !strings.Contains(line, "conform ") && !strings.Contains(line, "`--") {
				continue // of another program
			}
			for _, m := range flags.FindAllStringSubmatch(line, -1) {
				seen++
				require.True(t, known[m[1]], "%s names --%s, which no command has", page, m[1])
			}
		}
	}
	require.Greater(t, seen, 20)
}

// The plans of the documentation are plans.
func TestDocsPlans(t *testing.T) {
	b, err := os.ReadFile("../../docs/fault-plans.md")
	require.NoError(t, err)
	blocks := fenced(string(b), "yaml")
	require.Len(t, blocks, 5)
	for _, block := range blocks {
		plan, err := faults.ParsePlan("fault-plans.md", []byte(block))
		require.NoError(t, err, block)
		require.NotEmpty(t, plan.Rules)
	}
}

// The trace of the documentation does what the text says that it does.
func TestDocsTrace(t *testing.T) {
	b, err := os.ReadFile("../../docs/writing-traces.md")
	require.NoError(t, err)
	blocks := fenced(string(b), "json")
	require.Len(t, blocks, 1)
	trace := blocks[0]
	const free = `"t":50,"k":"free"`
	require.Contains(t, trace, free)
	for _, c := range []struct {
		trace  string
		status int
		says   string
	}{
		{trace, 0, "PASS"},
		{strings.Replace(trace, `,"claims":"completed"`, "", 1), 2, "SIG-2"},
		{strings.Replace(trace, free, `"th":"timer","t":25,"k":"free"`, 1), 1, "BLK-2"},
	} {
		call := newCall(realBackend())
		call.stdin = strings.NewReader(c.trace)
		require.Equal(t, c.status, call.main(t.Context(), []string{"check", "-"}), "%s%s", call.out, call.errs)
		require.Contains(t, call.out.String(), c.says)
	}
}

// fenced gives the fenced blocks of a page that are of one language.
func fenced(page, language string) []string {
	var blocks []string
	for _, part := range strings.Split(page, "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}
