// Package check judges saved traces: it tells whether what was recorded keeps
// the rules of the specification, and shows the events that prove it.
//
// It needs nothing but the trace. No engine runs, nothing is asked of a network,
// and the same trace always gives the same result. [Judge] is the whole API;
// what follows is how it comes to its result, in the order in which it does.
//
// # What can be known
//
// A trace is what several recorders wrote down, each in its own order and by its
// own clock. history.go indexes it: sources, threads, pools, accesses, signals,
// which handoff belongs to which request, and which sources lost events.
//
// order.go holds what is certain about the order of any two events: program
// order, the order of each pool, and that a signal is emitted before it is
// observed. The clocks' offsets are unknown constants. They are solved for
// (package [conform/spec/check/clock]), so that no skew between machines ever
// makes an alarm, and every order that some offsets allow counts as possible. If
// nothing is possible, the trace is bad input ([BadTrace]). feasible.go answers
// the one question that all rules ask: is there a legal order in which also this
// comes before that? "Later in every legal order" is that the reverse is not
// feasible. Where it takes several clocks to see that something is not,
// clocks.go proves it by the circle of bounds that contradict. For long runs the
// rates of the clocks may differ too ([Options].DriftPPM).
//
// # Question 1: did it go wrong?
//
// leases.go replays each pool with [spec.Block.Step]. A pool's order is known,
// so that this alone judges who allocated, held, dropped and freed what
// (BLK-1, BLK-4). access.go finds for each access the leases that it may
// belong to, by grant or by holder, and questionone.go asks whether it fits one:
// not even by its begin, and it was stale (BLK-3); not with its end, and the
// lease ended while it was open (BLK-2). A fence, where there was one, ends an
// access or turns it away. Then joint.go asks whether the accesses that fit
// alone fit together: two may need two different offsets of the same clocks.
//
// Porcupine confirms, by other means, whatever fails: subhistory.go cuts each
// such finding down to the operations that it rests on, places them on the
// timeline that the clock solver found, and Porcupine must refuse them in the same
// model; if it ever does not, one of the two has a defect, and the verdict is
// error. It also judges what fits leases in more ways than the solver tries. On
// request ([Options].Checker, and in most tests) porcupine.go has it search an
// order of the history of every block besides (blockhistory.go), and refuse none in
// which the solver found nothing, or lets it judge in the solver's place. Tests
// hold the two against each other on thousands of random histories, and the solver
// against trying out every offset.
//
// # Question 2: was it only luck?
//
// evidence.go asks, for each access and the free of its lease, whether a path of
// program order and of signals leads from the one to the other, whose claims
// permit it. Without one the order was right and nothing made it so: unproven
// (SIG-2). grantees.go asks the same for those who were granted a lease and of
// whom no access was seen.
//
// # The other rules
//
// signals.go holds what signals claim against what their senders did (SIG-1),
// and infers what each kind of signal really proves. stale.go asks whether each
// decision waited for a signal about its own handoff (SIG-3), answers.go whether
// what asked for an answer got one (SIG-4). requests.go, settled.go and data.go
// judge requests, leaks and content; settlement.go says in a table how requests
// that ended early gave back what they held. All sixteen rules are in the registry of
// judges; what a trace gave a rule to judge is its count.
//
// # What is missing
//
// A source that lost events makes the verdict at best inconclusive, and so is
// whatever only the absence of an event shows. What contradicts by events that
// are there fails all the same. [Result.Notes] says where each lost source ends.
//
// # Long traces
//
// All of that holds the trace in memory, with some kilobytes for each event. [Sift]
// judges a trace that can be read again, and holds what is open. Its [Sieve] tells
// what Judge would where the order of the lines is itself a legal order and nothing is
// found. What else there is (a request that was cancelled, a block freed too early, a
// claim that does not hold) is cut out of the trace with all that it may have to do
// with (sievecore.go), and Judge judges that with what the rest of the trace says
// about its order (sieveorder.go): the verdicts, findings and counts are those of the
// whole trace; only which of several equal proofs by clocks is cited may differ.
//
// Some kinds of traces go to Judge as a whole: those with a loss, those in which the
// lines are in no order that is legal for all but what was cut out (a file for each
// source, one after the other, or an observe before its emit), clocks that may drift,
// signals whose worth order alone does not show, those in which too much hangs
// together (blocks that caches share), and those in which two accesses fit alone and
// not together. Package chain judges histories of single blocks.
//
// # One finding
//
// slice.go cuts a trace down to what a finding is about. [Shrink] goes on from
// there to the smallest trace that gives the finding again, [Explain] tells its
// story in words and three lanes, [Picture] has Porcupine draw it.
//
// # Limits
//
// A trace is untrusted input. Time is near linear in its length but for
// Porcupine, whose time and memory per history are bounded
// ([Options].BlockTimeout and BlockMemory), and for what a hostile trace can ask,
// which the context bounds. Memory is bounded by the length of the trace and the
// limits that [LimitError] reports.
package check
