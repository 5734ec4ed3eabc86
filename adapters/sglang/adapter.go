package sglang

import (
	"context"
	"errors"
	"os"
	"time"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/adapters/engines/launch"
	"conform/spec"
)

// kind is how SGLang's workers are started.
var kind = fleet.Kind{
	Engine: "sglang", Module: "sglang.launch_server", Script: script, Probe: probe, PlainVariable: "CONFORM_SGLANG_PLAIN",
	Preload: []string{
		"sglang.launch_server", "sglang.srt.entrypoints.http_server", "sglang.srt.managers.scheduler",
		"sglang.srt.managers.detokenizer_manager", "sglang.srt.models.llama", "sglang.srt.entrypoints.engine",
		"sglang.srt.disaggregation.prefill", "sglang.srt.disaggregation.decode", "sglang.srt.disaggregation.mooncake.conn",
	},
}

// The texts of a log that say how a start went.
const readyText = "The server is fired up and ready to roll!"

var failedTexts = []string{
	"Received sigquit from a child process",
	"error while attempting to bind on address", // it says that it is ready all the same
}

// Adapter drives SGLang. It holds what the stacks of one run share: the fork server
// and the reference answers. The zero value does not work; see [New].
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

// Open finds the engine and starts the fork server. After an error nothing of it is left.
func (a *Adapter) Open(ctx context.Context, cfg adapters.Config) error {
	return a.session.Open(ctx, kind, cfg, func() []string { return a.inherited() })
}

// inherited is what the fork server gets besides this program's environment: the
// workers' own temporary folder, and what a worker's environment says too late, for
// torch counts its threads when it is imported.
func (a *Adapter) inherited() []string {
	return []string{"TMPDIR=" + a.session.Temp, "OMP_NUM_THREADS=1"}
}

// Close ends the fork server, whatever it started, and the temporary files. It may be
// called again.
func (a *Adapter) Close() error { return a.session.Close() }

// Start starts the workers of a topology, each behind its proxies.
func (a *Adapter) Start(ctx context.Context, cfg adapters.Config) (adapters.Stack, error) {
	if err := a.session.Check(); err != nil {
		return nil, err
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
	return kind.Describe(cfg, func(model, clock string) (specs []launch.Spec, err error) {
		for i, w := range workers(cfg.Topology) {
			w.ports = ports{http: 30000 + 10*i, bootstrap: 30001 + 10*i, nccl: 30002 + 10*i} // a run takes ports that are free
			variable, err := w.probe(cfg, clock, nil)
			if err != nil {
				return nil, err
			}
			specs = append(specs, launch.Spec{Worker: w.id, Argv: w.argv(cfg, model), Env: append(w.environment(cfg, os.TempDir()), variable)})
		}
		return specs, nil
	})
}
