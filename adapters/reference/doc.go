// Package reference is the serving stack that ships with Conform: a router, a
// prefill and a decode worker as separate processes that speak over real
// sockets, with a toy model.
//
// # Why a stack of our own
//
// A harness is worth what it finds, and what it finds must be shown on something
// whose truth is known. This stack is correct by default, and provably so; each
// public class of bugs is a defect that can be switched on ([Defects]).
//
// # Processes and sockets
//
// Each worker is this program executed again ([Main]). The router takes
// POST /generate (token ids in, tokens out) and sends one leg to each stage.
// Control messages between the stages go over ZeroMQ's wire protocol
// ([Message]). The payload goes through a one-sided NIC: a thread of the target
// process that reads or writes pool memory at the address that it is told and
// never asks the target's scheduler ([NIC]).
//
// # The two handoffs
//
// Push, in SGLang's manner: decode reserves blocks and grants them (METADATA),
// prefill writes them, chunk by chunk, then a metadata slot, then says
// STATUS/Success. A cancellation asks prefill with ABORT, which answers
// ABORT_ACK once its last write has ended: the acknowledgement means drained.
//
// Pull, in the manner of vLLM's NIXL connector: prefill keeps the computed
// blocks under a lease and grants them to decode (kv_transfer_params); decode
// reads them, renews the lease with HEARTBEAT, and says READ_DONE.
//
// # Ranks, keys, caches
//
// Either stage may have two ranks in push mode, each a process ([place]): a handoff
// is whole, and a block free, when each rank has said its last word. A client may
// choose a key, and use it again, or want several answers: a handoff is named by the
// use of a key and has one owner. Prefill may keep blocks for later prompts
// ([prefixCache]), whose readers hold them too, and takes blocks from its youngest
// request when it runs short.
//
// # Fences instead of timeouts
//
// Where an engine would release memory because a clock ran out (no
// acknowledgement, a peer that is silent, a lease that ended), this stack first
// fences: its NIC revokes the handoff's key and waits for what was posted. From
// then on the peer can't touch the blocks, whatever it does, and that needs no
// word from the peer. The release is proven, not hoped for.
//
// # The model
//
// The KV bytes of a token are a function of all tokens up to it, and each output
// token is a function of every KV byte that was read ([Generate]): one stale block
// changes the answer.
package reference
