// Package hunt predicts, from a run in which nothing went wrong, which orders may go
// wrong, and then forces each of them.
//
// # Predict
//
// A clean run shows accesses to memory that is passed between stages, and how each met
// the end of the lease that it touched ([check.Judged.Meetings]). For each class of
// accesses (who, whose memory, which pool, read or write) it says which ways of ending
// a lease it saw, and what ordered the two: a signal, a fence, or nothing. That makes
// predictions ([Prediction]): what nothing ordered comes first, then the ways that the
// run never met, of which nothing can be known yet, then what a signal ordered, which
// is true if the signal is honest.
//
// # Force
//
// For each prediction a fault plan is written ([End]): accesses of the class are held
// where the stack asks before it carries them out, meanwhile their lease is brought to
// its end (the client gives the request up, a word comes late, a process stands still),
// and they go on once the block has a new owner with content of its own. The plan names
// nothing of the run that it was predicted from but roles, pools and ordinals. The stack
// runs under it, at the load of scenario forced-order.
//
// # Answer
//
// The trace of the forced run is judged like any other. It fails: confirmed, with the
// harm as far as it got. Each held access was waited for: refuted, and what the owner
// waited for is named: evidence for the adapter's table of signals. Neither: not forced,
// and why. No answer rests on the prediction: only on the trace of the forced run.
package hunt
