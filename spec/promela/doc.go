// Package promela holds a second model of the handoff-and-reclaim protocol, in
// Promela, and has SPIN check it exhaustively.
//
// # Why a second model
//
// Package explore checks the protocol with the specification's own code, so that
// the two can't drift apart. By the same token a mistake that both share would
// stay unseen. This model (handoff.pml) was written after DESIGN.md and shares no
// code with the other: another language, processes instead of a step function, its
// own few lines for what breaks a rule, and a tool that many have used for decades.
// What the two share is the list of guards, by name, and their author: a
// misreading of the design that is in both stays unseen here too, unless the
// judge, which reads TRACE.md, objects to a trail. Where both are right they
// agree: the whole protocol breaks nothing, and each guard that is taken away
// breaks the rules that explore's list says.
//
// # What it runs
//
// [Verify] has spin generate a checker for a [Config], compiles it and runs it.
// Every state of the scope is visited; a rule that a step breaks is noted, and
// asserted at the end of the run, so that each trail is a whole run. [Trail] has
// spin follow a trail and turns the events that the model prints (EV lines) into
// a trace of TRACE.md's format, which any judge can judge.
//
// Both need the programs spin and gcc (Debian: apt-get install spin gcc);
// [Missing] says which are not there, and the tests skip then.
package promela
