package vllm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/adapters/engines/fleet"
	"conform/spec"
)

// pageTokens is how many tokens a KV block holds: the smallest that the attention
// of vLLM on CPUs takes, so that blocks are reused soon.
const pageTokens = 32

// servedName is how requests name the model.
const servedName = "tiny"

// defaultLease is how long prefill keeps blocks for a reader that is silent: longer
// than a request waits on a busy machine, so that only what a scenario does ends it.
const defaultLease = 20 * time.Second

// limitsOf are the effective limits of a configuration: small pools, so that blocks
// are reused within a second, and clocks of seconds instead of minutes.
func limitsOf(l adapters.Limits) adapters.Limits {
	l.PrefillBlocks = cmp.Or(l.PrefillBlocks, 64)
	l.DecodeBlocks = cmp.Or(l.DecodeBlocks, 64)
	l.ContextTokens = cmp.Or(l.ContextTokens, 1024)
	// One block of each pool is the null block, which nobody gets.
	l.PrefillTokens = min((l.PrefillBlocks-1)*pageTokens, l.ContextTokens) - 1
	l.DecodeTokens = min((l.DecodeBlocks-1)*pageTokens, l.ContextTokens) - 1
	l.Lease = cmp.Or(l.Lease, defaultLease)
	l.HandoffTimeout = l.Lease
	return l
}

// ports are where one worker listens: for clients, and for its peers' handshakes
// (NIXL's side channel, Mooncake's bootstrap server).
type ports struct{ http, side int }

// worker is one worker of a stack, as it is to be started.
type worker struct {
	id    string
	role  spec.Role
	index int
	ports ports
}

// workers lists what a topology has, decode last.
func workers(t adapters.Topology) []worker {
	var all []worker
	for _, p := range t.Places() {
		all = append(all, worker{id: p.ID, role: p.Role, index: p.Index})
	}
	return all
}

// transfer is the option --kv-transfer-config.
type transfer struct {
	Connector   string         `json:"kv_connector"`
	Role        string         `json:"kv_role"`
	EngineID    string         `json:"engine_id"`
	Buffer      string         `json:"kv_buffer_device,omitempty"`
	LoadFailure string         `json:"kv_load_failure_policy"`
	Extra       map[string]any `json:"kv_connector_extra_config"`
}

func (w worker) transfer(cfg adapters.Config) (string, error) {
	t := transfer{
		Connector: "NixlConnector", Role: "kv_producer", EngineID: w.id, LoadFailure: "fail", Extra: map[string]any{},
	}
	if w.role == spec.RoleDecode {
		t.Role = "kv_consumer"
	}
	if cfg.Device == engines.CPU {
		t.Buffer = "cpu"
	}
	switch {
	case cfg.Mode == Mooncake:
		t.Connector = "MooncakeConnector"
		if cfg.Device == engines.CPU {
			t.Extra["mooncake_protocol"] = "tcp"
		}
	case featuresOf(cfg.Version).lease:
		t.Extra["kv_lease_duration"] = wholeSeconds(limitsOf(cfg.Limits).Lease)
	}
	text, err := json.Marshal(t)
	return string(text), err
}

// argv is the worker's command line behind the module.
func (w worker) argv(cfg adapters.Config, model string) ([]string, error) {
	l := limitsOf(cfg.Limits)
	blocks := l.PrefillBlocks
	if w.role == spec.RoleDecode {
		blocks = l.DecodeBlocks
	}
	config, err := w.transfer(cfg)
	if err != nil {
		return nil, err
	}
	args := commonArgs(cfg, model, w.ports.http, l.ContextTokens, blocks)
	args = append(args, "--kv-transfer-config", config)
	if t := cfg.Topology.Filled(); w.role == spec.RolePrefill && t.PrefillTP > 1 {
		args = append(args, "--tensor-parallel-size", strconv.Itoa(t.PrefillTP))
	} else if w.role == spec.RoleDecode && t.DecodeTP > 1 {
		args = append(args, "--tensor-parallel-size", strconv.Itoa(t.DecodeTP))
	}
	return append(args, cfg.Args...), nil
}

// baselineBlocks is the pool of a worker that does the whole request itself.
const baselineBlocks = 256

// baselineArgv is that worker's command line.
func baselineArgv(cfg adapters.Config, model string, p ports) []string {
	args := commonArgs(cfg, model, p.http, limitsOf(cfg.Limits).ContextTokens, baselineBlocks)
	return append(args, "--no-enable-prefix-caching")
}

func commonArgs(cfg adapters.Config, model string, port, context, blocks int) []string {
	args := []string{
		"--model", model, "--served-model-name", servedName, "--host", "127.0.0.1", "--port", strconv.Itoa(port),
		"--skip-tokenizer-init", "--enforce-eager", "--max-model-len", strconv.Itoa(context), "--max-num-seqs", "8",
		"--block-size", strconv.Itoa(pageTokens), "--num-gpu-blocks-override", strconv.Itoa(blocks),
	}
	if cfg.Device == engines.CPU {
		args = append(args, "--dtype", "float32")
	}
	return args
}

// environment is what a worker needs besides the engine's own variables; a user's
// settings come last.
func (w worker) environment(cfg adapters.Config, temp string) []string {
	env := []string{
		"TMPDIR=" + temp, "OMP_NUM_THREADS=1", "VLLM_HOST_IP=127.0.0.1", "VLLM_SERVER_DEV_MODE=1",
		"VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT=" + strconv.Itoa(w.ports.side),
		"VLLM_MOONCAKE_BOOTSTRAP_PORT=" + strconv.Itoa(w.ports.side),
	}
	if !featuresOf(cfg.Version).lease {
		env = append(env, fmt.Sprintf("VLLM_NIXL_ABORT_REQUEST_TIMEOUT=%d", wholeSeconds(limitsOf(cfg.Limits).Lease)))
	}
	if cfg.Mode == Mooncake && cfg.Limits.Lease > 0 { // else vLLM's own, of minutes
		env = append(env, fmt.Sprintf("VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT=%d", wholeSeconds(cfg.Limits.Lease)))
	}
	if cfg.Device == engines.CPU {
		env = append(env, "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "UCX_TLS=tcp", "UCX_NET_DEVICES=lo")
	}
	return append(env, cfg.Env...)
}

func (w worker) probe(cfg adapters.Config, clock string) (string, error) {
	part, err := kind.PartOf(cfg, w.id, w.role, clock)
	if err != nil {
		return "", err
	}
	return fleet.ProbeVariable(part)
}

// sources are what a worker's processes record: EngineCore's has the worker's name, and
// the model's process has one of its own where the build has such a process.
func (w worker) sources(cfg adapters.Config) []string {
	if featuresOf(cfg.Version).split {
		return []string{w.id, w.id + ".model"}
	}
	return []string{w.id}
}

// wholeSeconds is a duration as vLLM's settings take it, rounded up.
func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
