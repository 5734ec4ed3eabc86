package vllm

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
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
	var ids []string
	for _, w := range workers(adapters.Topology{Decode: 2}) {
		ids = append(ids, w.id+" "+string(w.role))
	}
	require.Equal(t, []string{"prefill-0 prefill", "decode-0 decode", "decode-1 decode"}, ids)
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]features{
		"0.15.1": {}, "0.16.0": {}, "0.29.0": {lease: true, mooncake: true, split: true}, "0.32.0": {lease: true, mooncake: true, split: true},
	} {
		require.Equal(t, want, featuresOf(text), text)
	}
	require.True(t, parseVersion("0.9.9").before(parseVersion("0.10.0")), "by number")
	require.False(t, parseVersion("0.10.0").before(parseVersion("0.10.0")))
	require.ErrorIs(t, supports(adapters.Config{Mode: Mooncake, Version: "0.15.1"}), adapters.ErrUnsupported)
	require.NoError(t, supports(adapters.Config{Mode: Mooncake, Version: "0.32.0"}))
	require.NoError(t, supports(adapters.Config{Mode: NIXL, Version: "0.15.1"}))
}

// transferOf is the transfer configuration of an argv.
func transferOf(t *testing.T, argv []string) transfer {
	t.Helper()
	var got transfer
	require.NoError(t, json.Unmarshal([]byte(option(argv, "--kv-transfer-config")), &got))
	return got
}

func TestArgv(t *testing.T) {
	w := worker{id: "prefill-0.1", role: spec.RolePrefill, ports: ports{http: 7, side: 8}}
	cfg := adapters.Config{
		Mode: NIXL, Device: engines.CPU, Version: "0.32.0", Args: []string{"--seed", "3"},
		Limits: adapters.Limits{PrefillBlocks: 10, DecodeBlocks: 20, Lease: 5500 * time.Millisecond}, Topology: adapters.Topology{DecodeTP: 2},
	}
	argv, err := w.argv(cfg, "/m")
	require.NoError(t, err)
	for name, want := range map[string]string{
		"--model": "/m", "--port": "7", "--host": "127.0.0.1", "--num-gpu-blocks-override": "10", "--block-size": "32", "--dtype": "float32",
		"--max-model-len": "1024", "--tensor-parallel-size": "",
	} {
		require.Equal(t, want, option(argv, name), name)
	}
	require.Equal(t, []string{"--seed", "3"}, argv[len(argv)-2:], "the user's come last, so that they count")
	require.Equal(t, transfer{
		Connector: "NixlConnector", Role: "kv_producer", EngineID: "prefill-0.1", Buffer: "cpu", LoadFailure: "fail",
		Extra: map[string]any{"kv_lease_duration": 6.0},
	}, transferOf(t, argv))

	w.role, w.id = spec.RoleDecode, "decode-0"
	cfg.Mode = Mooncake
	argv, err = w.argv(cfg, "/m")
	require.NoError(t, err)
	require.Equal(t, "20", option(argv, "--num-gpu-blocks-override"))
	require.Equal(t, "2", option(argv, "--tensor-parallel-size"))
	require.Equal(t, transfer{
		Connector: "MooncakeConnector", Role: "kv_consumer", EngineID: "decode-0", Buffer: "cpu", LoadFailure: "fail",
		Extra: map[string]any{"mooncake_protocol": "tcp"},
	}, transferOf(t, argv))

	cfg.Mode, cfg.Version, cfg.Device = NIXL, "0.15.1", engines.CUDA
	argv, err = w.argv(cfg, "/m")
	require.NoError(t, err)
	require.Empty(t, transferOf(t, argv).Extra, "it has no lease")
	require.Empty(t, transferOf(t, argv).Buffer, "a GPU's own defaults are what is tested")
	require.NotContains(t, argv, "--dtype")
	require.NotContains(t, baselineArgv(cfg, "/m", w.ports), "--kv-transfer-config")
}

func TestEnvironment(t *testing.T) {
	w := worker{id: "prefill-0", ports: ports{side: 8}}
	cfg := adapters.Config{Device: engines.CPU, Version: "0.15.1", Env: []string{"OMP_NUM_THREADS=7"}, Limits: adapters.Limits{Lease: time.Second}}
	env := w.environment(cfg, "/t")
	for name, want := range map[string]string{
		"TMPDIR": "/t", "OMP_NUM_THREADS": "7", "VLLM_NIXL_SIDE_CHANNEL_PORT": "8", "VLLM_MOONCAKE_BOOTSTRAP_PORT": "8",
		"VLLM_NIXL_ABORT_REQUEST_TIMEOUT": "1", "UCX_TLS": "tcp",
	} {
		got, _ := variable(env, name)
		require.Equal(t, want, got, name)
	}
	cfg.Device, cfg.Version = engines.CUDA, "0.32.0"
	for _, name := range []string{"VLLM_NIXL_ABORT_REQUEST_TIMEOUT", "UCX_TLS", "VLLM_CPU_KVCACHE_SPACE"} {
		_, found := variable(w.environment(cfg, "/t"), name)
		require.False(t, found, name)
	}
}

func TestLimits(t *testing.T) {
	l := New().Limits(adapters.Config{})
	require.Equal(t, []int{64, 64, 1024, 1023, 1023}, []int{l.PrefillBlocks, l.DecodeBlocks, l.ContextTokens, l.PrefillTokens, l.DecodeTokens})
	require.Equal(t, defaultLease, l.Lease)
	l = limitsOf(adapters.Limits{PrefillBlocks: 5, DecodeBlocks: 9})
	require.Equal(t, 4*pageTokens-1, l.PrefillTokens, "one block is nobody's")
	require.Equal(t, 8*pageTokens-1, l.DecodeTokens)
	require.Equal(t, l, limitsOf(l), "they are effective already")
}

func TestAdapterThatIsNotOpen(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := New()
	_, err := a.Start(t.Context(), adapters.Config{Mode: NIXL, Version: "0.32.0"})
	require.ErrorIs(t, err, fleet.ErrNotOpen)
	require.ErrorIs(t, a.Baseline(t.Context(), adapters.Config{}, nil), fleet.ErrNotOpen)
	require.NoError(t, a.Close())
	err = a.Open(t.Context(), adapters.Config{Version: "9.9.9", Device: engines.CPU})
	_, unknown := errors.AsType[*engines.UnknownError](err)
	require.True(t, unknown)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left of an Open that failed")
}

// Describe names every worker of the topology.
func TestDescribe(t *testing.T) {
	cfg := adapters.Config{Version: "0.32.0", Device: engines.CPU, Mode: NIXL, Topology: adapters.Topology{Decode: 2}}
	text, err := New().Describe(cfg)
	if _, missing := errors.AsType[*engines.NotInstalledError](err); missing {
		t.Skip(err)
	}
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, lines, 3)
	for i, id := range []string{"prefill-0", "decode-0", "decode-1"} {
		require.Contains(t, lines[i], `"engine_id":"`+id+`"`)
		require.Contains(t, lines[i], "-m "+kind.Module)
	}
}
