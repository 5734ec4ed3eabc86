package sglang

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/adapters/engines/fleet"
	"conform/adapters/engines/launch"
	"conform/spec"
	"conform/traces"
)

// Module is what `python -m` starts.
const module = "sglang.launch_server"

// preload is what the fork server imports before the first worker.
var preload = []string{
	"sglang.launch_server", "sglang.srt.entrypoints.http_server", "sglang.srt.managers.scheduler",
	"sglang.srt.managers.detokenizer_manager", "sglang.srt.models.llama", "sglang.srt.entrypoints.engine",
	"sglang.srt.disaggregation.prefill", "sglang.srt.disaggregation.decode", "sglang.srt.disaggregation.mooncake.conn",
}

// The texts of a log that say how a start went.
const readyText = "The server is fired up and ready to roll!"

var failedTexts = []string{
	"Received sigquit from a child process",
	"error while attempting to bind on address", // it says that it is ready all the same
}

// Adapter drives SGLang. It holds what the stacks of one run share: the fork server
// and the reference answers. The zero value does not work; see [New].
type Adapter struct {
	mu       sync.Mutex
	launcher launch.Launcher
	env      *engines.Environment
	answers  *fleet.Answers
	scratch  *launch.Scratch
	temp     string // its folder, for the workers' temporary files
	probe    string // the folder of the probe
	model    string
	modelSum string
}

var (
	_ adapters.Adapter   = (*Adapter)(nil)
	_ adapters.Opener    = (*Adapter)(nil)
	_ adapters.Baseliner = (*Adapter)(nil)
)

// New makes an adapter. Nothing is started before Open.
func New() *Adapter { return &Adapter{} }

// Info says what it is.
func (*Adapter) Info() adapters.Info {
	return adapters.Info{
		Name: "sglang", Title: "SGLang: published builds, prefill and decode on this machine, over Mooncake or NIXL",
		Modes: []string{Mooncake, NIXL}, Level: spec.L3, Engine: "sglang",
	}
}

// Limits are the effective ones.
func (*Adapter) Limits(cfg adapters.Config) adapters.Limits { return limitsOf(cfg.Limits) }

// Pace is generous: on a busy machine a first forward pass may take half a minute.
func (*Adapter) Pace() adapters.Pace {
	return adapters.Pace{
		Start: 4 * time.Minute, Work: 4 * time.Minute, Settle: 90 * time.Second, Stop: 20 * time.Second, Answer: 90 * time.Second,
		Vocab: [2]int32{3, 1002}, PageTokens: pageTokens,
	}
}

// plainVariable asks for workers that are started with `python -m`, not forked.
const plainVariable = "CONFORM_SGLANG_PLAIN"

var errOpen = errors.New("the adapter is open already")

// Open finds the engine and starts the fork server. After an error nothing of it is left.
func (a *Adapter) Open(ctx context.Context, cfg adapters.Config) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.launcher != nil {
		return errOpen
	}
	if err := a.open(ctx, cfg); err != nil {
		return errors.Join(err, a.discard())
	}
	return nil
}

func (a *Adapter) open(ctx context.Context, cfg adapters.Config) error {
	env, err := engines.Find(ctx, "sglang@"+cfg.Version, cfg.Device)
	if err != nil {
		return err
	}
	cache, err := fleet.CacheDir("sglang")
	if err != nil {
		return err
	}
	if a.probe, err = probe.Unpack(cache); err != nil {
		return fmt.Errorf("unpack the probe: %w", err)
	}
	if a.model, a.modelSum, err = fleet.Model(cache, cfg.Model); err != nil {
		return err
	}
	if a.scratch, err = launch.NewScratch(); err != nil {
		return err
	}
	a.temp = a.scratch.Path
	a.env = env
	a.answers = fleet.OpenAnswers(filepath.Join(cache, "answers"), env.Version, env.Device, a.modelSum)
	if os.Getenv(plainVariable) != "" || cfg.Device != engines.CPU { // what has touched a GPU can't be forked
		a.launcher = launch.Plain(env, module)
		return nil
	}
	forks, err := launch.NewForkServer(ctx, env, launch.ForkOptions{
		Dir: a.temp, Script: script, Module: module, Preload: preload, Env: env.Environ(a.inherited()),
	})
	if err != nil {
		return err
	}
	a.launcher = forks
	return nil
}

// inherited is what the fork server gets: this program's environment, the workers' own
// temporary folder, and what a worker's environment says too late, for torch counts its
// threads when it is imported.
func (a *Adapter) inherited() []string {
	return append(os.Environ(), "TMPDIR="+a.temp, "OMP_NUM_THREADS=1")
}

// Close ends the fork server, whatever it started, and the temporary files. It may be
// called again.
func (a *Adapter) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.discard()
}

func (a *Adapter) discard() error {
	var errs []error
	if a.launcher != nil {
		errs = append(errs, a.launcher.Close())
		a.launcher = nil
	}
	errs = append(errs, a.scratch.Close())
	a.scratch, a.temp = nil, ""
	return errors.Join(errs...)
}

var errNotOpen = errors.New("the adapter is not open")

// Start starts the workers of a topology, each behind its proxies.
func (a *Adapter) Start(ctx context.Context, cfg adapters.Config) (adapters.Stack, error) {
	a.mu.Lock()
	open := a.launcher != nil
	a.mu.Unlock()
	if !open {
		return nil, errNotOpen
	}
	s := newStack(a, cfg)
	err := s.start(ctx)
	if err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, errors.Join(err, s.Stop(stopCtx))
	}
	return s, nil
}

// Describe gives the command line of each worker, for a shell: what a run would use but
// for the ports, which are any that are free, and the proxies between the workers.
func (a *Adapter) Describe(cfg adapters.Config) (string, error) {
	env, err := engines.Find(context.Background(), "sglang@"+cfg.Version, cfg.Device)
	if err != nil {
		return "", err
	}
	cache, err := fleet.CacheDir("sglang")
	if err != nil {
		return "", err
	}
	model := fleet.BuiltinModel(cache)
	if cfg.Model != "" {
		if model, err = filepath.Abs(cfg.Model); err != nil {
			return "", err
		}
	}
	front, err := probe.Dir(cache)
	if err != nil {
		return "", err
	}
	plain := launch.Plain(env, module)
	defer plain.Close()
	_, clock := traces.Monotonic()
	var b strings.Builder
	for i, w := range workers(cfg.Topology) {
		w.ports = ports{http: 30000 + 10*i, bootstrap: 30001 + 10*i, nccl: 30002 + 10*i} // a run takes ports that are free
		variable, err := w.probe(cfg, clock, nil)
		if err != nil {
			return "", err
		}
		own := slices.Concat(env.Env, w.environment(cfg, os.TempDir()), []string{
			variable, "PYTHONPATH=" + strings.Join(append([]string{front}, env.PythonPath...), string(os.PathListSeparator)),
		})
		b.WriteString(plain.Describe(launch.Spec{Worker: w.id, Argv: w.argv(cfg, model), Env: own}) + "\n")
	}
	return b.String(), nil
}
