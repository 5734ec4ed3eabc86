package faults

import (
	"time"

	"conform/spec"
)

// The kinds of a [Point].
const (
	KindSignal = "signal" // a message between workers
	KindAccess = "access" // one read or write of leased memory, about to be posted
	KindHTTP   = "http"   // an HTTP request
	KindEvent  = "event"  // a recorded event of the trace
)

// Point is something that passes by and that a rule may match. Which fields are
// set depends on the kind; an empty field is one that the caller does not know,
// and a rule that asks for it does not match.
type Point struct {
	Kind string // one of the Kind constants
	// Name is the signal's kind ("ABORT_ACK"), the mode of an access ("r", "w"),
	// the request line of an HTTP request ("POST /generate"), or an event's k.
	Name string
	// From and To are worker ids or roles: who sends, posts or records, and whom
	// it concerns. An access goes to the worker whose memory it is.
	From, To string

	Pool    string
	Sig     string // the id of one signal
	Access  string // the id of one access
	Handoff string
	Req     string
	Signal  string // event emit, observe: the signal's kind
	Why     string // a finish event has its outcome here
	Mode    string // event begin, grant, revoke: r, w, rw

	N      int64       // an ordinal that the caller knows, such as a chunk's number
	Blocks spec.Blocks // the blocks that it concerns, of To (access) or of From (event)
}

// Do says what the caller of [Engine.Pass] does with what it asked about.
type Do int

// The answers.
const (
	// Forward: let it pass.
	Forward Do = iota
	// Drop: it never happens, and nobody is told.
	Drop
	// Duplicate: let it pass, and Copies times more after the time After.
	Duplicate
	// Fail: it does not happen, and who asked for it is told.
	Fail
)

// String is the word for d.
func (d Do) String() string {
	switch d {
	case Forward:
		return "forward"
	case Drop:
		return "drop"
	case Duplicate:
		return "duplicate"
	case Fail:
		return "fail"
	}
	return "unknown"
}

// Action is what the engine decided. The zero value lets everything pass.
type Action struct {
	Do     Do
	Copies int           // Duplicate: how many copies besides the original, at least 1
	After  time.Duration // Duplicate: how long after the original the copies go
}
