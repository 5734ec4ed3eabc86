package vllm

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

// module is what `python -m` starts.
const module = "vllm.entrypoints.openai.api_server"

// The texts of a log that say how a start went.
const readyText = "Application startup complete."

var failedTexts = []string{
	"EngineCore failed to start",
	"Engine core initialization failed",
	"error while attempting to bind on address",
}

// Adapter drives vLLM. It holds what the stacks of one run share: the fork server and
// the reference answers. The zero value does not work; see [New].
type Adapter struct {
	mu       sync.Mutex
	launcher launch.Launcher
	env      *engines.Environment
	answers  *fleet.Answers
	cache    string
	scratch  *launch.Scratch
	temp     string // its folder, for the workers' temporary files
	probe    string // the folder of the probe
	model    string
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
		Name: "vllm", Title: "vLLM: published builds, prefill and decode on this machine, over NIXL",
		Modes: []string{NIXL}, Level: spec.L2, Engine: "vllm",
	}
}

// Limits are the effective ones.
func (*Adapter) Limits(cfg adapters.Config) adapters.Limits { return limitsOf(cfg.Limits) }

// Pace is generous: on a busy machine a first forward pass may take half a minute.
func (*Adapter) Pace() adapters.Pace {
	return adapters.Pace{
		Start: 5 * time.Minute, Work: 4 * time.Minute, Settle: 90 * time.Second, Stop: 20 * time.Second, Answer: 90 * time.Second,
		Vocab: [2]int32{3, 1002}, PageTokens: pageTokens,
	}
}

// plainVariable asks for workers that are started with `python -m`, not forked.
const plainVariable = "CONFORM_VLLM_PLAIN"

var (
	errOpen    = errors.New("the adapter is open already")
	errNotOpen = errors.New("the adapter is not open")
)

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
	env, err := engines.Find(ctx, "vllm@"+cfg.Version, cfg.Device)
	if err != nil {
		return err
	}
	if a.cache, err = fleet.CacheDir("vllm"); err != nil {
		return err
	}
	if a.probe, err = probe.Unpack(a.cache); err != nil {
		return fmt.Errorf("unpack the probe: %w", err)
	}
	var digest string
	if a.model, digest, err = fleet.Model(a.cache, cfg.Model); err != nil {
		return err
	}
	if a.scratch, err = launch.NewScratch(); err != nil {
		return err
	}
	a.temp = a.scratch.Path
	a.env = env
	a.answers = fleet.OpenAnswers(filepath.Join(a.cache, "answers"), env.Version, env.Device, digest)
	if os.Getenv(plainVariable) != "" || cfg.Device != engines.CPU { // what has touched a GPU can't be forked
		a.launcher = launch.Plain(env, module)
		return nil
	}
	forks, err := launch.NewForkServer(ctx, env, launch.ForkOptions{
		Dir: a.temp, Script: script, Module: module, Env: env.Environ(a.inherited(cfg)),
	})
	if err != nil {
		return err
	}
	a.launcher = forks
	return nil
}

// inherited is what the fork server gets: this program's environment, and what vLLM and
// torch read when they are imported.
func (a *Adapter) inherited(cfg adapters.Config) []string {
	return slices.Concat(os.Environ(), worker{}.environment(adapters.Config{Version: cfg.Version, Device: cfg.Device}, a.temp), a.cached())
}

// cached is where vLLM keeps what it finds out about models.
func (a *Adapter) cached() []string {
	return []string{"VLLM_CACHE_ROOT=" + filepath.Join(a.cache, "engine")}
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

func (a *Adapter) isOpen() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.launcher == nil {
		return errNotOpen
	}
	return nil
}

// Start starts the workers of a topology, each behind its proxy.
func (a *Adapter) Start(ctx context.Context, cfg adapters.Config) (adapters.Stack, error) {
	if err := errors.Join(a.isOpen(), supports(cfg)); err != nil {
		return nil, err
	}
	s := newStack(a, cfg)
	if err := s.start(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, errors.Join(err, s.Stop(stopCtx))
	}
	return s, nil
}

// Describe gives the command line of each worker, for a shell: what a run would use but
// for the ports, which are any that are free, and the proxies.
func (a *Adapter) Describe(cfg adapters.Config) (string, error) {
	env, err := engines.Find(context.Background(), "vllm@"+cfg.Version, cfg.Device)
	if err != nil {
		return "", err
	}
	if err := supports(cfg); err != nil {
		return "", err
	}
	cache, err := fleet.CacheDir("vllm")
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
		w.ports = ports{http: 30000 + 10*i, side: 30001 + 10*i} // a run takes ports that are free
		argv, err := w.argv(cfg, model)
		if err != nil {
			return "", err
		}
		variable, err := w.probe(cfg, clock)
		if err != nil {
			return "", err
		}
		own := slices.Concat(env.Env, w.environment(cfg, os.TempDir()), []string{
			variable, "PYTHONPATH=" + strings.Join(append([]string{front}, env.PythonPath...), string(os.PathListSeparator)),
		})
		b.WriteString(plain.Describe(launch.Spec{Worker: w.id, Argv: argv, Env: own}) + "\n")
	}
	return b.String(), nil
}

// Baseline takes the answers that are not known yet, from one worker of the same
// build that no fault reaches and that does the whole request itself.
func (a *Adapter) Baseline(ctx context.Context, cfg adapters.Config, prompts []adapters.Prompt) error {
	if err := a.isOpen(); err != nil {
		return err
	}
	// What no worker can serve has no right answer.
	fit := slices.DeleteFunc(slices.Clone(prompts), func(p adapters.Prompt) bool {
		return len(p.Tokens)+p.Output > limitsOf(cfg.Limits).ContextTokens
	})
	s := newStack(a, cfg)
	var addr string
	start := func(ctx context.Context) (p *launch.Process, err error) {
		p, addr, err = a.baselineWorker(ctx, cfg)
		return p, err
	}
	return a.answers.Take(ctx, fit, start, func(ctx context.Context, p adapters.Prompt) (adapters.Answer, error) {
		answer, _, err := s.leg(ctx, addr, newBody("b-"+fleet.PromptKey(p.Tokens)[:8], p.Tokens, p.Output, false))
		return answer, err
	})
}

func (a *Adapter) baselineWorker(ctx context.Context, cfg adapters.Config) (*launch.Process, string, error) {
	taken, err := fleet.FreePorts(2)
	if err != nil {
		return nil, "", err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, "", err
	}
	w := worker{id: "baseline", ports: ports{http: taken[0], side: taken[1]}}
	cfg.Env = nil
	env := slices.Concat(a.env.Environ(os.Environ()), w.environment(cfg, a.temp), a.cached())
	p, err := a.launcher.Start(ctx, launch.Spec{
		Worker: w.id, Argv: baselineArgv(cfg, a.model, w.ports), Env: env, Dir: a.temp,
		Log: filepath.Join(dir, "logs", w.id+".log"), Ready: readyText, Failed: failedTexts,
	})
	if err != nil {
		return nil, "", fmt.Errorf("the worker for reference answers: %w", err)
	}
	return p, fleet.Local(w.ports.http), nil
}
