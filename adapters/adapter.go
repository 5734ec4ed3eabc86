package adapters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"conform/faults"
	"conform/faults/failpoint"
	"conform/spec"
)

// Info says what an adapter is.
type Info struct {
	Name  string
	Title string
	Modes []string   // the transfer modes, of an engine its connectors; the first is the default
	Level spec.Level // the level of evidence that its recorders reach
	// Engine is the name of the engine whose versions package adapters/engines
	// keeps, such as sglang; "" for a stack that has none.
	Engine string
}

// Topology says how many workers a stack has of each role, and how many ranks (the
// processes of tensor parallelism) each of them. Zero fields mean 1.
type Topology struct {
	Prefill, Decode     int
	PrefillTP, DecodeTP int
}

// Filled is t with 1 in the place of each zero.
func (t Topology) Filled() Topology {
	return Topology{max(t.Prefill, 1), max(t.Decode, 1), max(t.PrefillTP, 1), max(t.DecodeTP, 1)}
}

// Place is one worker of a topology, whatever its incarnation.
type Place struct {
	ID    string // such as prefill-0
	Role  spec.Role
	Index int // among those of its role
	Ranks int
}

// Places lists the workers of t, those of prefill first.
func (t Topology) Places() []Place {
	t = t.Filled()
	var all []Place
	for i := range t.Prefill {
		all = append(all, Place{fmt.Sprintf("%s-%d", spec.RolePrefill, i), spec.RolePrefill, i, t.PrefillTP})
	}
	for i := range t.Decode {
		all = append(all, Place{fmt.Sprintf("%s-%d", spec.RoleDecode, i), spec.RoleDecode, i, t.DecodeTP})
	}
	return all
}

// Config is what the harness asks of a stack.
type Config struct {
	Mode   string // one of Info.Modes
	Defect string // "" for the correct stack; the reference stack's alone
	// Version is the engine's, such as 0.5.23; "" for a stack without an engine.
	Version string
	// Device is what the engine computes on: cpu or cuda; "" for a stack without one.
	Device   string
	Model    string   // path of a model; "" for the one that the adapter brings
	Args     []string // further arguments of the engine's own command line
	Topology Topology
	Dir      string // the run directory: the processes write below Dir/events and Dir/logs
	// Engine decides on each message and access that passes.
	Engine *faults.Engine
	// Failpoint is where the processes ask before an access, and hand over what they
	// record; "" for none. An engine's adapter always gets one.
	Failpoint string
	// Probes is the server behind Failpoint; an engine's adapter asks it what is in
	// flight.
	Probes *failpoint.Server
	// Listen is where clients reach the stack, host:port; "" for any port of the
	// loopback interface.
	Listen string
	Host   string   // how the recorders name this machine: an id, not its name
	Env    []string // NAME=VALUE, handed to each process
	Limits Limits
	// OnExit is told of each process that ends, expected or not. It must not block.
	OnExit func(Exit)
}

// Limits are the stack's capacities and clocks; zero fields take defaults.
type Limits struct {
	PrefillBlocks  int           // KV blocks of prefill's pool
	DecodeBlocks   int           // KV blocks of decode's pool
	PrefillTokens  int           // the longest prompt that prefill can process, in tokens
	DecodeTokens   int           // the longest prompt plus output that decode can process
	ContextTokens  int           // the configured context limit: what clients are told
	AbortTimeout   time.Duration // how long decode waits for the acknowledgement of an abort
	HandoffTimeout time.Duration // how long either stage waits for the other
	Lease          time.Duration // pull: how long prefill keeps blocks without a heartbeat
	Heartbeat      time.Duration // pull: how often decode renews
	PeerTimeout    time.Duration // how long a peer may be silent before it is held for lost
	Step           time.Duration // what one step of the scheduler costs
	Offload        int           // after how many new tokens decode copies a request's full blocks to the host; 0: never
}

// Exit says that a worker's process ended.
type Exit struct {
	Worker   string
	Code     int
	SignalNo int
	Expected bool   // the harness or a fault asked for it
	Log      string // the last lines of its log, where it was not expected
}

// Worker is one incarnation of an engine instance.
type Worker struct {
	ID   string // as traces name it
	Role spec.Role
	PID  int
	// Pools is set where the worker declares pools, so that an idle may name it.
	Pools bool
}

// Request is one request as a client sends it.
type Request struct {
	// ID names it in the trace. All ids of a run have the same length: there are
	// engines that match the id of an abort by its beginning.
	ID     string
	Prompt []int32
	Output int // tokens, at most
	Stream bool
	// Samples is how many answers to the one prompt are wanted; 0 and 1 are one. The
	// answer then holds the tokens of each, one after the other.
	Samples int
	// Handoff is a key to use for its handoff, such as one that was used before; ""
	// lets the stack choose.
	Handoff string
	// Prefill and Decode say which worker of each role serves it, from 0.
	Prefill, Decode int
}

// Answer is what a client was told.
type Answer struct {
	Status  int          // the HTTP status, or the one that a stream ended with
	Tokens  []int32      // what came, in full or not
	Outcome spec.Outcome // as the client was told it
}

// Prompt is what a reference answer is taken for: so many tokens after these.
type Prompt struct {
	Tokens []int32
	Output int
}

// Pace is how fast a stack is: the limits of a run's steps, each far above what
// the step takes, so that a stack that hangs ends the scenario and not the night;
// and what its clients may send.
type Pace struct {
	Start  time.Duration // until it serves
	Work   time.Duration // for the whole workload
	Settle time.Duration // until nothing is in flight
	Stop   time.Duration // until its processes have ended in good order
	Answer time.Duration // for one answer
	// Vocab is the lowest and the highest token id that a prompt may hold.
	Vocab [2]int32
	// PageTokens is how many tokens a block of the KV pool holds.
	PageTokens int
}

// ErrUnsupported is in the error of a call that asks a stack for what it can't do.
var ErrUnsupported = errors.New("this stack can't do that")

// Stack is a running stack. Its methods may be called from many goroutines.
type Stack interface {
	faults.Processes

	// Generate sends one request as a client does, all its legs, and returns the
	// answer as the client gets it. A refusal is an answer. An error means that no
	// whole answer came; the Answer then holds what did. When ctx ends, the client
	// closes its connections.
	Generate(ctx context.Context, r Request) (Answer, error)
	// Abort asks to give a request up: "" through the client's own API, a role at
	// that stage alone. It returns when the question has been taken in, not when the
	// request has ended.
	Abort(ctx context.Context, id string, at spec.Role) error
	// Workers are the present incarnations that run.
	Workers() []Worker
	// Reference is the right answer: n tokens for a prompt. It is nil where it is
	// not known.
	Reference(prompt []int32, n int) []int32
	// Limits are the effective ones.
	Limits() Limits
	// Idle reports whether nothing is in flight, and if not, what is.
	Idle(ctx context.Context) (idle bool, busy string, err error)
	// Unknown counts the messages that no proxy could decode.
	Unknown() int
	// Stop ends every process, in good order while ctx lasts, and closes the proxies.
	Stop(ctx context.Context) error
}

// Filler is a [Stack] that can use up the free blocks of one worker.
type Filler interface {
	// Fill sends a request that this worker alone serves, without a handoff, and
	// returns when it has been served. The request takes so many prompt and output
	// tokens of the worker's pool.
	Fill(ctx context.Context, worker string, tokens, output int) error
}

// Auditor is a [Stack] whose engine can say itself what its workers hold.
type Auditor interface {
	// Audit compares what the workers say with what their recorders count. It is called
	// when the run is idle; each note goes into the trace as it is.
	Audit(ctx context.Context) (notes []string, err error)
}

// Served is a [Stack] that can say what its recorders did.
type Served interface {
	// Served is what goes into the manifest, by source: hooks asked for, bound and
	// how often each fired. Its values are plain data.
	Served() map[string]any
}

// Adapter starts one kind of stack.
type Adapter interface {
	Info() Info
	// Limits are the effective limits that a stack of this configuration has.
	Limits(cfg Config) Limits
	// Pace is how fast it is, and what its clients may send.
	Pace() Pace
	// Start starts the stack and returns when it is ready to serve. What it
	// started is ended again if it fails.
	Start(ctx context.Context, cfg Config) (Stack, error)
	// Describe lists every process and setting that Start would use; it starts nothing.
	Describe(cfg Config) (string, error)
}

// Baseliner is an [Adapter] that does not know the right answers by itself.
type Baseliner interface {
	// Baseline takes the reference answers of prompts on a worker that no fault
	// reaches, and keeps them: later stacks of the same model know them. It comes
	// before Start, with all prompts of the scenario.
	Baseline(ctx context.Context, cfg Config, prompts []Prompt) error
}

// Opener is an [Adapter] whose stacks of one run share something, such as a
// process that they are forked from.
type Opener interface {
	// Open prepares it, once for a run. Close ends it, also after an Open that failed.
	Open(ctx context.Context, cfg Config) error
	Close() error
}
