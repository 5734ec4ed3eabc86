// Package external is for stacks that no adapter of ours knows: they record themselves,
// in any language, as docs/writing-traces.md tells.
//
// It has two parts. [Writers] are a C header and a Python module, each one file without
// dependencies, that write sources of a trace as the format wants them: numbered, in the
// order of program order, one write an event, with what was lost counted and a seal at
// the end. [Examine] looks at what some writer, ours or another, has recorded, and says
// point by point what a judge will be able to make of it: a trace may be well-formed and
// prove nothing, because both sides of a handoff call it by different names, or because
// nothing is ever sealed.
package external
