package harness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// tape is a trace under construction: one event each millisecond.
type tape struct{ events []spec.Event }

func newTape(workers ...string) *tape {
	t := &tape{}
	for _, w := range workers {
		role := spec.RolePrefill
		switch w[0] {
		case 'r':
			role = spec.RoleRouter
		case 'd':
			role = spec.RoleDecode
		case 'c':
			role = spec.RoleClient
		}
		t.add(w, spec.Event{K: spec.KindSource, Worker: w, Role: role})
	}
	return t
}

func (t *tape) add(src string, e spec.Event) *tape {
	e.Src, e.T = src, int64(len(t.events)+1)*int64(time.Millisecond)
	t.events = append(t.events, e)
	return t
}

func (t *tape) recorded() *recorded { return newRecorded(&spec.Trace{Events: t.events}) }

// without gives the tape without its nth event from the end.
func (t *tape) without(n int) *tape {
	at := len(t.events) - n
	return &tape{append(append([]spec.Event{}, t.events[:at]...), t.events[at+1:]...)}
}

var kvBlock, auxSlot = spec.MakeBlocks(3), spec.MakeBlocks(1)

// write adds the beginning of a transfer to decode.
func (t *tape) write(access, handoff, req, pool string) *tape {
	return t.add("p0", spec.Event{
		K: spec.KindBegin, Access: access, Mode: "w", Target: "d0", Pool: pool, Blocks: auxSlot, Via: "transfer", Handoff: handoff, Req: req,
	})
}

func (t *tape) end(access string) *tape {
	return t.add("p0", spec.Event{K: spec.KindEnd, Access: access})
}

// Each branch is recognized where it was reached, and not where one of the events
// that make it is missing. The number counts those from the end of the tape.
func TestBranchesNeedEachOfTheirEvents(t *testing.T) {
	ack := spec.Event{K: spec.KindObserve, Signal: "ABORT_ACK/4", Handoff: "k", Sig: "a"}
	cancel := func(src, req, why string) func(*tape) *tape {
		return func(tp *tape) *tape { return tp.add(src, spec.Event{K: spec.KindCancel, Req: req, Why: why}) }
	}
	for name, c := range map[string]struct {
		reached func(*recorded) bool
		tape    *tape
		needs   []int
	}{
		"ackAfterEnd": {afterEnd(ofFamily("ABORT_ACK")), newTape("d0").
			add("d0", spec.Event{K: spec.KindFree, Pool: "kv", Handoff: "k"}).add("d0", ack), []int{1, 2}},
		"staleAck": {staleAck, newTape("p0", "d0").
			add("d0", spec.Event{K: spec.KindEmit, Signal: "ABORT", Handoff: "k"}).
			add("p0", spec.Event{K: spec.KindEmit, Signal: "ABORT_ACK/4", Handoff: "k"}).add("d0", ack).
			add("d0", spec.Event{K: spec.KindEmit, Signal: "ABORT", Handoff: "k#1"}).
			add("d0", spec.Event{K: spec.KindObserve, Signal: "ABORT_ACK/4", Handoff: "k#1"}), []int{1, 2, 3, 5}},
		"leftStream": {leftStream, cancel("d0", "r", "")(newTape("d0").
			add("d0", spec.Event{K: spec.KindOutput, Req: "r"})), []int{1, 2}},
		"admittedRejected": {ofRejected(spec.RoleDecode, spec.RolePrefill, spec.KindAdmit), newTape("p0", "d0").
			add("p0", spec.Event{K: spec.KindAdmit, Req: "r"}).add("d0", spec.Event{K: spec.KindReject, Req: "r"}), []int{1, 2}},
		"gaveUpDead": {gaveUpDead, newTape("p0", "d0", "c").write("w", "k", "r", "kv").
			add("c", spec.Event{K: spec.KindExit, Worker: "p0", SignalNo: 9}).
			add("d0", spec.Event{K: spec.KindFree, Pool: "kv", Req: "r"}), []int{1, 2, 3}},
		"servedMeanwhile": {servedMeanwhile, newTape("p0", "p1", "c").
			add("c", spec.Event{K: spec.KindExit, Worker: "p0", SignalNo: 9}).
			add("p1", spec.Event{K: spec.KindFinish, Result: spec.OutcomeLength}), []int{1, 2}},
		"openAtStage": {openAtStage(spec.RoleDecode, spec.KindCancel), cancel("d0", "r", "")(newTape("p0", "d0").write("w", "k", "r", "kv")), []int{1, 2}},
		"openAny": {openAny(isKind(spec.KindFree)), newTape("p0", "d0").write("w", "k", "r", "kv").
			add("d0", spec.Event{K: spec.KindFree, Req: "other"}), []int{1, 2}},
		"askedTwice": {askedTwice, cancel("c", "r", "a")(cancel("c", "r", "b")(cancel("c", "r", "a")(newTape("c")))), []int{1, 2, 3}},
		"keyUsedAgain": {keyUsedAgain, newTape("p0", "d0").write("w", "k", "r", "kv").
			add("d0", spec.Event{K: spec.KindEmit, Signal: "METADATA", Handoff: "k#1"}), []int{1, 2}},
		"cancelledQueued": {cancelledQueued, cancel("p0", "r", "")(newTape("p0").
			add("p0", spec.Event{K: spec.KindAlloc, Pool: "aux", Req: "r"})), []int{1, 2}},
		"endedAtDecode": {endedAtDecode, cancel("p0", "r", "")(newTape("p0", "d0").
			add("p0", spec.Event{K: spec.KindAlloc, Pool: "aux", Req: "r"})).add("d0", spec.Event{K: spec.KindFinish, Req: "r"}), []int{1, 2, 3}},
		"cancelledPreempted": {cancelledPreempted, cancel("d0", "r", "")(newTape("d0").
			add("d0", spec.Event{K: spec.KindFree, Pool: "kv", Req: "r", Why: "preempt"})), []int{1, 2}},
		"cancelledUnleased": {cancelledUnleased, newTape("d0").add("d0", spec.Event{K: spec.KindCancel, Req: "r"}), []int{1}},
		"cancelledBetween": {cancelledBetween, cancel("p0", "r", "")(newTape("p0").
			add("p0", spec.Event{K: spec.KindGrant, Req: "r"})), []int{1, 2}},
		"successAfterCancel": {successAfterCancel, newTape("d0").add("d0", spec.Event{K: spec.KindCancel, Req: "r"}).
			add("d0", spec.Event{K: spec.KindObserve, Req: "r", Signal: "STATUS/Success"}), []int{1, 2}},
		"askedByBoth": {askedByBoth, newTape("d0", "d1").add("d0", spec.Event{K: spec.KindEmit, Signal: "ABORT", Handoff: "k"}).
			add("d1", spec.Event{K: spec.KindEmit, Signal: "ABORT", Handoff: "k"}), []int{1, 2}},
		"secondDecode":   {secondDecode, newTape("decode-0.1").add("decode-0.1", spec.Event{K: spec.KindFinish, Result: spec.OutcomeOK}), []int{1}},
		"offeredSeveral": {offeredSeveral, newTape("router").add("router", spec.Event{K: spec.KindOffer, Req: "r"}).add("router", spec.Event{K: spec.KindOffer, Req: "r"}), []int{1, 2}},
		"referenceLate": {referenceLate, newTape("p0", "d0").add("p0", spec.Event{K: spec.KindExpire, Handoff: "k"}).
			add("d0", spec.Event{K: spec.KindObserve, Signal: "KV_PARAMS", Handoff: "k"}), []int{1, 2}},
		"keyGrantedAgain": {keyGrantedAgain, newTape("p0").add("p0", spec.Event{K: spec.KindExpire, Handoff: "k"}).
			add("p0", spec.Event{K: spec.KindGrant, Handoff: "k#1"}), []int{1, 2}},
		"renewedLater": {renewedLater, newTape("p0").add("p0", spec.Event{K: spec.KindGrant, Handoff: "k"}).
			add("p0", spec.Event{K: spec.KindObserve, Signal: "HEARTBEAT", Handoff: "other"}), []int{1, 2}},
		"bothAccepted": {bothAccepted, newTape("d0", "d1").
			add("d0", spec.Event{K: spec.KindAccept}).add("d1", spec.Event{K: spec.KindAccept}), []int{1, 2}},
		"keyOfSeveral": {keyOfSeveral, newTape("p0").add("p0", spec.Event{K: spec.KindAdmit, Handoff: "k#1"}), []int{1}},
		"servedAtDecode": {servedAtDecode, newTape("d0").
			add("d0", spec.Event{K: spec.KindFinish, Result: spec.OutcomeOK}), []int{1}},
		"slotsWentRound": {slotsWentRound, newTape("p0", "d0").add("d0", spec.Event{K: spec.KindPool, Pool: "aux", Count: 3}).write("w", "k", "r", "aux").
			add("d0", spec.Event{K: spec.KindAlloc, Pool: "aux", Blocks: spec.MakeBlocks(0)}).
			add("d0", spec.Event{K: spec.KindAlloc, Pool: "aux", Blocks: spec.MakeBlocks(2)}), []int{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, c.reached(c.tape.recorded()))
			for _, n := range c.needs {
				require.False(t, c.reached(c.tape.without(n).recorded()), "without the event %d from the end", n)
			}
			require.False(t, c.reached(newTape().recorded()))
		})
	}
}

// What comes too late, or for somebody else, does not make a branch.
func TestBranchesNeedTheirOrder(t *testing.T) {
	cancelled := spec.Event{K: spec.KindCancel, Req: "r"}
	for name, c := range map[string]struct {
		reached func(*recorded) bool
		tape    *tape
	}{
		"a transfer that has ended": {
			openAtStage(spec.RoleDecode, spec.KindCancel),
			newTape("p0", "d0").write("w", "k", "r", "kv").end("w").add("d0", cancelled),
		},
		"any transfer that has ended": {openAny(isKind(spec.KindCancel)), newTape("p0", "d0").write("w", "k", "r", "kv").end("w").add("d0", cancelled)},
		"the other stage": {
			openAtStage(spec.RoleDecode, spec.KindCancel),
			newTape("p0", "d0").write("w", "k", "r", "kv").add("p0", cancelled),
		},
		"granted before it was cancelled": {cancelledUngranted, newTape("d0").add("d0", spec.Event{K: spec.KindGrant, Req: "r"}).add("d0", cancelled)},
		"begun before it was cancelled": {cancelledQueued, newTape("p0").
			add("p0", spec.Event{K: spec.KindAlloc, Pool: "aux", Req: "r"}).
			add("p0", spec.Event{K: spec.KindBegin, Via: "forward", Req: "r"}).add("p0", cancelled)},
		"blocks again before it was cancelled": {cancelledPreempted, newTape("d0").
			add("d0", spec.Event{K: spec.KindFree, Pool: "kv", Req: "r", Why: "preempt"}).
			add("d0", spec.Event{K: spec.KindAlloc, Pool: "kv", Req: "r", Blocks: kvBlock}).add("d0", cancelled)},
		"blocks before it was cancelled": {cancelledUnleased, newTape("d0").add("d0", spec.Event{K: spec.KindAlloc, Req: "r"}).add("d0", cancelled)},
		"decode has it": {cancelledBetween, newTape("p0", "d0").add("p0", spec.Event{K: spec.KindGrant, Req: "r"}).
			add("p0", cancelled).add("d0", spec.Event{K: spec.KindAdmit, Req: "r"})},
		"one rank asked twice": {askedByBoth, newTape("d0").add("d0", spec.Event{K: spec.KindEmit, Signal: "ABORT", Handoff: "k"}).
			add("d0", spec.Event{K: spec.KindEmit, Signal: "ABORT", Handoff: "k"})},
		"renewed itself": {renewedLater, newTape("p0").add("p0", spec.Event{K: spec.KindGrant, Handoff: "k"}).
			add("p0", spec.Event{K: spec.KindObserve, Signal: "HEARTBEAT", Handoff: "k"})},
		"the reference in time": {referenceLate, newTape("p0", "d0").add("d0", spec.Event{K: spec.KindObserve, Signal: "KV_PARAMS", Handoff: "k"}).
			add("p0", spec.Event{K: spec.KindExpire, Handoff: "k"})},
		"the key again after the transfer": {keyUsedAgain, newTape("p0", "d0").write("w", "k", "r", "kv").end("w").
			add("d0", spec.Event{K: spec.KindEmit, Signal: "METADATA", Handoff: "k#1"})},
		"slots after the transfer": {slotsWentRound, newTape("p0", "d0").add("d0", spec.Event{K: spec.KindPool, Pool: "aux", Count: 2}).
			write("w", "k", "r", "aux").end("w").add("d0", spec.Event{K: spec.KindAlloc, Pool: "aux", Blocks: spec.MakeBlocks(0)})},
		"the acknowledgement before the end": {afterEnd(ofFamily("ABORT_ACK")), newTape("d0").
			add("d0", spec.Event{K: spec.KindObserve, Signal: "ABORT_ACK/4", Handoff: "k"}).add("d0", spec.Event{K: spec.KindFree, Pool: "kv", Handoff: "k"})},
		"one stage asked three times": {askedTwice, newTape("c").add("c", cancelled).add("c", cancelled).add("c", cancelled)},
		"the dead worker's own finish": {servedMeanwhile, newTape("p0", "c").add("c", spec.Event{K: spec.KindExit, Worker: "p0", SignalNo: 9}).
			add("p0", spec.Event{K: spec.KindFinish, Result: spec.OutcomeLength})},
	} {
		t.Run(name, func(t *testing.T) { require.False(t, c.reached(c.tape.recorded())) })
	}
	require.True(t, cancelledUngranted(newTape("d0").add("d0", cancelled).recorded()))
	own := newTape("p0", "d0").add("d0", spec.Event{K: spec.KindPool, Pool: "aux", Count: 16}).write("w", "k", "r", "aux").
		add("d0", spec.Event{K: spec.KindAlloc, Pool: "aux", Blocks: auxSlot})
	require.True(t, slotsWentRound(own.recorded()), "the slot itself was given away")
}
