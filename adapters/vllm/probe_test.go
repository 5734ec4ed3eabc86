package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/adapters/engines/fleet"
	"conform/spec"
	"conform/traces"
)

// The probe's own tests pass, and each run that they leave is a trace without losses.
func TestProbeInPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err == nil {
		err = exec.Command(python, "-c", "import sys; sys.exit(sys.version_info < (3, 10))").Run()
	}
	if err != nil {
		t.Skip("no python3 of 3.10 or later: the probe's own tests can't run")
	}
	front, err := probe.Unpack(t.TempDir())
	require.NoError(t, err)
	left := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-W", "error", "-m", "unittest", "-v", "test_probe", "test_mooncake")
	cmd.Dir = filepath.Join("probe", "tests")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+front, "PYTHONDONTWRITEBYTECODE=1", "CONFORM_TEST_DIR="+left)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	runs, err := filepath.Glob(filepath.Join(left, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, runs)
	for _, run := range runs {
		require.NoError(t, fleet.CutSpools(run))
		require.NoError(t, traces.WriteManifest(run, traces.Manifest{Tool: "test"}))
		tr, err := traces.Read(run, nil)
		require.NoError(t, err, run)
		require.NotEmpty(t, tr.Events, run)
		require.Empty(t, tr.Losses, run)
	}
}

// Every hook finds its place in each installed build.
func TestHooksBindInInstalledEngines(t *testing.T) {
	if testing.Short() {
		t.Skip("imports whole engines")
	}
	for _, release := range []string{"0.15.1", "0.16.0", "0.29.0", "0.32.0"} {
		t.Run(release, func(t *testing.T) {
			env, err := engines.Find(t.Context(), "vllm@"+release, engines.CPU)
			if err != nil {
				t.Skip(err)
			}
			front, err := probe.Unpack(t.TempDir())
			require.NoError(t, err)
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), env.Python, filepath.Join("probe", "tests", "selfcheck.py"), release)
			cmd.Env, cmd.Stderr = env.Environ(os.Environ(), front), &stderr
			out, err := cmd.Output()
			require.NoError(t, err, stderr.String())
			_, text, found := strings.Cut(string(out), "SELFCHECK ")
			require.True(t, found, string(out))
			var told struct {
				Asked   int                      `json:"asked"`
				Bound   int                      `json:"bound"`
				Missing map[spec.RuleID][]string `json:"missing"`
			}
			require.NoError(t, json.Unmarshal([]byte(text), &told))
			require.Empty(t, told.Missing)
			require.Equal(t, told.Asked, told.Bound)
			require.GreaterOrEqual(t, told.Bound, 21)
		})
	}
}

func TestProbeVariable(t *testing.T) {
	w := worker{id: "decode-0", role: spec.RoleDecode}
	cfg := adapters.Config{Version: "0.32.0", Mode: NIXL, Device: "cpu", Dir: "run", Host: "h", Failpoint: "127.0.0.1:1"}
	text, err := w.probe(cfg, "clock")
	require.NoError(t, err)
	var got fleet.Part
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(text, "CONFORM_PROBE=")), &got))
	require.True(t, filepath.IsAbs(got.Dir))
	require.Equal(t, "events", filepath.Base(got.Dir))
	got.Dir = ""
	require.Equal(t, fleet.Part{
		Worker: "decode-0", Role: spec.RoleDecode, Host: "h", Clock: "clock", Engine: "vllm@0.32.0", Failpoint: "127.0.0.1:1", Connector: NIXL, Device: "cpu",
	}, got)
	require.Equal(t, []string{"decode-0", "decode-0.model"}, w.sources(cfg))
	cfg.Version = "0.15.1"
	require.Equal(t, []string{"decode-0"}, w.sources(cfg), "one process, one source")
}
