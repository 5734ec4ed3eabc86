package sglang

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/adapters/engines/fleet"
	"conform/spec"
)

// option is what follows an option in an argv; "" if it is not there.
func option(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

func variable(env []string, name string) (value string, found bool) {
	for _, pair := range env {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			value, found = v, true // of a name the last counts
		}
	}
	return value, found
}

func TestWorkersOfATopology(t *testing.T) {
	require.Equal(t, []worker{{id: "prefill-0", role: spec.RolePrefill, ranks: 1}, {id: "decode-0", role: spec.RoleDecode, ranks: 1}}, workers(adapters.Topology{}))
	all := workers(adapters.Topology{Prefill: 2, Decode: 3, PrefillTP: 2})
	var ids []string
	for _, w := range all {
		ids = append(ids, fmt.Sprintf("%s/%d/%d", w.id, w.index, w.ranks))
	}
	require.Equal(t, []string{"prefill-0/0/2", "prefill-1/1/2", "decode-0/0/1", "decode-1/1/1", "decode-2/2/1"}, ids)
}

func TestArgv(t *testing.T) {
	p := worker{id: "prefill-0", role: spec.RolePrefill, ranks: 1, ports: ports{http: 1, bootstrap: 2, nccl: 3}}
	d := worker{id: "decode-0", role: spec.RoleDecode, ranks: 2, ports: ports{http: 4, bootstrap: 5, nccl: 6}}
	cfg := adapters.Config{Mode: NIXL, Device: engines.CPU, Args: []string{"--page-size", "32"}, Limits: adapters.Limits{PrefillBlocks: 10, DecodeBlocks: 20}}
	argv := p.argv(cfg, "/m")
	for name, want := range map[string]string{
		"--model-path": "/m", "--port": "1", "--disaggregation-bootstrap-port": "2", "--nccl-port": "3", "--disaggregation-mode": "prefill",
		"--disaggregation-transfer-backend": "nixl", "--max-total-tokens": "160", "--device": "cpu", "--host": "127.0.0.1", "--tp-size": "",
		"--disaggregation-decode-retraction-backup": "",
	} {
		require.Equal(t, want, option(argv, name), name)
	}
	require.Equal(t, []string{"--page-size", "32"}, argv[len(argv)-2:], "the user's come last, so that they count")
	argv = d.argv(cfg, "/m")
	for name, want := range map[string]string{
		"--disaggregation-mode": "decode", "--max-total-tokens": "320", "--tp-size": "2", "--disaggregation-bootstrap-port": "",
		"--disaggregation-decode-retraction-backup": "cpu_tensor",
	} {
		require.Equal(t, want, option(argv, name), name)
	}
	cfg.Device = engines.CUDA
	argv = d.argv(cfg, "/m")
	for _, name := range []string{"--device", "--attention-backend", "--disaggregation-decode-retraction-backup"} {
		require.NotContains(t, argv, name, "a GPU's own defaults are what is tested")
	}
	base := baselineArgv(cfg, "/m", p.ports)
	require.NotContains(t, base, "--disaggregation-mode")
	require.NotContains(t, base, "--device")
	cfg.Device = engines.CPU
	require.Equal(t, "cpu", option(baselineArgv(cfg, "/m", p.ports), "--device"))
}

func TestEnvironment(t *testing.T) {
	w := worker{id: "prefill-0", role: spec.RolePrefill, ranks: 3}
	cfg := adapters.Config{Device: engines.CPU, Env: []string{"OMP_NUM_THREADS=7"}, Limits: adapters.Limits{HandoffTimeout: 1500 * time.Millisecond}}
	env := w.environment(cfg, "/t")
	for name, want := range map[string]string{
		"TMPDIR": "/t", "MC_FORCE_TCP": "1", "OMP_NUM_THREADS": "7", "SGLANG_CPU_OMP_THREADS_BIND": "0|1|2",
		"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "1.5", "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "1.5", "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": "5",
	} {
		got, _ := variable(env, name)
		require.Equal(t, want, got, name)
	}
	const deferred = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT"
	_, found := variable(env, deferred)
	require.False(t, found, "the build's own default is what is tested")
	cfg.Limits.AbortTimeout = 300 * time.Millisecond
	got, _ := variable(w.environment(cfg, "/t"), deferred)
	require.Equal(t, "0.3", got)
	cfg.Device = engines.CUDA
	env = w.environment(cfg, "/t")
	for _, name := range []string{"MC_FORCE_TCP", "SGLANG_CPU_OMP_THREADS_BIND", "SGLANG_NCCL_SO_PATH"} {
		_, found := variable(env, name)
		require.False(t, found, name)
	}
}

func TestProbeVariable(t *testing.T) {
	cfg := adapters.Config{Version: "0.5.23", Mode: Mooncake, Device: "cpu", Dir: "run", Host: "h", Failpoint: "127.0.0.1:1", Topology: adapters.Topology{DecodeTP: 2}}
	text, err := worker{id: "decode-0", role: spec.RoleDecode, ranks: 2}.probe(cfg, "clock", map[string]string{"7": "prefill-0"})
	require.NoError(t, err)
	var got probeConfig
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(text, "CONFORM_PROBE=")), &got))
	require.True(t, filepath.IsAbs(got.Dir))
	require.Equal(t, "events", filepath.Base(got.Dir))
	got.Dir = ""
	require.Equal(t, probeConfig{
		Part: fleet.Part{
			Worker: "decode-0", Role: spec.RoleDecode, Host: "h", Clock: "clock", Engine: "sglang@0.5.23", Failpoint: "127.0.0.1:1",
			Connector: Mooncake, Device: "cpu",
		},
		Prefills: map[string]string{"7": "prefill-0"}, PrefillRanks: 1, DecodeRanks: 2,
	}, got)
	text, err = patched("baseline", cfg)
	require.NoError(t, err)
	require.Contains(t, text, `"role":""`, "such a worker records nothing")
}

func TestLimits(t *testing.T) {
	l := New().Limits(adapters.Config{})
	require.Equal(t, 64, l.PrefillBlocks)
	require.Equal(t, 64*pageTokens-intakeMargin, l.PrefillTokens)
	require.Equal(t, 64*pageTokens-intakeMargin-pageTokens, l.DecodeTokens)
	require.Equal(t, 20*time.Second, l.HandoffTimeout)
	l = limitsOf(adapters.Limits{PrefillBlocks: 1000, DecodeBlocks: 10, ContextTokens: 512, Heartbeat: time.Second})
	require.Equal(t, 512-intakeMargin, l.PrefillTokens, "the context is shorter than the pool")
	require.Equal(t, 160-intakeMargin-pageTokens, l.DecodeTokens)
	require.Equal(t, time.Second, l.Heartbeat)
	require.Equal(t, l, limitsOf(l), "they are effective already")
}

func TestRooms(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range 1000 {
		id := fmt.Sprintf("r-%04d", i)
		room, err := roomFor(adapters.Request{ID: id})
		require.NoError(t, err)
		require.NotZero(t, room)
		require.Less(t, room, uint64(1)<<62)
		require.Equal(t, roomOf(id), room, "a seed gives the same rooms again")
		require.False(t, seen[room])
		seen[room] = true
	}
	for text, want := range map[string]uint64{"room-7": 7, "7": 7, "room-7#2": 7, "room-9223372036854775807": 1<<63 - 1} {
		room, err := roomFor(adapters.Request{ID: "r", Handoff: text})
		require.NoError(t, err, text)
		require.Equal(t, want, room, text)
	}
	for _, text := range []string{"room-", "room-x", "room--1", "room-9223372036854775808", "#1", "rooms-7"} {
		_, err := roomFor(adapters.Request{ID: "r", Handoff: text})
		require.ErrorIs(t, err, adapters.ErrUnsupported, text)
	}
}

// A shell reads each line of Describe back as a command with its environment.
func TestDescribeIsForAShell(t *testing.T) {
	env, err := engines.Find(t.Context(), "sglang@0.5.23", engines.CPU)
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "a folder's name")
	text, err := New().Describe(adapters.Config{
		Version: "0.5.23", Device: engines.CPU, Mode: Mooncake, Dir: dir, Args: []string{"--json-model-override-args", `{"a": "it's"}`},
		Env: []string{"OWN=x y"}, Topology: adapters.Topology{Prefill: 2},
	})
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, lines, 3)
	for i, line := range lines {
		require.True(t, strings.Contains(line, env.Python+" "), line)
		line = strings.Replace(line, env.Python+" ", `sh -c 'printf "%s\n" "$OWN" "$PYTHONPATH" "$CONFORM_PROBE" "$@"' `, 1)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
		require.NoError(t, err, line)
		words := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		require.Equal(t, "x y", words[0])
		var probe probeConfig
		require.NoError(t, json.Unmarshal([]byte(words[2]), &probe))
		require.Equal(t, filepath.Join(dir, "events"), probe.Dir)
		require.Equal(t, `{"a": "it's"}`, words[len(words)-1])
		require.Equal(t, strconv.Itoa(30000+10*i), option(words, "--port"))
	}
	_, err = New().Describe(adapters.Config{Version: "9.9.9", Device: engines.CPU})
	require.Error(t, err)
}
