package spec

import "encoding/json"

// Kind is the kind of an event: the value of its field k.
type Kind string

// The kinds of TRACE.md, version 1.
const (
	KindSource   Kind = "source"
	KindPool     Kind = "pool"
	KindAlloc    Kind = "alloc"
	KindHold     Kind = "hold"
	KindDrop     Kind = "drop"
	KindFree     Kind = "free"
	KindGrant    Kind = "grant"
	KindRevoke   Kind = "revoke"
	KindFence    Kind = "fence"
	KindBegin    Kind = "begin"
	KindEnd      Kind = "end"
	KindEmit     Kind = "emit"
	KindObserve  Kind = "observe"
	KindCapacity Kind = "capacity"
	KindSubmit   Kind = "submit"
	KindAdmit    Kind = "admit"
	KindReject   Kind = "reject"
	KindOffer    Kind = "offer"
	KindAccept   Kind = "accept"
	KindOutput   Kind = "output"
	KindCancel   Kind = "cancel"
	KindExpire   Kind = "expire"
	KindFinish   Kind = "finish"
	KindDigest   Kind = "digest"
	KindAnswer   Kind = "answer"
	KindFault    Kind = "fault"
	KindIdle     Kind = "idle"
	KindExit     Kind = "exit"
	KindLost     Kind = "lost"
	KindClockCmp Kind = "clockcmp"
	KindNote     Kind = "note"
	KindSeal     Kind = "seal"
)

// Mutates reports whether an event of this kind changes a pool. All mutations
// of one pool come from one source, and their seq order is the pool's order.
func (k Kind) Mutates() bool {
	switch k {
	case KindAlloc, KindHold, KindDrop, KindFree, KindGrant, KindRevoke:
		return true
	}
	return false
}

// Role is what a source's worker does.
type Role string

// The roles of TRACE.md.
const (
	RoleClient  Role = "client"
	RoleRouter  Role = "router"
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
	RoleStore   Role = "store"
	RoleHarness Role = "harness"
)

// Predicate is what a signal claims to prove. The zero value claims nothing.
type Predicate string

// The predicates, from the weakest to the strongest.
const (
	ClaimsNothing   Predicate = ""
	ClaimsReceived  Predicate = "received"
	ClaimsScheduled Predicate = "scheduled"
	// ClaimsStopped: no new access by the sender will begin.
	ClaimsStopped Predicate = "stopped"
	// ClaimsCompleted: the accesses that it speaks of have ended.
	ClaimsCompleted Predicate = "completed"
	// ClaimsDrained: no access by the sender remains, and none will begin.
	ClaimsDrained Predicate = "drained"
)

// Outcome is how a request ended at one stage or at the client.
type Outcome string

// The outcomes of TRACE.md.
const (
	OutcomeOK        Outcome = "ok"
	OutcomeError     Outcome = "error"
	OutcomeRejected  Outcome = "rejected"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeLength    Outcome = "length"
)

// Position says where an event was read: a file (or "-") and a 1-based line.
// The zero value means that it was never written.
type Position struct {
	File string
	Line int
}

// Event is one line of a trace. Which of the fields below an event of a kind
// uses, and which it must have, is in [Fields]; all others are zero. Times are
// nanoseconds on the clock of the source.
type Event struct {
	Src string // the recorder that wrote the line
	Seq uint64 // per source, from 0, in file order
	T   int64  // the event took effect at a point of [T, T2], in ns
	T2  int64  // T where the line has no t2
	Th  string // thread or task of the source; "main" where the line has none
	K   Kind

	Worker string          // source, exit
	Role   Role            // source
	Host   string          // source
	Clock  string          // source, clockcmp: equal strings share one monotonic clock
	PID    int64           // source
	Probe  string          // source
	Engine string          // source
	Hooks  json.RawMessage // source: an object

	Pool   string // pool, mutations, begin, digest
	Count  int64  // pool: number of blocks; lost: number of events
	Blocks Blocks // mutations, begin, digest
	Bytes  int64  // pool: bytes of one block
	What   string // pool: kv, aux, slot, host

	Holder  string // alloc, hold, drop, free
	Req     string
	Handoff string
	Why     string
	By      string // the sig that a decision waited for
	To      string // grant, revoke, emit, offer

	Mode   string // r, w, rw
	Access string // begin, end, fault
	Target string // begin: the worker whose memory it is
	Via    string // begin: the transport
	OK     *bool  // end

	Sig      string    // emit, observe, fault: one signal, unique in a trace
	Signal   string    // emit, observe: its kind
	Claims   Predicate // emit
	Asks     string    // emit: the kind of signal that it wants back
	Accesses []string  // emit: the accesses that a completed speaks of

	Stage  string  // capacity
	Limit  int64   // capacity, submit
	Unit   string  // capacity, submit, admit, reject
	Need   *int64  // submit, admit, reject
	Prompt string  // submit: a digest, never the text
	Status int64   // reject, finish: an HTTP status, 0 where there is none
	N      int64   // output: tokens
	After  int64   // expire: ns
	Result Outcome // finish

	Side   string // digest: source, target
	Part   int64  // digest
	Sum    string // digest, answer, seal
	Expect string // answer
	HasExp bool   // answer: expect was given

	Rule     string   // fault: the rule of the plan
	Do       string   // fault
	MS       int64    // fault: milliseconds
	Workers  []string // idle
	Code     int64    // exit
	SignalNo int64    // exit
	Lo, Hi   int64    // clockcmp: bounds in ns
	Text     string   // note
	Events   int64    // seal: number of earlier lines of the source

	// Extra holds the fields that this version does not know, as they were read.
	Extra map[string]json.RawMessage

	Pos Position // where it was read
}

// Thread names the sequence whose order is program order: one thread of one source.
type Thread struct{ Src, Th string }

// Thread returns the event's thread.
func (e *Event) Thread() Thread { return Thread{e.Src, e.Th} }

// ID names an event in a report.
func (e *Event) ID() EventID { return EventID{e.Src, e.Seq} }

// EventID names one event of a trace.
type EventID struct {
	Src string `json:"src"`
	Seq uint64 `json:"seq"`
}

// BlockID names one block.
type BlockID struct {
	Worker string `json:"worker"`
	Pool   string `json:"pool"`
	Number int64  `json:"number"`
}

// Loss says that a source's events are missing from a point on.
type Loss struct {
	Src string
	// Next is the first sequence number that may be missing: nothing that the
	// source did from there on is known to be complete.
	Next uint64
	// Why is one line for a person: a torn line, a gap, a lost event.
	Why string
	Pos Position
}

// Trace is what a reader hands to a judge: valid events, each source's in seq
// order, and what is known to be missing.
type Trace struct {
	Events []Event
	Losses []Loss
}
