package sglang

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/adapters/engines/launch"
)

// Baseline takes the answers that are not known yet, from one worker of the same
// build that no fault reaches and that does the whole request itself.
func (a *Adapter) Baseline(ctx context.Context, cfg adapters.Config, prompts []adapters.Prompt) error {
	if err := a.session.Check(); err != nil {
		return err
	}
	// What no worker can serve has no right answer.
	fit := slices.DeleteFunc(slices.Clone(prompts), func(p adapters.Prompt) bool {
		return len(p.Tokens)+p.Output > limitsOf(cfg.Limits).ContextTokens-intakeMargin
	})
	s := newStack(a, cfg)
	var port int
	start := func(ctx context.Context) (p *launch.Process, err error) {
		p, port, err = a.baselineWorker(ctx, cfg)
		return p, err
	}
	return a.session.Answers.Take(ctx, fit, start, func(ctx context.Context, p adapters.Prompt) (adapters.Answer, error) {
		body := generateBody{ID: "b-" + fleet.PromptKey(p.Tokens)[:8], InputIDs: p.Tokens, Sampling: greedy(p.Output)}
		return s.leg(ctx, fleet.Local(port), body, 0)
	})
}

func (a *Adapter) baselineWorker(ctx context.Context, cfg adapters.Config) (*launch.Process, int, error) {
	taken, err := fleet.FreePorts(2)
	if err != nil {
		return nil, 0, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, 0, err
	}
	w := worker{id: "baseline", ranks: 1, ports: ports{http: taken[0], nccl: taken[1]}}
	cfg.Env, cfg.Limits.AbortTimeout = nil, 0
	env := append(a.session.Env.Environ(os.Environ(), a.session.Probe), w.environment(cfg, a.session.Temp)...)
	variable, err := patched(w.id, cfg)
	if err != nil {
		return nil, 0, err
	}
	p, err := a.session.Launcher.Start(ctx, launch.Spec{
		Worker: w.id, Argv: baselineArgv(cfg, a.session.Model, w.ports), Env: append(env, variable), Dir: a.session.Temp,
		Log: filepath.Join(dir, "logs", w.id+".log"), Ready: readyText, Failed: failedTexts,
	})
	return p, w.ports.http, err
}
