// Package probe holds the Python that the probes of all engines share, as files to be
// unpacked beside an engine's own.
//
// A probe is loaded into the processes of an engine by the engine's own plugin entry
// point. What is in conform_probe does not know which engine that is:
//
//   - spool: one source of a trace, written so that a killed process loses nothing;
//   - ledger: which block of a pool is leased, and who holds it;
//   - binding: hooks round functions, bound by name and version, counted, and harmless
//     when they fail;
//   - part: what the harness tells a probe of its worker, and how a probe tells it what
//     its hooks did;
//   - failpoint: the other end of the harness's package faults/failpoint.
//
// It is Python 3.10 or later, standard library only.
package probe
