// Package spec is the executable specification of the handoff-and-reclaim
// protocol of disaggregated LLM serving: its vocabulary, its two state
// machines and its rules.
//
// # The question
//
// Prefill computes a prompt's KV cache in one process; decode generates tokens
// from it in another. In between, memory of one process is written or read by
// the other, without asking the owner's scheduler. Two things can go wrong: a
// block reaches its next owner while somebody may still touch it, and a request
// that one stage refused still does work on the other. This package states,
// precisely enough to run, what "wrong" means.
//
// # Vocabulary
//
// A worker (one incarnation of an engine instance) owns pools of blocks. An
// alloc begins a lease of a block; holders keep it alive; a free ends it. A
// grant exposes a lease to a remote accessor, whose accesses have a begin and an
// end. Signals are messages between threads, and each kind claims a predicate:
// what it proves. [Event] is one line of a trace, in the format of TRACE.md
// version 1; [ParseEvent] and [Event.AppendJSON] convert it, and [Fields] is the
// table both follow.
//
// # Machines and rules
//
// [Block] is the life of one block, [Request] that of one request at one stage.
// Both are values with a pure Step: the judges of saved traces and the
// exhaustive exploration of the model run the same function. [Rules] is the
// registry of the sixteen rules: a stable id, one normative sentence, why it
// holds, the level of evidence that it needs, and a minimal bad and a minimal
// good trace.
//
// The package imports the standard library only, so that anybody can judge a
// trace without an engine, a container runtime or a network.
package spec
