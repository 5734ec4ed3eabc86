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
	Mode      string
	// Issues are public reports of the class.
	Issues []string
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
)

// Defects is the registry.
func Defects() []Defect {
	return []Defect{
		{
			defFreeAtCancel, "Blocks are freed at cancel while the write is in flight",
			"A decode block has two owners, the request and the remote writer; a cancellation ends only the first lifetime, and the block goes back to the free list under the writer.",
			"The next request's KV is overwritten: it answers from another user's prompt.",
			[]spec.RuleID{spec.BLK2, spec.SIG2},
			[]string{"cancel-during-transfer", "client-disconnect"},
			"push",
			[]string{"sglang#24527", "sglang#24578", "sglang#35049"},
		},
		{
			defAckReceived, "The acknowledgement of a cancel means received, not drained",
			"Prefill answers an abort when it has taken it in; decode takes the answer for the end of the last write.",
			"Blocks are reused under a running write, as if there were no acknowledgement at all.",
			[]spec.RuleID{spec.SIG1, spec.BLK2},
			[]string{"cancel-during-transfer"},
			"push",
			[]string{"sglang#27372", "sglang#36707"},
		},
		{
			defRejectHanded, "A rejected request is still handed over",
			"Prefill drops the prompt that it can't process, yet passes a stub of it into the handoff and reports Success: the rejection is terminal on one path only.",
			"The client is told 200 and gets tokens computed from KV that is not its prompt's.",
			[]spec.RuleID{spec.REQ1, spec.REQ4},
			[]string{"reject-prefill-capacity"},
			"push",
			[]string{"sglang#30233", "sglang#34208", "sglang#38935"},
		},
		{
			defLeaseReuse, "A lease expires and the blocks are reused while the read runs",
			"Prefill takes its clock for proof that the reader has finished and gives the source blocks to the next prompt.",
			"Decode reads the next prompt's KV and answers from it.",
			[]spec.RuleID{spec.BLK2, spec.SIG2},
			[]string{"lease-expiry"},
			"pull",
			[]string{"vllm#21570"},
		},
		{
			defSlotReuse, "A metadata slot is reused by a late writer",
			"After an abort the transfer thread still writes the metadata slot, which was not counted among what must drain; decode has given the slot to the next request.",
			"The next request gets another one's first token, or fails its check.",
			[]spec.RuleID{spec.BLK3, spec.SIG1, spec.REQ3},
			[]string{"cancel-during-transfer"},
			"push",
			[]string{"sglang#17259", "sglang#22716"},
		},
		{
			defDoubleRelease, "Both the expiry and the late acknowledgement release",
			"Two paths both believe that they own the release: the clock's, and the one of the word that arrives after it.",
			"The block is in the free list twice and goes to two requests.",
			[]spec.RuleID{spec.BLK4, spec.BLK1},
			[]string{"ack-delayed"},
			"",
			[]string{"sglang#30937"},
		},
		{
			defRejectLeaks, "A request rejected before admission leaks the peer's blocks",
			"The stage that refuses tells the client but not the stage that has already reserved for it, whose duty to release rests on a word that never comes. In pull mode it is decode that refuses (reject-decode-capacity) and prefill that leaks.",
			"Capacity is lost with each refused request, until a restart.",
			[]spec.RuleID{spec.REQ2, spec.BLK5},
			[]string{"reject-prefill-capacity"},
			"push",
			[]string{"vllm#41269", "sglang#28651"},
		},
		{
			defCancel200, "HTTP 200 for a cancelled request",
			"The path that ends a request early reports the outcome of the path that ends it in full.",
			"The client takes a fragment for the answer.",
			[]spec.RuleID{spec.REQ4},
			[]string{"cancel-during-transfer"},
			"",
			[]string{"sglang#33507"},
		},
	}
}

// DefectByName finds a defect in the registry.
func DefectByName(name string) (Defect, bool) {
	for _, d := range Defects() {
		if d.Name == name {
			return d, true
		}
	}
	return Defect{}, false
}
