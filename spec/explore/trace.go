package explore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"

	"conform/spec"
)

// event is what a step does, before the run that it is part of gives it a place:
// the ids of signals and accesses come with the run.
type event struct {
	at  side
	r   int
	msg message
	e   spec.Event
}

// lastObserved stands for the signal that the thread observed last.
const lastObserved = "\x00last"

// record notes an event of one side for request r.
func (m *model) record(at side, r int, e spec.Event) {
	if !m.recording {
		return
	}
	if b := m.next.req[r].block; b != 0 {
		e.Blocks = spec.MakeBlocks(int64(b - 1))
	}
	m.events = append(m.events, event{at: at, r: r, e: e})
}

func (m *model) recordMessage(k spec.Kind, r int, msg message) {
	if !m.recording {
		return
	}
	at := receiver(msg)
	if k == spec.KindEmit {
		at = 1 - at
	}
	m.events = append(m.events, event{at: at, r: r, msg: msg, e: spec.Event{K: k}})
}

func (m *model) recordFault(r int, msg message, do string) {
	if m.recording {
		m.events = append(m.events, event{at: harness, r: r, msg: msg, e: spec.Event{K: spec.KindFault, Rule: "explore", Do: do}})
	}
}

func (m *model) worker(at side) string { return workerName(m.scope.Mode, at) }

func workerName(mode Mode, at side) string {
	switch {
	case at == client:
		return "c0"
	case at == harness:
		return "h0"
	case (mode == Push) == (at == owner):
		return "d0"
	}
	return "p0"
}

func signalName(mode Mode, k message) string {
	if mode == Pull {
		return [...]string{"KV_PARAMS", "", "", "", "READ_DONE", "READ_ABORT", "READ_ABORT/refused"}[k]
	}
	return [...]string{"METADATA", "ABORT", "ABORT_ACK", "ABORT_ACK", "STATUS/Success", "STATUS/Failed", "STATUS/Rejected"}[k]
}

func claims(k message) spec.Predicate {
	switch k {
	case msgDone:
		return spec.ClaimsCompleted
	case msgAck, msgHollow, msgFail, msgRefused:
		return spec.ClaimsDrained
	}
	return spec.ClaimsNothing
}

// A Writer puts the events of a run, one after the other, into the form of a
// trace: places in program order, times on one clock, source lines and seals.
type Writer struct {
	events []spec.Event
	seq    map[string]uint64
	sums   map[string]hash.Hash
	order  []string
}

// NewWriter makes a writer of an empty trace.
func NewWriter() *Writer { return &Writer{seq: map[string]uint64{}, sums: map[string]hash.Hash{}} }

// Source begins a source, of that worker and role.
func (w *Writer) Source(src, worker string, role spec.Role) {
	w.order = append(w.order, src)
	w.sums[src] = sha256.New()
	w.Add(src, spec.Event{K: spec.KindSource, Worker: worker, Role: role, Host: "model", Clock: "model"})
}

// Add adds the next event of the run, of a source that has begun.
func (w *Writer) Add(src string, e spec.Event) {
	e.Src, e.Th = src, "main"
	e.Seq = w.seq[src]
	e.T = int64(len(w.events)) * 1000
	e.T2 = e.T
	w.seq[src]++
	w.events = append(w.events, e)
	if sum := w.sums[src]; sum != nil {
		sum.Write(append(e.AppendJSON(nil), '\n'))
	}
}

// Trace seals the sources but those named, and returns the trace.
func (w *Writer) Trace(unsealed ...string) *spec.Trace {
	for _, src := range w.order {
		if !slices.Contains(unsealed, src) {
			w.Add(src, spec.Event{K: spec.KindSeal, Events: int64(w.seq[src]), Sum: hex.EncodeToString(w.sums[src].Sum(nil))})
		}
	}
	return &spec.Trace{Events: w.events}
}

// run collects the steps that were taken and turns them into a trace.
type run struct {
	scope    Scope
	w        *Writer
	sigs     int
	flying   [maxRequests][messages][]string
	observed [2]string // by side: the signal that it observed last
	accesses int
	open     [2][maxRequests]string // by side: its access for a request
}

var sources = [...]string{"O", "A", "C", "H"}

func newRun(scope Scope) *run {
	x := &run{scope: scope, w: NewWriter()}
	x.w.Source("C", workerName(scope.Mode, client), spec.RoleClient)
	x.w.Source("H", workerName(scope.Mode, harness), spec.RoleHarness)
	roles := [...]spec.Role{spec.RoleDecode, spec.RolePrefill}
	if scope.Mode == Pull {
		slices.Reverse(roles[:])
	}
	for at := range accessor + 1 {
		x.w.Source(sources[at], workerName(scope.Mode, at), roles[at])
	}
	x.w.Add("O", spec.Event{K: spec.KindPool, Pool: "kv", Count: int64(scope.Blocks)})
	x.w.Add("A", spec.Event{K: spec.KindCapacity, Stage: string(roles[accessor]), Limit: 1, Unit: "chunks"})
	return x
}

// add appends the events of one step.
func (x *run) add(events []event) {
	for i := range events {
		x.place(&events[i])
	}
}

// place fills in what the run knows.
func (x *run) place(v *event) {
	e := v.e
	mutable := e.K.Mutates() || e.K == spec.KindBegin
	if !mutable {
		e.Blocks = nil
	} else {
		e.Pool = "kv"
	}
	e.Req, e.Handoff = reqName(v.r), handoffName(v.r)
	switch e.K {
	case spec.KindGrant:
		e.To, e.Mode = workerName(x.scope.Mode, accessor), x.remoteMode()
	case spec.KindBegin:
		x.begin(v, &e)
	case spec.KindEnd:
		e.Access, x.open[v.at][v.r] = x.open[v.at][v.r], ""
		e.Req, e.Handoff = "", ""
	case spec.KindEmit, spec.KindObserve, spec.KindFault:
		x.message(v, &e)
	case spec.KindSubmit, spec.KindAdmit, spec.KindReject:
		if e.K == spec.KindSubmit {
			e.Unit, e.Handoff = "chunks", ""
		}
	case spec.KindExpire:
		if x.scope.Mode == Pull {
			e.Req = "" // the lease, not the request
		}
	case spec.KindOffer:
		e.To = workerName(x.scope.Mode, 1-v.at)
	case spec.KindFence:
		e.Req = ""
	case spec.KindAnswer, spec.KindNote, spec.KindExit:
		e.Handoff = ""
		if e.K != spec.KindAnswer {
			e.Req = ""
		}
	}
	if e.By == lastObserved {
		e.By = x.observed[v.at]
	}
	x.w.Add(sources[v.at], e)
}

func (x *run) remoteMode() string {
	if x.scope.Mode == Push {
		return "w"
	}
	return "r"
}

func (x *run) begin(v *event, e *spec.Event) {
	x.accesses++
	e.Access, e.Target = fmt.Sprintf("x%d", x.accesses), workerName(x.scope.Mode, owner)
	x.open[v.at][v.r] = e.Access
	e.Mode = x.remoteMode()
	if v.at == owner {
		e.Mode = map[string]string{"w": "r", "r": "w"}[e.Mode]
	}
}

// message fills in the signal of an emit, an observe or a fault.
func (x *run) message(v *event, e *spec.Event) {
	q := &x.flying[v.r][v.msg]
	switch e.K {
	case spec.KindEmit:
		x.sigs++
		e.Sig, e.Signal, e.Claims = fmt.Sprintf("s%d", x.sigs), signalName(x.scope.Mode, v.msg), claims(v.msg)
		e.To = workerName(x.scope.Mode, receiver(v.msg))
		if v.msg == msgAbort {
			e.Asks = "ABORT_ACK"
		}
		*q = append(*q, e.Sig)
	case spec.KindObserve:
		e.Sig, *q = (*q)[0], (*q)[1:]
		x.observed[v.at] = e.Sig
	case spec.KindFault:
		e.Sig = (*q)[0]
		if e.Do == "drop" {
			*q = (*q)[1:]
		} else {
			*q = append(*q, e.Sig)
		}
	}
}

// trace ends the run: the harness says who is idle, and who lives seals.
func (x *run) trace(s *state) *spec.Trace {
	var idle, unsealed []string
	for at := range accessor + 1 {
		if s.down[at] {
			unsealed = append(unsealed, sources[at])
		} else {
			idle = append(idle, workerName(x.scope.Mode, at))
		}
	}
	x.w.Add("H", spec.Event{K: spec.KindIdle, Workers: idle})
	return x.w.Trace(unsealed...)
}
