// Package harness drives a serving stack through scenarios and judges what was
// recorded.
//
// # A run
//
// A [Scenario] is engine-neutral: what it is for, and the branches of the protocol
// that it exists to reach. Its shapes say how each adapter's stack is brought into
// it: a workload or a play, a fault plan, limits. [Run] takes each scenario through
// each mode and seed. It takes the reference answers where the adapter does not
// know them by itself, starts a fresh stack, puts the faults in its way, lets
// clients submit, cancel and leave, waits until nothing is in flight, ends the
// recordings and the stack, and only then reads the trace back from the disk and
// judges it. The result tree ([RunResult]) has one entry per scenario, mode and seed.
//
// What the harness knows at first hand it records itself, in two sources: what
// clients sent and were told, and which faults it injected, when it held the
// stack for idle and which processes ended.
//
// # Workloads and plays
//
// A workload is clients that come at random, many of them; a fault plan holds some
// of their transfers. That is enough on a stack that does a hundred requests a
// second. On a real engine that does a few, a play forces one order: its cast lists
// the requests, drawn from the seed before anything starts, and its director sends
// them, waits for what the recorders report, and does what it waits for to happen
// next. A play that can't go on makes its scenario inconclusive: the order was not
// forced, and that says nothing about the stack.
//
// # No pass for nothing
//
// A pass is given only to a scenario that did what it exists for. A branch that
// was not reached, a rule of the plan that never fired, an answer that nobody can
// compare with the right one, makes it inconclusive; so is a rule of which a probe
// could not bind a hook ([HoldToHooks]).
//
// # Engines
//
// An adapter that drives an engine of package adapters/engines is given one build
// of it: the version that was asked for, else the newest that is installed. Which
// one, with the digest of its packages, is in the manifest of each trace.
package harness
