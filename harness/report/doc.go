// Package report renders the result tree of a run (run → scenario → rule →
// finding) and of a single judged trace.
//
// There is one tree and several renderers; none of them judges anything.
// [Text] writes the summary that a person reads in ten seconds, [JSON] the same
// tree for programs, [JUnit], [SARIF], [Markdown] and [Annotations] write it for
// the places where people look; [TraceText] and [TraceJSON] do so for one judged
// trace, which [Tree] makes a tree of, and [Progress] shows how far a run has come.
//
// Findings are told apart by their fingerprints (Fingerprint of check.Finding).
// A [Baseline] names those that are known, each until a day; [Baseline.Apply] says
// what is left of a run without them, and changes nothing in the tree.
//
// # The order of the summary
//
// The verdict comes first, then its exact scope: a verdict without its scope says
// more than was seen. Then the rules, each with its verdict and with how much it
// judged, so that a rule that judged nothing can't be taken for one that passed.
// Then the findings in words, grouped by rule and scenario, each with its harm;
// then what the run did not reach; at the end the commands that look closer and
// that show it again.
//
// # Untrusted text
//
// Names of workers, requests and files come out of traces that anybody may have
// written. Everything that reaches a terminal goes through [Clean], so that no
// name can move the cursor, change colours or start a line of its own. The other
// forms escape besides what means something there; in Markdown such text stands in
// code alone.
package report
