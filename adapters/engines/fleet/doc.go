// Package fleet is what the adapters of real engines have in common: the workers of
// one stack, and what those need.
//
// An adapter says how a worker is started, where its proxies stand and what its
// messages mean. All else is here, and the same for each engine:
//
//   - A [Kind] says, as data, how an engine's workers are started; a [Session] is what
//     the stacks of one run share: environment, launcher, probe, model, answers.
//   - A [Fleet] keeps the workers: it starts an incarnation of one, finds it by
//     name, pauses, kills and follows it, and ends every process when the stack stops.
//     [Of], [Find], [Pair] and [StartAll] are for a stack's own members.
//   - [ReadAnswer] and [ReadPieces] read what a worker answers, within bounds.
//   - [Answers] are the right answers of a build and a model, taken once from a worker
//     that no fault reaches, and kept in the user's cache.
//   - [FreePorts] finds ports that nobody will take in the meantime.
//   - [Probe.Unpack] puts a probe's Python where processes can import it, and a [Part]
//     is what a worker's probe is told. [Model] gives the folder of the model to serve.
//   - [Stillness] tells a stack that is idle from one that holds something forever;
//     [Served] and [Probed] read what probes left in the run directory.
package fleet
