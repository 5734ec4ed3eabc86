// Package zmtp speaks ZMTP 3.x, the wire protocol of ZeroMQ, over TCP with the
// NULL mechanism: enough of it for two sockets, PUSH and PULL, and for a proxy
// that understands what passes through it.
//
// # Why not a library
//
// The engines under test exchange their control messages over ZeroMQ. A proxy
// that can hold one message while others pass must see frames, not sockets: a
// ZeroMQ socket would answer the handshake itself, hide which connection a
// message came over, and merge queues that the engines keep apart. With the
// codec at hand, the two sockets that the reference stack needs are short. They
// are held to the real thing by a test against libzmq.
//
// # On the wire
//
// Each side opens with a greeting of 64 bytes: a signature (FF, eight bytes of
// padding, 7F), a version, a mechanism's name. Then come frames:
//
//	flags (1 byte: bit 0 MORE, bit 1 LONG, bit 2 COMMAND)
//	size  (1 byte, or 8 in network order with LONG)
//	body
//
// Commands are READY (first, names the socket's type), PING, PONG, ERROR and,
// for PUB/SUB, SUBSCRIBE. A message is a run of frames with MORE and one
// without. libzmq sends its greeting in pieces and waits for the peer's between
// them, so whatever stands in the middle must forward bytes as they come until
// the greetings are over.
//
// # Delivery
//
// PUSH promises what ZeroMQ's does: order within one connection, blocking at the
// high-water mark, a new connection when the old one breaks. What the kernel had
// taken when a connection broke may be lost; it is never sent twice.
//
// # Limits
//
// Everything that a peer sends is bounded by [Limits]; a frame's memory grows as
// its bytes arrive and never by its announced size alone.
package zmtp
