package faults

import (
	"context"
	"time"

	"conform/spec"
)

// Clock is what the engine knows of time, so that a test can set it.
type Clock interface {
	Now() time.Time
	// After delivers once, when d has passed.
	After(d time.Duration) <-chan time.Time
}

// Processes lets process faults act. A worker is named as the plan names it: by
// role or by id.
type Processes interface {
	// Pause stops the worker's processes where they are (SIGSTOP).
	Pause(ctx context.Context, worker string) error
	// Resume lets a paused worker go on (SIGCONT).
	Resume(ctx context.Context, worker string) error
	// Kill ends the worker at once, with no chance to tidy up (SIGKILL).
	Kill(ctx context.Context, worker string) error
	// Restart starts the worker again, killing it first if it lives.
	Restart(ctx context.Context, worker string) error
}

// EngineOptions are what an engine acts through. The zero value serves a plan
// without process faults.
type EngineOptions struct {
	// Record receives each fault event at the moment it acts. Source, sequence
	// number and time are for the recorder to fill in. It is called from many
	// goroutines at once and must not wait for the engine.
	Record func(spec.Event)
	// Processes is needed by a plan with pause, kill or restart.
	Processes Processes
	// Clock is the wall's by default.
	Clock Clock
}

// Count says how often one rule of the plan acted.
type Count struct {
	Rule  string
	Do    string
	Fired int
	// Seen counts what its `when` matched, nth, probability and count aside.
	Seen int
	// Failed counts process faults that could not be carried out.
	Failed int
}

// Engine decides, by one plan and one seed, what happens to what passes by.
type Engine struct{ plan *Plan }

// NewEngine starts an engine.
func NewEngine(plan *Plan, seed uint64, opt EngineOptions) (*Engine, error) {
	return &Engine{plan: plan}, nil
}

// Pass decides about p, and blocks for a delay or a hold until it is over.
func (e *Engine) Pass(ctx context.Context, p Point) Action { return Action{} }

// Passed says that the message p has now been written to its receiver.
func (e *Engine) Passed(p Point) {}

// Observe takes in a recorded event.
func (e *Engine) Observe(ev *spec.Event) {}

// Counts says for each rule of the plan, in its order, how often it acted.
func (e *Engine) Counts() []Count { return nil }

// Close releases every hold and waits for the engine's goroutines.
func (e *Engine) Close() {}
