// Package adapters is the contract between the harness and one serving stack.
//
// An [Adapter] knows how to start its stack, where the proxies go, how the
// stack's messages decode and how to tell that it is idle; all else is
// engine-neutral. The harness asks for a [Stack], sends requests through it as
// clients do ([Stack].Generate, [Stack].Abort), and puts faults in its way through
// the engine of package faults that it hands in. What the stack does is recorded
// by the stack's own processes, in the run directory, in the format of TRACE.md.
//
// # What an adapter may do besides
//
// Some stacks can do more, and say so by a further interface: [Filler] uses up a
// worker's free blocks, [Served] tells which hooks of a probe were bound and fired,
// [Baseliner] takes the right answers of a model that the harness can't compute,
// [Opener] has something that the stacks of one run share.
//
// # How a scenario goes
//
// Open (once), Baseline with every prompt, Start, then requests and faults until
// the workload has been served, Idle until nothing is in flight, Stop. [Pace] says
// how long each step may take. Each wait ends with its context.
package adapters
