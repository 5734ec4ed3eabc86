// Package traces writes and reads traces: the record of who owned which block
// when, and who told whom what, in the format of TRACE.md version 1.
//
// # Writing
//
// Each process that takes part in a run has one source and one [Writer]. Create
// opens a new file below the run directory, Record completes an event (source,
// sequence number, time) and puts it into memory, and a goroutine of the Writer
// appends what has gathered to the file every 50 ms, as one zstd frame with one
// write. A killed process thus loses at most the last moments, and what it did
// write stays readable. The lines that say what exists (kinds source and pool)
// do not wait: they are in the file when Record returns, so that no other
// process can refer to a pool that a kill makes unknown. Flush does the same for
// any other event whose effect somebody else may record. Seal ends a source in
// good order: it writes how many lines there were and their digest.
//
// A recorder must not stop the process that it watches. Record never fails: what
// cannot be kept is counted, and the count is written as an event of kind lost
// as soon as there is room.
//
// # Reading
//
// [Read] takes a run directory, one file, or standard input, and hands out valid
// events only. There are two ways for a trace to be broken, and they must not be
// confused:
//
//   - Bad input: somebody wrote what TRACE.md forbids. There is nothing to judge.
//     The error is a [*BadInput] with the file and the line.
//   - A loss: a process was killed, a disk was full. The events are valid as far
//     as they go, and [spec.Trace] lists from where on each source may be
//     missing some. Nothing is repaired by guessing.
//
// [Stream] gives the events of a file one by one and never holds them all. It is
// for traces that are as usual, and leaves all others to Read.
//
// What one line alone shows is checked by [spec.ParseEvent]; what needs several
// lines (sequence numbers, times within a thread, pools, seals) is checked here.
// Sources may come in any order, so what refers to another source's pools waits
// until everything has been read. A trace may come from anywhere; [Limits] bound
// what reading one costs.
//
// # The run directory
//
// manifest.json ([Manifest]) says what was run: versions, seed, plan,
// configuration, and the digest of each file once the run is over. events/ holds
// one file for each source.
//
// # Decisions where TRACE.md leaves room
//
//   - A file in a run directory holds one source; a line of another is bad input.
//   - A torn line or frame in a file that never named its source is a loss of a
//     source named after the file, from 0 on.
//   - A torn line where each source of the file is sealed is bad input.
//   - A last line without a line feed is torn where it is no complete JSON value,
//     and bad where it is blank.
//   - A zstd stream that ends within a frame is torn; any other defect of it is
//     bad input.
//   - An undeclared pool is bad input unless a loss may have taken the
//     declaration. For a mutation by the pool's own source that is a loss before
//     it, for everything else any loss of a source of that worker.
//   - The pool of a digest is not checked: the text does not say whose it is.
//   - A manifest is required in a run directory, and {} is one. Where it lists
//     files, the files in events/ must be these, byte for byte.
package traces
