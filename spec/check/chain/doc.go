// Package chain judges histories of blocks exactly, in near-linear time, as they
// come.
//
// # The problem
//
// A block is allocated, held, dropped, accessed and freed by several parties, and
// each of these operations took effect at some instant within an interval that
// was recorded. Is there an order, with each operation at a point of its
// interval, in which the block was used by the rules? For histories of operations
// in general that question is hard: a search for such an order (Porcupine's, say)
// is quadratic in the length of a history that is fine, and exponential in the
// number of operations whose end was not seen where it is not fine.
//
// # Why blocks are easy
//
// A block is no queue and no register. Its pool's order says in what order it was
// allocated and freed, and an access says which lease it means (an [Op] names it
// by its number). So the order that a legal history must have is known up to the
// order of accesses within one lease, which does not matter:
//
//	alloc ≤ begin ≤ end ≤ free ≤ next alloc
//
// This is a chain of groups. Two questions are left. Does the chain obey the state
// machine: no alloc of a leased block, no drop by one who does not hold it? That
// is a replay. And can instants be given to the operations that do not decrease
// along the chain? That is one pass with the latest of the earlier operations'
// earliest times: an operation whose latest time lies before that cannot come
// after them.
//
// Exact: if the pass finds nothing, put each operation at the later of its own
// earliest time and that maximum. The points do not decrease along the chain and
// lie in every interval, so they are a legal order. If it finds something, the
// operation and the one that set the maximum are a pair whose order the chain
// knows and whose times say the contrary: no order is legal, and the pair is the
// witness ([Violation]).
//
// # What is missing
//
// An end that was never seen may lie anywhere after its begin, so it bounds
// nothing and is left out; where something says that it lies later (the source
// was sealed first), the caller adds an end from there to [Forever]. Where a
// pool's source lost events the caller adds a [Gap], and what then rests on
// nothing but absence is marked [Violation.Unsure].
//
// # Several clocks
//
// Each operation is on a clock, and the clocks' offsets are unknown constants. A
// bound between two operations on different clocks bounds the difference of the
// two offsets, so that instead of one maximum the pass carries one for each clock,
// and keeps for each pair of clocks the tightest bound with the two operations
// that set it ([Offsets]). A history of any length thus becomes one small matrix.
// A negative cycle in it is a violation under every assignment of offsets, and its
// bounds are the witness; if there is none, offsets exist that make every chain
// legal at once.
//
// # Cost
//
// Time is linear in the number of operations (times the number of clocks, at most
// [MaxClocks]). Memory grows with the number of blocks and with the accesses that
// are open, never with the length of the history. The figures are in
// docs/measured.md; `go test -run - -bench Bars ./spec/check/chain` prints them.
//
// # What it does not judge
//
// Grants, fences and evidence, and accesses that may mean several leases: these
// need the whole trace, and package check judges them.
//
// # Who uses it
//
// Whoever has histories of blocks and no trace, and the benchmarks that hold the
// bars for them. Package check does not call it: there each block's chain is
// replayed with [conform/spec.Block.Step], the Step that the exhaustive exploration
// proves, while this package has a state machine of its own, in a few bytes for each
// block; and an access there may mean several leases and asks for evidence, so that
// the order of the whole trace, not bounds block by block, has to be at hand. For
// the same reason [conform/spec/check.Sieve] can't: it takes the order of the lines
// for the legal order and never needs a block's times. The two are held against each
// other by way of Porcupine, which both are compared with.
package chain
