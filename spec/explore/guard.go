package explore

import (
	"slices"

	"conform/spec"
)

// Mode is which way the state of a request moves between the stages.
type Mode uint8

// The modes. In push, decode owns the blocks and prefill writes them; in pull,
// prefill owns them and decode reads them. The owner and the accessor of the
// other mode's memory are what the rest of this package speaks of.
const (
	Push Mode = iota
	Pull
)

func (m Mode) String() string {
	if m == Pull {
		return "pull"
	}
	return "push"
}

// Guard is one condition of the protocol, by name. Taking it away must break a
// rule; a guard that can be taken away without harm guards nothing.
type Guard struct {
	Name  string
	Holds string // the condition, as a sentence
	Modes []Mode // in which it is part of the protocol
	// Protects are the rules that break without it, the one that it is for first.
	Protects []spec.RuleID

	id guardID
}

type guardID uint8

const (
	whole guardID = iota // the protocol with all its guards
	freeOnly
	waitDrained
	ackDrained
	fenceFirst
	rejectTerminal
	stopOnCancel
	releaseOnce
	exactHandoff
	withinCapacity
	releaseAtEnd
	releaseAtRefusal
	timeoutExists
	reportAbsence
	everyStage
	finishOnce
	awaitGrant
	grantOnce
	completeFirst
	ownAccessFirst
	failedRefused
)

// Guards lists every guard of the protocol.
func Guards() []Guard {
	both, push, pull := []Mode{Push, Pull}, []Mode{Push}, []Mode{Pull}
	rules := func(r ...spec.RuleID) []spec.RuleID { return r }
	return []Guard{
		{"free-only", "The owner allocates only a free block.", both, rules(spec.BLK1), freeOnly},
		{"wait-drained", "A cancelled request's granted blocks wait for the accessor's word.", both, rules(spec.BLK2, spec.SIG2), waitDrained},
		{"ack-drained", "The accessor answers an abort only when its access has ended.", push, rules(spec.SIG1, spec.BLK2), ackDrained},
		{"fence-first", "Before it releases at a timeout, the owner fences.", both, rules(spec.BLK2, spec.SIG2, spec.REQ2), fenceFirst},
		{"reject-terminal", "A stage that rejected a request handles no grant for it.", both, rules(spec.REQ1), rejectTerminal},
		{"stop-on-cancel", "A stage that took a cancellation in begins no access for the request, even if the grant comes later.", both, rules(spec.REQ3), stopOnCancel},
		{"release-once", "A word that comes after the release releases nothing.", both, rules(spec.BLK4), releaseOnce},
		{"exact-handoff", "A word counts for the use of the key that it names, generation included.", both, rules(spec.SIG3, spec.BLK2), exactHandoff},
		{"within-capacity", "A stage admits only what it can process.", both, rules(spec.REQ5), withinCapacity},
		{"release-at-end", "The owner releases the blocks of a request that is over.", both, rules(spec.BLK5), releaseAtEnd},
		{"release-at-refusal", "The owner releases when the other stage refused.", both, rules(spec.REQ2, spec.BLK5), releaseAtRefusal},
		{"timeout-exists", "The owner does not wait for ever for a word that was lost.", both, rules(spec.REQ2), timeoutExists},
		{"report-absence", "An acknowledgement that never came is reported.", push, rules(spec.SIG4), reportAbsence},
		{"every-stage", "The client is told a success only when every stage has finished so.", both, rules(spec.REQ4), everyStage},
		{"finish-once", "A late word does not finish a request again.", push, rules(spec.REQ4), finishOnce},
		{"await-grant", "The accessor begins only when it has the grant.", push, rules(spec.SIG2), awaitGrant},
		{"grant-once", "A grant that comes twice is used once.", both, rules(spec.BLK3), grantOnce},
		{"complete-first", "State is taken for valid only when all of it was written.", both, rules(spec.DAT1, spec.DAT2), completeFirst},
		{"own-access-first", "The owner ends its own access before it releases.", both, rules(spec.BLK2), ownAccessFirst},
		{"failed-write-refused", "A write that a fence turned away is not reported as done.", push, rules(spec.SIG1), failedRefused},
		{"failed-read-refused", "What came back from a read that a fence turned away is not used.", pull, rules(spec.DAT1, spec.DAT2), failedRefused},
	}
}

// GuardByName finds a guard.
func GuardByName(name string) (Guard, bool) {
	for _, g := range Guards() {
		if g.Name == name {
			return g, true
		}
	}
	return Guard{}, false
}

// In reports whether the guard is part of the protocol in that mode.
func (g Guard) In(mode Mode) bool {
	return slices.Contains(g.Modes, mode)
}
