// Command conform drives a serving stack through faults, records who owns which
// KV block when, and judges the recording.
//
// The package is thin: each file is one command that turns flags into a call of
// package harness, traces or spec/check, and hands the result to
// harness/report. What is decided here is only what belongs to a command line:
//
//   - Exit statuses: 0 pass, 1 fail, 2 unproven or inconclusive, 3 bad input or
//     usage, 4 the harness or the engine failed.
//   - Errors: each is one line on standard error that says what is wrong, where,
//     what was expected and what to do; with --format json it is an object on
//     standard output too. See failure.
//   - Signals: the first SIGINT or SIGTERM asks the run to end its workers and to
//     keep its traces, the second aborts at once. A reader that closes its pipe
//     early stops no run and changes no exit status.
//
// The program executes itself again as the workers of the reference stack; main
// asks for that before anything else.
package main
