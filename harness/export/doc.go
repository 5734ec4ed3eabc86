// Package export writes traces in the forms of other tools: tables for who would
// rather ask a database ([CSV], [Parquet]), and a timeline to look at ([Perfetto]).
//
// Each form is written while the trace is walked, event by event, so that a trace of
// any length takes little memory. What is written depends on the trace alone: the
// same events give the same bytes.
//
// # Tables
//
// One row for each event, in the order of the trace: the three columns source_worker,
// source_role and source_clock say of every row whose it is, then each field of
// TRACE.md has a column of its name, empty where the event has no such field.
// [Columns] lists them. Two names mean two things in TRACE.md, and have two columns:
// the blocks of a pool, a number, are its count, and the access list of an emit is
// accesses. Lists are text as a trace writes them; first_block and block_count save
// taking that of blocks apart. What this version does not know is in extra, as JSON.
//
// # The timeline
//
// Perfetto's TrackEvent protobuf, for https://ui.perfetto.dev, which reads it in the
// browser. A worker is a track of tracks:
//
//   - for each pool, a track for each block that was ever leased or accessed: a lease
//     is a slice from its alloc to its free, named after its holder; what else
//     happened to the lease, such as a grant, is an instant in it;
//   - below a block, the accesses to it: a slice from begin to end, side by side where
//     they overlap. An access that lies beside its lease lies so in the picture;
//   - for each thread of each source, what was said and decided there. An arrow leads
//     from each emitted signal to where it was observed.
//
// What was found wrong is on a track of its own, findings, and on the tracks of the
// events that show it, joined by arrows.
//
// A slice that has no end goes to the end of the picture, as it should: nobody
// recorded that it was over. An event whose time is an interval is drawn at its
// begin. Readings of different clocks are put side by side at the middle of what the
// trace allows for their offset; where it allows everything, at their first readings.
package export
