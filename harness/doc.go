// Package harness drives a serving stack through scenarios and judges what was
// recorded.
//
// A [Scenario] is engine-neutral: a workload, a fault plan, and the branches of
// the protocol that it exists to reach. [Run] takes each scenario through each
// mode and seed: it starts a fresh stack, puts the faults in its way, lets
// clients submit, cancel and leave, waits until nothing is in flight, stops the
// stack, and only then reads the trace back from the disk and judges it. The
// result tree ([RunResult]) has one entry per scenario, mode and seed.
//
// What the harness knows at first hand it records itself, in two sources: what
// clients sent and were told, and which faults it injected, when it held the
// stack for idle and which processes ended.
//
// A pass is given only to a scenario that did what it exists for: a branch that
// was not reached, or a rule of the plan that never fired, makes it inconclusive.
package harness
