// Package wire stands between vLLM's prefill and decode workers: it knows what their
// control messages say, and an [Interposer] leads them through the fault engine, without
// a change to either worker.
//
// # Who speaks to whom
//
//	NIXL      decode ──HANDSHAKE──▶ prefill's side channel ──HANDSHAKE_META──▶ decode   REQ, ROUTER
//	Mooncake  decode ──GET /query──▶ prefill's bootstrap server                        HTTP
//	          decode ──PULL──▶ prefill rank ──FINISH, CONTINUE, ERROR──▶ decode        DEALER, ROUTER
//
// Answers come back on the connection of the question. Where to ask, decode is told by
// the router: remote_host and remote_port (NIXL), or remote_bootstrap_addr (Mooncake), in
// a request's kv_transfer_params. The harness is the router and names the interposer's
// own addresses there, one for each decode worker, which is how it knows whose a message
// is. Mooncake's bootstrap server then names the rank's ZeroMQ address; the interposer
// puts a proxy of its own in the place of each.
//
// # What the messages say
//
//	HANDSHAKE       decode asks how prefill's memory lies. Once for each pair of engines;
//	                no request is named.
//	HANDSHAKE_META  the answer.
//	PULL            decode has these blocks for these requests, and lets prefill write
//	                them. Prefill may not have heard of the requests yet.
//	FINISH          of the requests that are named as ok, the write is over; of those
//	                named as failed, none will come. It is the last answer to a PULL.
//	CONTINUE        the same, and more answers follow.
//	ERROR           prefill gives up all requests of the PULL that are not answered.
//
// NIXL's own words (read-complete, heartbeats) go over NIXL: no proxy sees them, the
// probe does. Nor does one see the bytes of either connector.
//
// # Reading them
//
// Messages are msgpack. A row of the table ([Rows]) is chosen by connector, direction and
// number of frames, and its fields are looked for by name: builds differ in fields that
// do not matter here. What has no row, or lacks a field, passes untouched and is listed
// by [Interposer.Unknown]. One message may speak of several requests: it carries the
// first one's names, and a fault hits all of them.
package wire
