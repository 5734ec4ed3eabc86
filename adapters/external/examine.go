package external

import (
	"fmt"

	"conform/spec"
)

// A Grade says whether a point is met.
type Grade string

// The grades of a point.
const (
	Met    Grade = "met"
	Weak   Grade = "weak"   // allowed, but the judge can conclude less
	Broken Grade = "broken" // what was recorded can't have happened so, or is lost
	Absent Grade = "absent" // nothing in the trace is about it
)

// A Point is one thing that a writer of traces has to get right.
type Point struct {
	Name string // a few words, such as "sources are sealed"
	Grade
	Seen, Wrong int // events that the point is about, and those of them that miss it
	// First is where it is missed first, and Advice what to do.
	First  spec.Position
	Found  string
	Advice string
}

// Examine says point by point what a judge can make of a trace that reads well. It is
// linear in the events.
func Examine(t *spec.Trace) []Point {
	x := newExam()
	for i := range t.Events {
		x.learn(&t.Events[i])
	}
	for i := range t.Events {
		x.look(&t.Events[i])
	}
	for _, l := range t.Losses {
		x.whole.miss(l.Pos, fmt.Sprintf("source %s lost events: %s", l.Src, l.Why))
	}
	points := make([]Point, 0, len(x.all))
	for _, p := range x.all {
		points = append(points, p.graded())
	}
	return points
}

// point collects what is seen of a Point.
type point struct {
	Point
	below Grade // what a miss makes of it
}

func (p *point) miss(pos spec.Position, found string) {
	if p.Wrong == 0 {
		p.First, p.Found = pos, found
	}
	p.Wrong++
}

func (p *point) graded() Point {
	switch {
	case p.Wrong > 0:
		p.Grade = p.below
	case p.Seen == 0:
		p.Grade = Absent
	default:
		p.Grade = Met
	}
	return p.Point
}

// exam is what one pass over a trace has learned, and the points of the next.
type exam struct {
	sealed   map[string]bool
	sources  map[string]*spec.Event
	emitted  map[string]bool
	observed map[string]bool
	ended    map[string]bool
	handoffs map[string]map[spec.Role]bool // who spoke of it
	answered map[string]bool               // requests with an answer
	last     map[spec.Thread]int64

	all                                                                             []*point
	whole, seals, clocks, order, ends, meets, received, claims, asks, shared, tally *point
}

func newExam() *exam {
	x := &exam{
		sealed: map[string]bool{}, sources: map[string]*spec.Event{}, emitted: map[string]bool{}, observed: map[string]bool{}, ended: map[string]bool{},
		handoffs: map[string]map[spec.Role]bool{}, answered: map[string]bool{}, last: map[spec.Thread]int64{},
	}
	add := func(p **point, below Grade, name, advice string) {
		*p = &point{Point: Point{Name: name, Advice: advice}, below: below}
		x.all = append(x.all, *p)
	}
	add(&x.whole, Broken, "nothing was lost", "look for a full disk, a killed writer thread, or numbers that are given before the line is written")
	add(&x.seals, Weak, "sources are sealed", "write a seal where the process ends in good order: what did not happen is only known up to it")
	add(&x.clocks, Weak, "a machine has one clock", "give sources of one host and boot the same clock, if they read the same monotonic clock")
	add(&x.order, Broken, "a thread's times do not run backwards", "take the time under the lock that gives the number, and give each thread a name of its own")
	add(&x.ends, Weak, "accesses that began have an end", "record end where the accessor knows that it touches the memory no more, also after an error")
	add(&x.meets, Broken, "what is observed was emitted", "make the sig of what both sides know, the same on both; record emit before the message leaves")
	add(&x.received, Weak, "what was emitted is observed", "record observe where the thread that acts on the message takes it in")
	add(&x.claims, Weak, "some signal says that accesses are over", "put claims completed or drained on the signals that are meant so; without one every reuse is unproven")
	add(&x.asks, Absent, "acknowledgements are asked for", "put asks on a signal that wants an answer: SIG-4 is judged by it")
	add(&x.shared, Weak, "both stages name a handoff alike", "derive the handoff's name from the key that both know, with #1, #2, … for its reuses")
	add(&x.tally, Weak, "requests that are submitted are answered", "record answer or finish at the client, also for errors")
	return x
}

func (x *exam) learn(e *spec.Event) {
	switch e.K {
	case spec.KindSource:
		x.sources[e.Src] = e
	case spec.KindSeal:
		x.sealed[e.Src] = true
	case spec.KindEmit:
		x.emitted[e.Sig] = true
	case spec.KindObserve:
		x.observed[e.Sig] = true
	case spec.KindEnd:
		x.ended[e.Access] = true
	case spec.KindAnswer, spec.KindFinish:
		x.answered[e.Req] = true
	}
	if s := x.sources[e.Src]; s != nil && e.Handoff != "" {
		if x.handoffs[e.Handoff] == nil {
			x.handoffs[e.Handoff] = map[spec.Role]bool{}
		}
		x.handoffs[e.Handoff][s.Role] = true
	}
}

func (x *exam) look(e *spec.Event) {
	x.whole.Seen++
	x.moment(e)
	switch e.K {
	case spec.KindSource:
		x.source(e)
	case spec.KindBegin:
		x.ends.Seen++
		if !x.ended[e.Access] {
			x.ends.miss(e.Pos, "access "+e.Access+" begins and never ends")
		}
	case spec.KindObserve:
		x.meets.Seen++
		if !x.emitted[e.Sig] {
			x.meets.miss(e.Pos, fmt.Sprintf("source %s observes %s (%s), which nobody emits", e.Src, e.Sig, e.Signal))
		}
	case spec.KindEmit:
		x.signal(e)
	case spec.KindGrant, spec.KindOffer:
		x.handoff(e)
	case spec.KindSubmit:
		x.tally.Seen++
		if !x.answered[e.Req] {
			x.tally.miss(e.Pos, "request "+e.Req+" has no answer and no finish")
		}
	}
}

// moment looks at when an event took effect.
func (x *exam) moment(e *spec.Event) {
	x.order.Seen++
	if last, ok := x.last[e.Thread()]; ok && e.T2 < last {
		x.order.miss(e.Pos, fmt.Sprintf("%s of thread %s of source %s ended %d ns before its thread's last event began", e.K, e.Th, e.Src, last-e.T2))
	}
	x.last[e.Thread()] = max(x.last[e.Thread()], e.T)
}

func (x *exam) source(e *spec.Event) {
	x.seals.Seen++
	if !x.sealed[e.Src] {
		x.seals.miss(e.Pos, "source "+e.Src+" has no seal")
	}
	x.clocks.Seen++
	for _, o := range x.sources {
		if o.Host == e.Host && o.Clock != e.Clock {
			x.clocks.miss(e.Pos, fmt.Sprintf("sources of host %s have several clocks: their order rests on signals alone", e.Host))
			return
		}
	}
}

func (x *exam) signal(e *spec.Event) {
	x.received.Seen++
	if !x.observed[e.Sig] {
		x.received.miss(e.Pos, fmt.Sprintf("%s (%s) of source %s is never observed", e.Sig, e.Signal, e.Src))
	}
	if e.Claims == spec.ClaimsCompleted || e.Claims == spec.ClaimsDrained {
		x.claims.Seen++
	}
	if e.Asks != "" {
		x.asks.Seen++
	}
}

// handoff looks whether the other stage knows a handoff by the name that the one that
// grants or offers it gives.
func (x *exam) handoff(e *spec.Event) {
	x.shared.Seen++
	if by := x.handoffs[e.Handoff]; !by[spec.RolePrefill] || !by[spec.RoleDecode] {
		x.shared.miss(e.Pos, fmt.Sprintf("handoff %s is named by one stage alone", e.Handoff))
	}
}
