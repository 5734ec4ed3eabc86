// Package explore visits every state of the handoff-and-reclaim protocol at small
// scope, and holds the rules of the specification in each of them.
//
// # Why
//
// The judges decide whether a trace keeps the rules. Two questions remain that no
// trace answers. Can the rules be kept at all: is there a protocol that keeps
// every one of them, whatever messages are lost, doubled or overtaken and
// whenever a worker crashes? And is each part of that protocol needed? [Explore]
// answers the first, [Counterexample] the second, for two blocks, two requests
// and two handoffs. It proves nothing about larger scopes; the bugs of this kind
// that are publicly known all fit into this one.
//
// # The protocol
//
// Two workers and a client, in either mode ([Push], [Pull]). The owner has the
// blocks, grants them under a handoff, and must not reuse one while the accessor
// may still touch it; the accessor reaches into the owner's memory without asking
// it. push.go and pull.go are the two protocols, protocol.go is what they share:
// clients, clocks, and what the network and the machines may do. Every condition
// that keeps it correct is a [Guard] with a name and the rules that it protects.
//
// # One specification
//
// A block and a request have no other states here than those of [spec.Block] and
// [spec.Request], and no step goes round their Step functions: the rules that
// these judge (BLK-1 to BLK-4, REQ-1, REQ-3, REQ-4, REQ-5) are judged here by the
// code of the specification. intern.go gives each of their states a number and
// remembers each step, so that this costs nothing. What no machine sees alone is
// held by a few lines each in model.go: the claims of signals (SIG-1), evidence
// (SIG-2, REQ-2), whose word it was (SIG-3), content (DAT-1, DAT-2), and where
// nothing is left to do, leaks and missing answers (BLK-5, REQ-2, SIG-4).
//
// # How
//
// state.go packs a state into 32 bytes. search.go goes breadth first, so that the
// first breach found is by a shortest run; the set of states that were seen holds
// them whole, so that no two are taken for one by chance. canonical.go makes one
// of states that differ only in the names of requests and the numbers of blocks,
// on which nothing in the protocol depends; a test holds that against exploring
// without it.
//
// # Traces
//
// A run that breaks a rule is taken again with its events written down (trace.go),
// and led on to an end, so that it is a whole trace as TRACE.md has it. The tests
// give it to the judge, which knows nothing of this package, and ask that it
// finds the same rule broken; and they give it the traces of thousands of random
// runs of the correct protocol, of which none may fail or be unproven.
package explore
