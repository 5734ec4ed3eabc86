package harness

import (
	"context"
	"slices"
	"strings"
	"time"

	"conform/adapters"
	"conform/adapters/reference"
	"conform/spec"
)

// Scenario is one situation that a stack is put through. What it is for is
// engine-neutral; how an adapter's stack is brought into it is a shape.
type Scenario struct {
	ID    string
	Title string
	Why   string // which lesson it stands for
	// Branches are what a run must reach on every adapter; see [Branch].
	Branches []string

	shapes map[string]shape                // by adapter; it applies to no other
	reach  map[string]func(*recorded) bool // by branch
}

// shape is a scenario for one adapter. It has a workload, or a cast and a play.
type shape struct {
	modes    []string          // that it applies to; empty: each of the adapter's
	plans    map[string]string // by mode: YAML. The key "" is for each mode that has none
	limits   adapters.Limits
	topology adapters.Topology
	env      []string // NAME=VALUE for the stack's processes, before the user's own
	args     []string // of the engine, before the user's own
	workload workload // of clients that come at random

	// cast lists the requests of a play, and play says what is done with them, in one
	// order; see [director]. hears are the kinds of recorded events that it awaits.
	cast  func(adapters.Limits, adapters.Pace) []part
	play  func(context.Context, *director) error
	hears []spec.Kind

	branches []string                        // besides the scenario's own
	modal    map[string][]string             // branches that only one mode has
	reach    map[string]func(*recorded) bool // by branch, in the place of the scenario's
}

// Adapters are the names of those that it applies to, in the order of [Adapters].
func (s Scenario) Adapters() []string {
	var names []string
	for _, info := range Adapters() {
		if _, ok := s.shapes[info.Name]; ok {
			names = append(names, info.Name)
		}
	}
	return names
}

// Modes are the transfer modes of an adapter that the scenario applies to.
func (s Scenario) Modes(adapter adapters.Info) []string {
	sh, ok := s.shapes[adapter.Name]
	switch {
	case !ok:
		return nil
	case len(sh.modes) == 0:
		return adapter.Modes
	}
	return sh.modes
}

// Plan is the scenario's fault plan for an adapter in a mode, as YAML; "" if it
// has none.
func (s Scenario) Plan(adapter, mode string) string {
	plans := s.shapes[adapter].plans
	if text, ok := plans[mode]; ok {
		return text
	}
	return plans[""]
}

// BranchesOf are the branches that the scenario must reach on an adapter in a mode.
func (s Scenario) BranchesOf(adapter, mode string) []string {
	sh := s.shapes[adapter]
	return slices.Concat(s.Branches, sh.branches, sh.modal[mode])
}

// reached tells how a branch is recognized on an adapter.
func (s Scenario) reached(adapter, branch string) func(*recorded) bool {
	if f := s.shapes[adapter].reach[branch]; f != nil {
		return f
	}
	return s.reach[branch]
}

// The reference stack's modes.
const (
	modePush = reference.Push
	modePull = reference.Pull
)

// The adapters that shapes are for.
const (
	onReference = "reference"
	onSGLang    = "sglang"
	onVLLM      = "vllm"
)

// Scenarios lists the built-in scenarios, the plain one first.
func Scenarios() []Scenario {
	return []Scenario{
		baseline(), cancelDuringTransfer(), clientDisconnect(), cancelBeforeGrant(), ackDelayed(), ackLost(), ackStale(),
		rejectPrefillCapacity(), rejectDecodeCapacity(), leaseExpiry(), workerKilled(), peerSilent(),
		holdTimeout(), handoffTimeout(), sourceReuse(), slotReuse(), keyReuse(), cancelWhileQueued(), cancelTwice(), cancelBetweenStages(), chunkFails(), statusLate(), referenceStale(), leaseRenewed(), prefixShared(), twoDecodeRanks(), decodeRestarted(),
		prefillAbsent(), prefillLate(), samplesShareKey(), preemptDuringHandoff(), fanOut(), twoRanks(), offloadFinish(), mixedLoad(),
		readerFrozen(), readerFrozenBriefly(), nobodyReads(),
	}
}

// ScenarioByID finds a built-in scenario, also one that needs a plan.
func ScenarioByID(id string) (Scenario, bool) {
	for _, s := range append(Scenarios(), byPlan()...) {
		if s.ID == id {
			return s, true
		}
	}
	return Scenario{}, false
}

// workload says what clients do in a scenario. Numbers of tokens are inclusive
// ranges; every n-th of something counts requests in the order in which they are
// drawn, 0 for never.
type workload struct {
	clients  int
	requests int
	least    int // ends after so many once the plan has nothing left to do; 0: all are sent
	prompt   [2]int
	output   [2]int
	pause    [2]time.Duration // between two requests of a client

	streamEvery  int
	tooLongEvery int // above prefill's limit, below the context's
	outputEvery  int // more output than decode can process
	prefixEvery  int // begins with the first part, or all, of an earlier prompt
	abortEvery   int // asked to stop through the API, some time after it was sent
	leaveEvery   int // the client closes its connection some time after it sent
	cancelAfter  [2]time.Duration

	// onFault lets a client give its request up when a rule of the plan hits it.
	onFault map[string]giveUp
	// backoff is how long a client waits after it was told that a worker is lost.
	backoff time.Duration
}

// giveUp is how a client gives a request up.
type giveUp int

const (
	abort giveUp = iota + 1 // POST /abort
	leave                   // closes its connection
)

// plainWorkload is for the reference stack: many requests of milliseconds.
func plainWorkload() workload {
	return workload{
		clients: 6, requests: 48, prompt: [2]int{3, 64}, output: [2]int{2, 8},
		pause: [2]time.Duration{0, 2 * time.Millisecond}, streamEvery: 3, backoff: 50 * time.Millisecond,
	}
}

// engineWorkload is for a real engine on a few cores: a few requests of a second,
// that take several pages each. What it is made of is for a scenario to change.
func engineWorkload() workload {
	return workload{
		clients: 3, requests: 18, prompt: [2]int{20, 400}, output: [2]int{8, 64},
		pause: [2]time.Duration{0, 200 * time.Millisecond}, streamEvery: 3, backoff: time.Second,
	}
}

// recorded is a finished trace, indexed for the branches' questions.
type recorded struct {
	events []spec.Event
	role   map[string]spec.Role // of a source
	worker map[string]string    // of a source
	ends   map[string]*spec.Event
	faults map[string]int // by rule
}

func newRecorded(tr *spec.Trace) *recorded {
	r := &recorded{events: tr.Events, role: map[string]spec.Role{}, worker: map[string]string{}, ends: map[string]*spec.Event{}, faults: map[string]int{}}
	for i := range r.events {
		switch e := &r.events[i]; e.K {
		case spec.KindSource:
			r.role[e.Src], r.worker[e.Src] = e.Role, e.Worker
		case spec.KindEnd:
			r.ends[e.Access] = e
		case spec.KindFault:
			r.faults[e.Rule]++
		}
	}
	return r
}

// any reports whether some event satisfies f.
func (r *recorded) any(f func(*spec.Event) bool) bool {
	for i := range r.events {
		if f(&r.events[i]) {
			return true
		}
	}
	return false
}

// remote reports whether an access is to another worker's memory.
func (r *recorded) remote(e *spec.Event) bool { return e.Target != r.worker[e.Src] }

// observed reports whether a worker of the role took in a signal of the kind. As
// in fault plans, a name stands for what precedes the "/" of a signal's as well.
func observed(role spec.Role, signals ...string) func(*recorded) bool {
	return func(r *recorded) bool {
		return r.any(func(e *spec.Event) bool {
			family, _, _ := strings.Cut(e.Signal, "/")
			return e.K == spec.KindObserve && r.role[e.Src] == role && (slices.Contains(signals, e.Signal) || slices.Contains(signals, family))
		})
	}
}

// kindAt reports whether a worker of the role recorded an event of the kind.
func kindAt(role spec.Role, k spec.Kind) func(*recorded) bool {
	return func(r *recorded) bool {
		return r.any(func(e *spec.Event) bool { return e.K == k && r.role[e.Src] == role })
	}
}

// fencedRelease reports whether blocks were given back behind a fence.
func fencedRelease(r *recorded) bool {
	fenced := map[string]bool{}
	return r.any(func(e *spec.Event) bool {
		if e.K == spec.KindFence {
			fenced[e.Src+"\x00"+e.Handoff] = true
		}
		return e.K == spec.KindFree && fenced[e.Src+"\x00"+e.Handoff]
	})
}

// span is from the begin of an access to its end; without end where none was seen.
type span struct{ from, to int64 }

func (r *recorded) span(begin *spec.Event) span {
	s := span{begin.T, 1<<63 - 1}
	if end := r.ends[begin.Access]; end != nil {
		s.to = end.T
	}
	return s
}

// holds reports whether an event took effect inside the span.
func (s span) holds(e *spec.Event) bool { return s.from < e.T && e.T < s.to }

// openAt reports whether a remote access under a handoff was open when an event
// that f picks, of the same handoff or request, took effect. All processes of
// one machine share a clock.
func openAt(f func(*spec.Event) bool) func(*recorded) bool {
	return func(r *recorded) bool {
		open := map[string][]span{}
		for i := range r.events {
			e := &r.events[i]
			if e.K != spec.KindBegin || e.Handoff == "" || !r.remote(e) {
				continue
			}
			s := r.span(e)
			open[e.Handoff] = append(open[e.Handoff], s)
			open[e.Req] = append(open[e.Req], s)
		}
		return r.any(func(e *spec.Event) bool {
			if !f(e) {
				return false
			}
			for _, s := range append(open[e.Handoff], open[e.Req]...) {
				if s.holds(e) {
					return true
				}
			}
			return false
		})
	}
}

// reused reports whether a block was leased again within a time of its release.
func reused(within time.Duration) func(*recorded) bool {
	return func(r *recorded) bool {
		freed := map[spec.BlockID]int64{}
		return r.any(func(e *spec.Event) bool {
			hit := false
			for n := range e.Blocks.All {
				id := spec.BlockID{Worker: r.worker[e.Src], Pool: e.Pool, Number: n}
				switch t, was := freed[id]; {
				case e.K == spec.KindFree:
					freed[id] = e.T
				case e.K == spec.KindAlloc && was && e.T-t < int64(within):
					hit = true
				}
			}
			return hit
		})
	}
}
