// Package faults gets in the way of a running stack, at the moments that matter
// and the same way each time.
//
// # What for
//
// The bugs that Conform looks for are races between two processes: a block is
// reused while a transfer that was posted earlier still writes to it. On a quiet
// machine the transfer wins every time. So a plan addresses points of the
// protocol, not packets: hold this write until that block has been allocated
// again; let this cancellation overtake its grant; kill prefill when decode has
// posted its fifth read.
//
// # The parts
//
// A [Plan] is a YAML file of rules, each with a condition (`when`) and a fault
// (`do`); [ParsePlan] is strict, and its errors have a line and a column.
// [Registry] lists the faults. An [Engine] decides: whatever carries messages
// asks [Engine.Pass] about each [Point] that comes by, and gets an [Action] back,
// at once or, for a delay or a hold, later. Three things carry:
//
//   - [ZMTPProxy], between two ZeroMQ sockets, for control messages;
//   - [HTTPProxy], in front of a server, for requests and client disconnects;
//   - package failpoint, inside a worker process, for accesses to memory, which
//     no proxy sees.
//
// The recorders show each event to [Engine.Observe]. That is how a hold learns
// that its block has been allocated, and how an event triggers a kill, which the
// engine does through [Processes].
//
//	worker ── failpoint ─┐                  ┌─ Record: a fault event
//	socket ── ZMTPProxy ─┼─ Pass ─ Engine ──┤
//	client ── HTTPProxy ─┘           │      └─ Processes: kill, pause, …
//	recorder ───────────── Observe ──┘
//
// # Determinism
//
// The same plan, seed and order of points give the same decisions. Each rule
// draws from a random stream of its own, named by the rule, and draws the same
// amount at each of its matches, so that one rule does not shift another's. All
// rules count a point that they match; on a message the first that fires acts
// alone, process faults act besides.
//
// # Everything is on record
//
// Each fault is an event of the trace, written at the moment it acts and before
// its consequences. What follows on it is one too: release, release-limit,
// release-end, resume, heal, cut, under the same rule. [Engine.Counts] tells
// which rules never acted: a run in which the planned fault did not happen has
// shown nothing.
//
// # Fair and unfair faults
//
// TCP with ZeroMQ neither loses, repeats nor reorders messages within one live
// connection; it can delay them, and it can break. A stack that fails under a
// fault that no network can show has a weakness, not a violation. [Rule.Legal]
// tells the two apart. The proxies keep to it where they can: a partition that
// dropped a message breaks the connection, and a client that goes away leaves
// what it had sent on its way.
//
// # Limits
//
// A hold always ends: at its limit, with its context, or with the engine. Plans,
// messages, what a connection may hold back and what `after` remembers are
// bounded.
package faults
