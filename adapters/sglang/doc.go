// Package sglang drives SGLang's disaggregated serving: published builds, unmodified,
// with real KV transfer over Mooncake or NIXL, on a machine without a GPU.
//
// # How a run stands
//
//	harness, as the router ──HTTP──▶ proxy ──▶ prefill ◀─────────────┐
//	          └────────────HTTP──▶ proxy ──▶ decode  ──▶ bootstrap proxy, ZMTP proxies
//	                                           ▲                │
//	                                           └── KV bytes: Mooncake or NIXL, seen by the probe
//
// The harness sends both legs of a request itself, with a room of its own choosing.
// Decode is told that prefill's bootstrap server is at the proxy of package wire,
// which leads every control message, both ways, through the fault engine. The KV bytes
// pass no proxy: the probe (folder probe, Python) records them in the transfer threads,
// and its failpoints act on them there.
//
// # What comes from where
//
// Builds are those of package engines, workers are started by package launch: forked
// from a server that has imported SGLang once, so that a pair stands in seconds. The
// right answers come from a worker of the same build that no fault reaches and that does
// the whole request itself ([Adapter.Baseline]); they are kept in the user's cache.
//
// What differs between versions and connectors is data: the probe's bindings, the
// frame table and the claims of package wire.
package sglang
