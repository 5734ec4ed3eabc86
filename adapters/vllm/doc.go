// Package vllm drives vLLM's disaggregated serving: published builds, unmodified, with
// real KV transfer over NIXL or Mooncake, on a machine without a GPU.
//
// # How a run stands
//
//	harness, as the router ──HTTP──▶ proxy ──▶ prefill ◀── handshake, notifications
//	          └────────────HTTP──▶ proxy ──▶ decode ───── KV bytes: the reader pulls (NIXL)
//
// The harness sends the legs of a request itself, in the order of the connector's own
// routers. With NIXL they are serial: prefill answers with kv_transfer_params, a
// reference to its blocks that holds for a lease, and decode is handed that. With
// Mooncake they are parallel: both are told one transfer_id that the router has made.
//
// # What comes from where
//
// Builds are those of package engines, workers are started by package launch: forked
// from a server that has imported vLLM once. What the adapters of real engines share is
// package fleet. The right answers come from a worker of the same build that no fault
// reaches and that does the whole request itself ([Adapter.Baseline]).
//
// The probe (folder probe, Python) records the block pools in EngineCore, and NIXL's
// reads and notifications in the model's process.
//
// What differs between versions is data: [features] says which version has what, the
// probe's bindings where its functions are.
package vllm
