// Package adapters is the contract between the harness and one serving stack.
//
// An [Adapter] knows how to start its stack, where the proxies go, how the
// stack's messages decode and how to tell that it is idle; all else is
// engine-neutral. The harness asks for a [Stack], drives it through its client
// URL, and puts faults in its way through the engine of package faults that it
// hands in. What the stack does is recorded by the stack's own processes, in the
// run directory, in the format of TRACE.md.
package adapters
