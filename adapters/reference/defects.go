package reference

import "conform/spec"

// Defect is one class of bugs that engines really had, switched on in this stack
// by name.
type Defect struct {
	Name  string
	Title string
	// Cause says in terms of ownership what is wrong.
	Cause string
	// Harm is what may come of it.
	Harm string
	// Rules are those that must catch it; the first is the one by which it is known.
	Rules []spec.RuleID
	// Scenarios are the built-in ones that force it, in mode Mode.
	Scenarios []string
	Mode      string // "" for each
	// Issues are public reports of the class.
	Issues []string
	// Clockless defects run with the clocks of engines, which are minutes: what a
	// clock would end after a second is still there when the run is judged.
	Clockless bool
}

// The names of the defects.
const (
	defFreeAtCancel  = "free-at-cancel"
	defAckReceived   = "ack-means-received"
	defRejectHanded  = "rejected-handed-over"
	defLeaseReuse    = "lease-expires-under-read"
	defSlotReuse     = "slot-reused-by-late-writer"
	defDoubleRelease = "double-release"
	defRejectLeaks   = "reject-leaks-peer"
	defCancel200     = "cancel-answers-200"

	defTimeoutFrees  = "timeout-frees"
	defSilentIsDead  = "silent-peer-is-dead"
	defFirstFailure  = "first-failure-frees"
	defCountLost     = "outstanding-count-lost"
	defAckCleared    = "ack-duty-cleared"
	defSourceFreed   = "source-freed-under-read"
	defUnfailed      = "failed-not-sticky"
	defRejectByClock = "reject-known-by-timeout"
	defAdmitContext  = "admits-configured-context"
	defDoneTwice     = "completion-twice"
	defReadForgotten = "completion-lost-after-abort"
	defAbortIgnored  = "abort-after-finish-ignored"
	defQueuedForgets = "queued-cancel-forgets-peer"
	defOffloadEvicts = "offload-evicts-running"
	defOffloadFinish = "finish-ignores-offload"

	defStaleAck       = "stale-ack-accepted"
	defStaleChunk     = "queued-chunk-outlives-key"
	defStaleReference = "stale-reference-served"
	defForeignClock   = "deadline-across-clocks"
	defSweepStops     = "sweep-stops-at-renewed"
	defSharedKey      = "samples-share-key"
	defOneRank        = "one-rank-for-all"
	defAckOverwritten = "ack-target-overwritten"
	defSameIdentity   = "restarted-same-identity"
	defUncounted      = "reader-not-a-holder"
	defPreemptHands   = "preempted-handed-off"
)

// DefectByName finds a defect in the registry.
func DefectByName(name string) (Defect, bool) {
	for _, d := range Defects() {
		if d.Name == name {
			return d, true
		}
	}
	return Defect{}, false
}

// silentReject reports whether a rejection reaches the client and nobody else.
func silentReject(defect string) bool { return defect == defRejectLeaks || defect == defRejectByClock }
