package adapters

import (
	"context"
	"time"

	"conform/faults"
	"conform/spec"
)

// Info says what an adapter is.
type Info struct {
	Name  string
	Title string
	Modes []string   // the transfer modes, the first is the default
	Level spec.Level // the level of evidence that its recorders reach
}

// Config is what the harness asks of a stack.
type Config struct {
	Mode   string // one of Info.Modes
	Defect string // "" for the correct stack
	Dir    string // the run directory: the processes write below Dir/events and Dir/logs
	// Engine decides on each message and access that passes.
	Engine *faults.Engine
	// Failpoint is where the processes ask before an access, "" for none.
	Failpoint string
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

// Stack is a running stack.
type Stack interface {
	faults.Processes

	// URL is where clients send POST /generate.
	URL() string
	// Workers are the present incarnations that run.
	Workers() []Worker
	// Reference is the right answer: n tokens for a prompt.
	Reference(prompt []int32, n int) []int32
	// ContextTokens and PrefillTokens are the configured and the processable limit.
	Limits() Limits
	// Idle reports whether nothing is in flight, and if not, what is.
	Idle(ctx context.Context) (idle bool, busy string, err error)
	// Unknown counts the messages that no proxy could decode.
	Unknown() int
	// Stop ends every process, in good order while ctx lasts, and closes the proxies.
	Stop(ctx context.Context) error
}

// Adapter starts one kind of stack.
type Adapter interface {
	Info() Info
	// Start starts the stack and returns when it is ready to serve. What it
	// started is ended again if it fails.
	Start(ctx context.Context, cfg Config) (Stack, error)
	// Describe lists every process and setting that Start would use; it starts nothing.
	Describe(cfg Config) (string, error)
}
