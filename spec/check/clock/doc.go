// Package clock finds out what the readings of several clocks say about the
// order of events, whatever the clocks' offsets are.
//
// # The question
//
// Machines do not agree on the time. Each event of a trace was stamped by one
// clock, and took effect while that clock read something between From and Till.
// How far the clocks are apart is not known, only that it does not change. Some
// events are known to come before others: by program order, by a signal, by what
// a rule demands. Is there any choice of offsets that fits all of it?
//
// # Constant offsets
//
// Say that clock c reads r at the instant θc + r. An event e on clock d, before
// which some event p on clock c comes, bounds the two offsets against each
// other: θc + From(p) ≤ θd + Till(e). Of all p on c only the one that reads
// latest counts, so that each event carries one number per clock, the latest
// reading of c among itself and all before it ([Solution.Lower]); one pass in
// topological order computes them, a second one backwards the earliest reading
// of each clock among all after it ([Solution.Upper]).
//
// What is left is a system of difference constraints with one variable per clock,
// however long the trace: a matrix of the tightest bounds. Its shortest paths are
// the offsets that are feasible ([Solution.Offset]); a cycle whose bounds add up
// to less than zero proves that none are. Nothing else can: if there is no such
// cycle, offsets exist, and with them an instant for every event.
//
// # Drift
//
// Real clocks also run at slightly different rates. [Trace].DriftPPM says how
// much at most: at any instants of the trace, the rates of any two clocks differ
// by no more than N millionths. (Of clocks that are each within 20 ppm of true
// time, N is 40.) Everything below only ever takes certainty away, so that clocks
// that keep within it never give an alarm.
//
// Measure time by a rate in the middle of the fastest and the slowest clock, at
// each instant anew. With the rates' ratio at most 1+ρ, ρ = N·1e-6, each clock is
// then within 1 ± ρ/(2+ρ) of it, and while a clock's reading advances by s,
// that time advances by s, give or take ρ/2·s. This is the one inequality that
// drift rests on; [Elapsed] is it.
//
// An offset no longer holds for the whole trace, only near where it was measured:
// a bound that a reading r sets on a clock is relaxed by ρ/2·|r − z| for the
// reading z at which the offset is meant. With one z per clock, such as its
// first or middle reading, an hour of 20 ppm would relax by 36 ms and find
// nothing. So each clock gets a grid of readings, at each of which its offset is a
// variable of its own. Neighbours on the grid bound each other by the inequality,
// and a reading enters the system through its two neighbours, to which it is
// near. By the triangle inequality that is as if it entered through every point of
// the grid. Sound it is wherever the points lie; how tight, their number decides:
// a clock that drifts by N ppm within half the grid's step loses no more than
// that. The step is a multiple of 2 ms, at which ρ/2·step is a whole number of ns,
// so that nothing is lost to rounding along the grid.
//
// Two readings of one clock need no grid: by how much they are apart is known up
// to ρ/2 of just that, and which of them is first is known outright
// ([Solution.Slack]).
//
// # Certificates
//
// A [Cycle] is what proves that nothing fits: bounds, each with the events that
// set it and the path of known order between them. It is checked without the
// solver and without the grid: each bound says that one clock's reading comes no
// later than another clock's; from each to the next, the clock in common advances
// by a known amount; and these amounts, each relaxed by ρ/2 of itself, add up to
// less than zero. No choice of offsets, and no rates within the drift, go round
// such a circle.
//
// # Cost
//
// For n events and K clocks: O(n·K) time and memory for the bounds per event
// (lists are shared where threads do not meet), O(K³) for the matrix; with drift,
// up to 512 grid points in place of K.
package clock
