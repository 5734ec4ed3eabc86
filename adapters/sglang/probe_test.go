package sglang

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines/fleet"
	"conform/faults"
	"conform/faults/failpoint"
	"conform/spec"
	"conform/traces"
)

// python is a python3 of at least 3.10; without one the test is skipped.
func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err == nil {
		err = exec.Command(path, "-c", "import sys; sys.exit(sys.version_info < (3, 10))").Run()
	}
	if err != nil {
		t.Skip("no python3 of 3.10 or later: the probe's own tests can't run")
	}
	return path
}

// pythonTests are ready to run: their environment, and where they leave traces.
func pythonTests(t *testing.T, name string, more ...string) (cmd *exec.Cmd, left string) {
	t.Helper()
	left = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, python(t), "-W", "error", "-m", "unittest", "-v", name)
	cmd.Dir = filepath.Join("probe", "tests")
	cmd.Env = append(os.Environ(), "PYTHONPATH=.."+string(os.PathListSeparator)+filepath.Join("..", "..", "..", "engines", "probe"), "PYTHONDONTWRITEBYTECODE=1", "CONFORM_TEST_DIR="+left)
	cmd.Env = append(cmd.Env, more...)
	return cmd, left
}

// The probe's own tests pass, and each run that they leave is a trace: whole, cut off
// by a kill, or with the losses that a full disk made.
func TestProbeInPython(t *testing.T) {
	for _, name := range []string{"test_spool", "test_parts", "test_binding", "test_failpoint", "test_recorder"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, left := pythonTests(t, name)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			t.Logf("%s", out)
			judgeTraces(t, left)
		})
	}
}

// judgeTraces reads the runs below a folder; the first word of a name says what is in it.
func judgeTraces(t *testing.T, left string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(left, "*", "events", "*.jsonl"))
	require.NoError(t, err)
	for _, source := range sources {
		name, err := filepath.Rel(left, source)
		require.NoError(t, err)
		word, _, _ := strings.Cut(name, "-")
		if word == "none" {
			continue
		}
		require.NoError(t, fleet.CutSpools(filepath.Dir(filepath.Dir(source))))
		tr, err := traces.Read(source, nil)
		require.NoError(t, err, name)
		require.NotEmpty(t, tr.Events, name)
		switch word {
		case "good":
			require.Empty(t, tr.Losses, name)
			require.Equal(t, spec.KindSeal, tr.Events[len(tr.Events)-1].K, name)
		case "open":
			require.Empty(t, tr.Losses, name)
		case "lost", "torn":
			require.NotEmpty(t, tr.Losses, name)
		default:
			t.Errorf("a source %q that nobody judges", name)
		}
	}
}

func TestProbeCompiles(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), python(t), "-W", "error", "-c",
		"import pathlib, sys\nfor p in pathlib.Path('.').rglob('*.py'): compile(p.read_bytes(), str(p), 'exec')")
	for _, cmd.Dir = range []string{"probe", "serve", filepath.Join("..", "engines", "probe")} {
		again := *cmd
		out, err := again.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// One probe lives through a run: it asks, is held, answers what it has in flight, and
// seals; the server at the other end is the harness's own.
func TestProbeAtTheFailpointServer(t *testing.T) {
	plan, err := faults.ParsePlan("plan", []byte(`
rules:
  - {name: first, when: {access: w, pool: kv, handoff: room-7, nth: 1}, do: fail}
  - {name: slot, when: {access: w, pool: aux}, do: drop}
  - {name: held, when: {access: w, handoff: room-9}, do: hold, until: {event: alloc, pool: kv, same: block}, limit: 5m}
  - {name: forever, when: {access: w, handoff: room-11}, do: hold, until: {event: cancel}, limit: 5m}`))
	require.NoError(t, err)
	engine, err := faults.NewEngine(plan, 1, faults.EngineOptions{})
	require.NoError(t, err)
	defer engine.Close()
	server, err := failpoint.Serve("127.0.0.1:0", engine)
	require.NoError(t, err)
	defer server.Close()
	cmd, left := pythonTests(t, "test_failpoint.RealServerTest", "CONFORM_TEST_FAILPOINT="+server.Addr())
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer stderr.Close()
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	says := func(word string) {
		if !lines.Scan() {
			words, _ := os.ReadFile(stderr.Name())
			t.Fatalf("it ended: %s", words)
		}
		require.Equal(t, word, lines.Text())
	}
	tell := func(word string) {
		_, err := stdin.Write([]byte(word))
		require.NoError(t, err)
	}
	fired := func(rule int) {
		require.Eventually(t, func() bool { return engine.Counts()[rule].Fired == 1 }, time.Minute, time.Millisecond)
	}
	fired(2)
	tell("1")
	says("held")
	loads, err := server.Loads(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]failpoint.Load{"prefill-0": {Leased: 2}}, loads)
	tell("2")
	says("freed")
	require.NoError(t, server.Seal(t.Context()))
	tell("3")
	fired(3)
	require.Zero(t, server.Malformed())
	require.Zero(t, server.Lost())
	require.NoError(t, server.Close())
	require.NoError(t, cmd.Wait(), "a server that is gone holds nobody")
	judgeTraces(t, left)
}
