package sglang

import (
	"cmp"
	"strconv"
	"time"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/adapters/engines/fleet"
	"conform/spec"
)

// The connectors.
const (
	Mooncake = "mooncake"
	NIXL     = "nixl"
)

// pageTokens is how many tokens a KV page holds: a setting of ours, the same on each
// build, small so that pages are reused soon.
const pageTokens = 16

// The room that an engine's intake keeps below its pool: one token of the pool, five of
// a request, and a prompt must be shorter than what is left.
const intakeMargin = 7

// Limits are the effective limits of a configuration: small pools, so that blocks are
// reused within a second, and clocks of seconds instead of minutes.
func limitsOf(l adapters.Limits) adapters.Limits {
	l.PrefillBlocks = cmp.Or(l.PrefillBlocks, 64)
	l.DecodeBlocks = cmp.Or(l.DecodeBlocks, 64)
	l.ContextTokens = cmp.Or(l.ContextTokens, 2048)
	l.PrefillTokens = min(l.PrefillBlocks*pageTokens, l.ContextTokens) - intakeMargin
	l.DecodeTokens = min(l.DecodeBlocks*pageTokens, l.ContextTokens) - intakeMargin - pageTokens
	l.HandoffTimeout = cmp.Or(l.HandoffTimeout, 20*time.Second)
	l.AbortTimeout = cmp.Or(l.AbortTimeout, 30*time.Second)
	l.Heartbeat = cmp.Or(l.Heartbeat, 5*time.Second)
	l.PeerTimeout = cmp.Or(l.PeerTimeout, 10*time.Second)
	return l
}

// ports are where one worker listens.
type ports struct{ http, bootstrap, nccl int }

// worker is one worker of a stack, as it is to be started.
type worker struct {
	id    string
	role  spec.Role
	index int
	ranks int
	ports ports
	// switched: a benchmark takes the probe's hooks out and puts them in.
	switched bool
}

// argv is the worker's command line behind the module.
func (w worker) argv(cfg adapters.Config, model string) []string {
	l := limitsOf(cfg.Limits)
	blocks := l.PrefillBlocks
	if w.role == spec.RoleDecode {
		blocks = l.DecodeBlocks
	}
	args := []string{
		"--model-path", model, "--skip-tokenizer-init", "--host", "127.0.0.1", "--port", strconv.Itoa(w.ports.http),
		"--disaggregation-mode", string(w.role), "--disaggregation-transfer-backend", cfg.Mode, "--nccl-port", strconv.Itoa(w.ports.nccl),
		"--max-total-tokens", strconv.Itoa(blocks * pageTokens), "--page-size", strconv.Itoa(pageTokens),
		"--context-length", strconv.Itoa(l.ContextTokens), "--max-running-requests", "8", "--chunked-prefill-size", "512",
		"--num-reserved-decode-tokens", strconv.Itoa(pageTokens), "--disable-overlap-schedule", "--disable-cuda-graph",
		"--skip-server-warmup", "--sleep-on-idle", "--log-level", "debug", "--random-seed", "1",
	}
	args = append(args, computeArgs(cfg.Device)...)
	if w.role == spec.RolePrefill {
		args = append(args, "--disaggregation-bootstrap-port", strconv.Itoa(w.ports.bootstrap))
	} else if cfg.Device == engines.CPU { // the default wants pinned memory
		args = append(args, "--disaggregation-decode-retraction-backup", "cpu_tensor")
	}
	if w.ranks > 1 {
		args = append(args, "--tp-size", strconv.Itoa(w.ranks))
	}
	return append(args, cfg.Args...)
}

// baselineArgv is the command line of a worker that does the whole request itself.
func baselineArgv(cfg adapters.Config, model string, p ports) []string {
	l := limitsOf(cfg.Limits)
	args := []string{
		"--model-path", model, "--skip-tokenizer-init", "--host", "127.0.0.1", "--port", strconv.Itoa(p.http), "--nccl-port", strconv.Itoa(p.nccl),
		"--max-total-tokens", "8192", "--page-size", strconv.Itoa(pageTokens), "--context-length", strconv.Itoa(max(l.ContextTokens, 2048)),
		"--max-running-requests", "8", "--chunked-prefill-size", "512", "--disable-overlap-schedule", "--disable-cuda-graph",
		"--disable-radix-cache", "--skip-server-warmup", "--sleep-on-idle", "--random-seed", "1",
	}
	return append(args, computeArgs(cfg.Device)...)
}

// computeArgs say what to compute on, where that is not the stock build's GPU.
func computeArgs(device string) []string {
	if device != engines.CPU {
		return nil
	}
	return []string{
		"--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native",
		"--sampling-backend", "pytorch", "--grammar-backend", "none",
	}
}

// environment is what a worker needs besides the engine's own variables; a user's
// settings come last.
func (w worker) environment(cfg adapters.Config, temp string) []string {
	l := limitsOf(cfg.Limits)
	env := []string{
		"SGLANG_HOST_IP=127.0.0.1", "OMP_NUM_THREADS=1", "TMPDIR=" + temp,
		"SGLANG_DISAGGREGATION_WAITING_TIMEOUT=" + seconds(l.HandoffTimeout),
		"SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT=" + seconds(l.HandoffTimeout),
		"SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL=" + seconds(l.Heartbeat),
	}
	if cfg.Limits.AbortTimeout != 0 { // else the build's own default is what is tested
		env = append(env, "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT="+seconds(cfg.Limits.AbortTimeout))
	}
	if cfg.Device == engines.CPU {
		env = append(env, "MC_FORCE_TCP=1", "MC_TCP_ENABLE_CONNECTION_POOL=true")
	}
	if w.ranks > 1 && cfg.Device == engines.CPU {
		// One core list for each rank, and no NCCL: gloo stands in.
		binding := "0"
		for i := 1; i < w.ranks; i++ {
			binding += "|" + strconv.Itoa(i)
		}
		env = append(env, "SGLANG_CPU_OMP_THREADS_BIND="+binding, "SGLANG_NCCL_SO_PATH=libnccl-absent.so")
	}
	return append(env, cfg.Env...)
}

// seconds is a duration as SGLang's variables take it: whole seconds where it is so.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// probeConfig is what the probe of one worker is told. Its fields are those of the probe's
// config.py.
type probeConfig struct {
	fleet.Part
	Prefills     map[string]string `json:"prefills,omitempty"`
	PrefillRanks int               `json:"prefill_ranks"`
	DecodeRanks  int               `json:"decode_ranks"`
	Switch       bool              `json:"switch,omitempty"`
}

func (w worker) probe(cfg adapters.Config, clock string, prefills map[string]string) (string, error) {
	common, err := kind.PartOf(cfg, w.id, w.role, clock)
	if err != nil {
		return "", err
	}
	t := cfg.Topology.Filled()
	return fleet.ProbeVariable(probeConfig{common, prefills, t.PrefillTP, t.DecodeTP, w.switched})
}

// patched is for a worker that is not recorded: the probe puts in what the build
// needs to serve without a GPU, and nothing else.
func patched(id string, cfg adapters.Config) (string, error) {
	return fleet.ProbeVariable(probeConfig{Part: fleet.Part{Worker: id, Engine: "sglang@" + cfg.Version, Device: cfg.Device}})
}

// workers lists what a topology has, decode last.
func workers(t adapters.Topology) []worker {
	var all []worker
	for _, p := range t.Places() {
		all = append(all, worker{id: p.ID, role: p.Role, index: p.Index, ranks: p.Ranks})
	}
	return all
}
