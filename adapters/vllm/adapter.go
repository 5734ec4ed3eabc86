package vllm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/adapters/engines/launch"
	"conform/spec"
)

// kind is how vLLM's workers are started.
var kind = fleet.Kind{
	Engine: "vllm", Module: "vllm.entrypoints.openai.api_server", Script: script, Probe: probe, PlainVariable: "CONFORM_VLLM_PLAIN",
}

// The texts of a log that say how a start went.
const (
	readyText  = "Application startup complete."
	routesText = "Route: /v1/completions, Methods: POST"
)

var failedTexts = []string{
	"EngineCore failed to start",
	"Engine core initialization failed",
	"error while attempting to bind on address",
}

// Adapter drives vLLM. It holds what the stacks of one run share: the fork server and
// the reference answers. The zero value does not work; see [New].
type Adapter struct{ session fleet.Session }

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
		Name: "vllm", Title: "vLLM: published builds, prefill and decode on this machine, over NIXL or Mooncake",
		Modes: []string{NIXL, Mooncake}, Level: spec.L2, Engine: "vllm",
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

// Open finds the engine and starts the fork server. After an error nothing of it is left.
func (a *Adapter) Open(ctx context.Context, cfg adapters.Config) error {
	return a.session.Open(ctx, kind, cfg, func() []string { return a.inherited(cfg) })
}

// inherited is what the fork server gets besides this program's environment: what vLLM
// and torch read when they are imported.
func (a *Adapter) inherited(cfg adapters.Config) []string {
	return append(worker{}.environment(adapters.Config{Version: cfg.Version, Device: cfg.Device}, a.session.Temp), a.cached()...)
}

// cached is where vLLM keeps what it finds out about models.
func (a *Adapter) cached() []string {
	return []string{"VLLM_CACHE_ROOT=" + filepath.Join(a.session.Cache, "engine")}
}

// Close ends the fork server, whatever it started, and the temporary files. It may be
// called again.
func (a *Adapter) Close() error { return a.session.Close() }

// Start starts the workers of a topology, each behind its proxy.
func (a *Adapter) Start(ctx context.Context, cfg adapters.Config) (adapters.Stack, error) {
	if err := errors.Join(a.session.Check(), supports(cfg)); err != nil {
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
	return kind.Describe(cfg, func(model, clock string) (specs []launch.Spec, err error) {
		if err := supports(cfg); err != nil {
			return nil, err
		}
		for i, w := range workers(cfg.Topology) {
			w.ports = ports{http: 30000 + 10*i, side: 30001 + 10*i} // a run takes ports that are free
			argv, err := w.argv(cfg, model)
			if err != nil {
				return nil, err
			}
			variable, err := w.probe(cfg, clock)
			if err != nil {
				return nil, err
			}
			specs = append(specs, launch.Spec{Worker: w.id, Argv: argv, Env: append(w.environment(cfg, os.TempDir()), variable)})
		}
		return specs, nil
	})
}

// Baseline takes the answers that are not known yet, from one worker of the same
// build that no fault reaches and that does the whole request itself.
func (a *Adapter) Baseline(ctx context.Context, cfg adapters.Config, prompts []adapters.Prompt) error {
	if err := a.session.Check(); err != nil {
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
	return a.session.Answers.Take(ctx, fit, start, func(ctx context.Context, p adapters.Prompt) (adapters.Answer, error) {
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
	env := slices.Concat(a.session.Env.Environ(os.Environ()), w.environment(cfg, a.session.Temp), a.cached())
	p, err := a.session.Launcher.Start(ctx, launch.Spec{
		Worker: w.id, Argv: baselineArgv(cfg, a.session.Model, w.ports), Env: env, Dir: a.session.Temp,
		Log: filepath.Join(dir, "logs", w.id+".log"), Ready: readyText, Failed: failedTexts,
	})
	if err != nil {
		return nil, "", fmt.Errorf("the worker for reference answers: %w", err)
	}
	return p, fleet.Local(w.ports.http), nil
}
