package spec

import "fmt"

// Phase is where a request stands at one stage.
type Phase string

// The phases of a request at one stage. Rejected, cancelled, expired and
// finished are not in one line: a cancelled request still has to give back what
// it holds, and still gets its outcome.
const (
	PhaseNew       Phase = "" // the stage has not heard of it
	PhaseSubmitted Phase = "submitted"
	PhaseAdmitted  Phase = "admitted"
	PhaseOffered   Phase = "offered"
	PhaseAccepted  Phase = "accepted"
	PhaseRejected  Phase = "rejected"
	PhaseCancelled Phase = "cancelled"
	PhaseExpired   Phase = "expired"
	PhaseFinished  Phase = "finished"
)

// Phases lists the phases, in the order of a life without trouble, then the ends.
func Phases() []Phase {
	return []Phase{
		PhaseNew, PhaseSubmitted, PhaseAdmitted, PhaseOffered, PhaseAccepted,
		PhaseRejected, PhaseCancelled, PhaseExpired, PhaseFinished,
	}
}

// Live reports whether the stage may still work for the request.
func (p Phase) Live() bool {
	switch p {
	case PhaseRejected, PhaseCancelled, PhaseExpired, PhaseFinished:
		return false
	}
	return true
}

// Request is the life of one request at one stage, or in the client's view:
// submitted → admitted | rejected, admitted → offered → accepted → finished;
// cancelled and expired from any live phase. The zero value is a request that
// the stage has not heard of.
//
// It is a comparable value: [Request.Step] returns a new one, and == is equality
// of states.
type Request struct {
	Phase Phase
	// Rejected is set when a stage, this one or another, rejected the request and
	// this one knows of it. A rejection is terminal everywhere, whatever this stage
	// had already done, and stays so when the request has its outcome.
	Rejected bool
	// Cut is set when a stage ended the request before its end: what the client is
	// told must then not be a success.
	Cut bool
	// Outcome is set once the request has finished here.
	Outcome Outcome
}

// RequestOp is one event of a request at a stage.
type RequestOp struct {
	// Kind is one of submit, admit, reject, offer, accept, begin, output, cancel,
	// expire, finish.
	Kind Kind
	// Elsewhere marks a reject, cancel, expire or finish as another stage's.
	Elsewhere bool
	Outcome   Outcome // finish
	Status    int64   // finish, client: an HTTP status, 0 where there is none
	Client    bool    // finish: it is what the client was told
	// Need and Limit, for an admit, are what the request asks and the stage can
	// process, in one unit; a Limit of 0 says that the capacity is not known.
	Need, Limit int64
}

// Step applies one event. A nil Breach means that the rules allow it; with a
// Breach, the Request returned is what the event makes of it all the same.
func (r Request) Step(op RequestOp) (Request, *Breach) {
	switch op.Kind {
	case KindSubmit:
		return r.to(PhaseSubmitted), nil
	case KindAdmit:
		if op.Limit > 0 && op.Need > op.Limit {
			return r.to(PhaseAdmitted), breach(REQ5, "it is admitted with need %d where the stage can process %d", op.Need, op.Limit)
		}
		return r.to(PhaseAdmitted), nil
	case KindOffer:
		return r.to(PhaseOffered), nil
	case KindReject:
		return r.reject(op), nil
	case KindCancel, KindExpire:
		return r.stop(op), nil
	case KindAccept, KindBegin, KindOutput:
		return r.work(op)
	case KindFinish:
		return r.finish(op)
	}
	return r, nil
}

// to moves on, unless the request has ended here: an end is never left.
func (r Request) to(p Phase) Request {
	if r.Phase.Live() {
		r.Phase = p
	}
	return r
}

func (r Request) reject(op RequestOp) Request {
	r.Cut, r.Rejected = true, true
	if op.Elsewhere {
		return r
	}
	return r.to(PhaseRejected)
}

func (r Request) stop(op RequestOp) Request {
	if op.Kind == KindExpire {
		r.Cut = true
		if op.Elsewhere {
			return r
		}
		return r.to(PhaseExpired)
	}
	if op.Elsewhere {
		return r // asked of another stage; this one has not taken it in
	}
	return r.to(PhaseCancelled)
}

// work is what a stage does for a request.
func (r Request) work(op RequestOp) (Request, *Breach) {
	next := r
	if op.Kind == KindAccept {
		next = r.to(PhaseAccepted)
	}
	what := map[Kind]string{KindAccept: "accepted", KindBegin: "transferred for", KindOutput: "given output"}[op.Kind]
	switch {
	case r.Rejected:
		return next, breach(REQ1, "it is %s after it was rejected", what)
	case op.Kind == KindBegin && r.Phase == PhaseCancelled:
		return next, breach(REQ3, "it is transferred for after its cancellation was taken in")
	}
	return next, nil
}

func (r Request) finish(op RequestOp) (Request, *Breach) {
	if op.Elsewhere {
		r.Cut = r.Cut || op.Outcome != OutcomeOK && op.Outcome != OutcomeLength
		return r, nil
	}
	if r.Phase == PhaseFinished {
		return r, breach(REQ4, "it finishes as %s after it had finished as %s", op.Outcome, r.Outcome)
	}
	next := r
	next.Phase, next.Outcome = PhaseFinished, op.Outcome
	good := op.Outcome == OutcomeOK || op.Outcome == OutcomeLength || op.Status >= 200 && op.Status <= 299
	switch op.Outcome {
	case OutcomeError, OutcomeRejected, OutcomeCancelled:
		next.Cut = true
	}
	if op.Client && good && r.Cut {
		return next, breach(REQ4, "its client is told %s, status %d, though a stage did not finish it", op.Outcome, op.Status)
	}
	return next, nil
}

// Key is the state as a string: equal for equal states only.
func (r Request) Key() string {
	return fmt.Sprintf("%s %t %t %s", r.Phase, r.Rejected, r.Cut, r.Outcome)
}
