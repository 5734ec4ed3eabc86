// Package failpoint reaches the payload path: it lets a worker process ask the
// harness about each access that it is about to post, where no proxy stands.
//
// A one-sided write does not pass through a proxy; it is a thread of one process
// that touches memory of another. So the place where the worker would record the
// access's begin asks first:
//
//	switch a := client.Pass(ctx, faults.Point{Kind: faults.KindAccess, Name: "w", …}); a.Do { … }
//
// The harness runs a [Server] around its engine; each worker has one [Client].
// Questions are answered in any order, so that one that is held does not keep
// others waiting, but they are decided in the order in which they were asked.
// On the same connection the worker hands over the lines that it records
// ([Client.Tap]), which is how "hold this write until that block has been
// allocated again" sees the allocation. What a worker tapped before it asked is
// known to the engine before it decides.
//
// When it connects, the worker is told what the plan can have use for. Without a
// rule about accesses, Pass answers by itself.
//
// # Sealing
//
// A worker that the harness ends with a signal cannot end its recording in good
// order. So one that says in its hello that it can is told to, once nothing is in
// flight: [Server.Seal] sends it S, it records its last line, records nothing more,
// and answers D. Before that, [Server.Loads] asks it with I what it has in flight.
//
// The harness may die. A worker then runs on as if there were no plan.
//
// # On the wire
//
// Lines over TCP, loopback only, at most 1 MiB each. The first line of each side
// is a JSON object (hello). Then one letter and what belongs to it: from the
// worker, Q question, C cancel, P passed, T tapped line, L number of lost lines, D
// its recording has ended, I what it has in flight; from the harness, A answer, S
// end your recording, I what have you in flight.
package failpoint
