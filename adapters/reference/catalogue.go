package reference

import (
	"slices"

	"conform/spec"
)

// Defects is the registry, by the place of the cause.
func Defects() []Defect {
	return slices.Concat(memoryDefects(), wordDefects(), keyDefects(), clockDefects(), refusalDefects(), requestDefects())
}

// memoryDefects give memory to its next owner while the last may still touch it.
func memoryDefects() []Defect {
	return []Defect{
		{
			Name: defFreeAtCancel, Title: "Blocks are freed at cancel while the write is in flight",
			Cause:     "A decode block has two owners, the request and the remote writer; a cancellation ends only the first lifetime, and the block goes back to the free list under the writer.",
			Harm:      "The next request's KV is overwritten: it answers from another user's prompt.",
			Rules:     []spec.RuleID{spec.BLK2, spec.SIG2},
			Scenarios: []string{"cancel-during-transfer", "client-disconnect"}, Mode: Push,
			Issues: []string{"sglang#24527", "sglang#24578", "sglang#35049", "vllm#32255"},
		},
		{
			Name: defSlotReuse, Title: "A metadata slot is reused by a late writer",
			Cause:     "After an abort the transfer thread still writes the metadata slot, which was not counted among what must drain; decode has given the slot to the next request.",
			Harm:      "The next request gets another one's first token, or fails its check.",
			Rules:     []spec.RuleID{spec.BLK3, spec.SIG1, spec.REQ3},
			Scenarios: []string{"cancel-during-transfer"}, Mode: Push,
			Issues: []string{"sglang#17259", "sglang#22716"},
		},
		{
			Name: defFirstFailure, Title: "The first chunk that fails frees everything, while its siblings still write",
			Cause:     "Each chunk in flight owns its part of the destination. The failure of one ends the request, and the request's end is taken for that of all.",
			Harm:      "Decode gives the blocks away on prefill's word, and a sibling's write lands in the next request's KV.",
			Rules:     []spec.RuleID{spec.SIG1, spec.BLK2},
			Scenarios: []string{"chunk-fails"}, Mode: Push,
			Issues: []string{"vllm#56104", "sglang#35360", "sglang#38961"},
		},
		{
			Name: defSourceFreed, Title: "Prefill's source blocks are freed while they are still read",
			Cause:     "The transfer reads the source as it writes the destination. A cancellation gives the source back as if only the request had owned it.",
			Harm:      "The next prompt's KV is what the transfer carries: another user's state leaves the worker.",
			Rules:     []spec.RuleID{spec.BLK2},
			Scenarios: []string{"cancel-during-transfer"}, Mode: Push,
			Issues: []string{"sglang#32564", "sglang#38961", "vllm#45704"},
		},
		{
			Name: defUncounted, Title: "A reader of the prefix cache is not counted as a holder",
			Cause:     "A cached block has the cache for a holder, and each request that reads it. A request that begins with the block and is not counted leaves it with the cache alone, which may evict it.",
			Harm:      "The block goes to another prompt while the first is still computed, or passed on, from it.",
			Rules:     []spec.RuleID{spec.BLK3},
			Scenarios: []string{"prefix-shared"},
			Issues:    []string{"sglang#24063", "vllm#52360", "vllm#45704"},
		},
		{
			Name: defPreemptHands, Title: "A preempted request hands off the blocks that were taken from it",
			Cause:     "Preemption gives the blocks to another; the request's own list of them is not told, and is what the handoff goes by.",
			Harm:      "The next stage is handed another request's KV.",
			Rules:     []spec.RuleID{spec.BLK4, spec.BLK1, spec.DAT1},
			Scenarios: []string{"preempt-during-handoff"},
			Issues:    []string{"vllm#50297", "vllm#43281", "vllm#52360"},
		},
		{
			Name: defDoubleRelease, Title: "Both the expiry and the late acknowledgement release",
			Cause:     "Two paths both believe that they own the release: the clock's, and the one of the word that arrives after it.",
			Harm:      "The block is in the free list twice and goes to two requests.",
			Rules:     []spec.RuleID{spec.BLK4},
			Scenarios: []string{"ack-delayed"},
			Issues:    []string{"sglang#30937", "vllm#25067"},
		},
		{
			Name: defDoneTwice, Title: "A completion is reported twice",
			Cause:     "Two threads each see the last transfer end, and each reports the request complete: the one duty to release is carried out twice.",
			Harm:      "The block is in the free list twice, or the engine's own assertion ends it.",
			Rules:     []spec.RuleID{spec.BLK4, spec.BLK1, spec.DAT1},
			Scenarios: []string{"baseline"}, Mode: Push,
			Issues: []string{"vllm#53079", "vllm#53049", "vllm#51786"},
		},
	}
}

// wordDefects are in what a signal proves, and whom it is about.
func wordDefects() []Defect {
	return []Defect{
		{
			Name: defAckReceived, Title: "The acknowledgement of a cancel means received, not drained",
			Cause:     "Prefill answers an abort when it has taken it in; decode takes the answer for the end of the last write.",
			Harm:      "Blocks are reused under a running write, as if there were no acknowledgement at all.",
			Rules:     []spec.RuleID{spec.SIG1, spec.BLK2},
			Scenarios: []string{"cancel-during-transfer"}, Mode: Push,
			Issues: []string{"sglang#27372", "sglang#36707"},
		},
		{
			Name: defOneRank, Title: "The acknowledgement of one prefill rank is taken for all",
			Cause:     "Each rank of prefill writes its share of the blocks and owns it until it says so. Decode asks all and goes by the first answer.",
			Harm:      "The other ranks' writes land in the next request's KV.",
			Rules:     []spec.RuleID{spec.BLK2},
			Scenarios: []string{"two-ranks"}, Mode: Push,
			Issues: []string{"sglang#24580", "sglang#36781", "vllm#40449"},
		},
		{
			Name: defAckOverwritten, Title: "The target of an acknowledgement is overwritten by a second one",
			Cause:     "Two ranks of decode wait for the same writer, and each asks. Prefill keeps one address for a handoff: the second question takes the place of the first.",
			Harm:      "The first rank is never answered: its blocks are held until its clock runs out.",
			Rules:     []spec.RuleID{spec.SIG4, spec.REQ2},
			Scenarios: []string{"two-decode-ranks"}, Mode: Push, Clockless: true,
			Issues: []string{"sglang#38961"},
		},
		{
			Name: defCountLost, Title: "A transfer thread's error loses the outstanding count",
			Cause:     "The count of what is in flight is owned by the thread that ends it. A thread that dies of an error takes its part of the count along, and who waits for zero waits for ever.",
			Harm:      "The cancellation is never acknowledged; prefill's blocks are held until a restart, decode's until its clock.",
			Rules:     []spec.RuleID{spec.REQ2, spec.SIG4, spec.BLK5},
			Scenarios: []string{"chunk-fails"}, Mode: Push, Clockless: true,
			Issues: []string{"sglang#38961", "sglang#40645"},
		},
		{
			Name: defAckCleared, Title: "The duty to acknowledge is lost when the request object is cleared",
			Cause:     "Prefill owes its peer a word for as long as it may write there. The duty is kept in the request's object, which another path clears first.",
			Harm:      "The peer's question is never answered: its blocks are held until its clock runs out.",
			Rules:     []spec.RuleID{spec.SIG4, spec.REQ2},
			Scenarios: []string{"cancel-twice"}, Mode: Push, Clockless: true,
			Issues: []string{"sglang#40645", "sglang#38961"},
		},
		{
			Name: defUnfailed, Title: "A failed request is un-failed by a later status",
			Cause:     "The end of a request is a fact about its ownership and not its latest status. A word that was sent before the end brings the request back to life after it.",
			Harm:      "Memory whose owner has ended is read and written again; the client gets tokens after it was told that there are none.",
			Rules:     []spec.RuleID{spec.REQ3},
			Scenarios: []string{"status-late"}, Mode: Push,
			Issues: []string{"sglang#30352", "sglang#33507"},
		},
		{
			Name: defReadForgotten, Title: "A completion is never reported after an abort",
			Cause:     "The abort hands the blocks over to the read that is in flight, whose end nobody reports any more.",
			Harm:      "Decode's blocks, and the lease at prefill that it goes on to renew, are held until a restart.",
			Rules:     []spec.RuleID{spec.REQ2, spec.BLK5},
			Scenarios: []string{"cancel-during-transfer"}, Mode: Pull,
			Issues: []string{"vllm#46283", "vllm#58188"},
		},
	}
}

// keyDefects take a name for the use that it had before.
func keyDefects() []Defect {
	return []Defect{
		{
			Name: defStaleAck, Title: "A stale acknowledgement is accepted for a handoff key that is used again",
			Cause:     "A word names the key and not its use. The acknowledgement of an earlier request ends the wait of the present one, whose writer has not been asked.",
			Harm:      "The present request's blocks go to the next while its own transfer still writes them.",
			Rules:     []spec.RuleID{spec.SIG3, spec.BLK2, spec.SIG2},
			Scenarios: []string{"ack-stale"}, Mode: Push,
			Issues: []string{"sglang#40703", "sglang#37077", "vllm#10583"},
		},
		{
			Name: defStaleChunk, Title: "A retry uses the handoff key again, and a queued chunk of the first try lands in it",
			Cause:     "A chunk that waits in a queue is owned by the key, not by the request that posted it. When its turn comes, the key's state is that of the retry, and so is the destination.",
			Harm:      "KV of the request that was given up is written into the blocks of the one that took its key.",
			Rules:     []spec.RuleID{spec.BLK3, spec.REQ3},
			Scenarios: []string{"key-reuse"}, Mode: Push,
			Issues: []string{"sglang#40703", "vllm#10583", "vllm#27987"},
		},
		{
			Name: defStaleReference, Title: "A stale reference is served after its blocks were used again",
			Cause:     "The right to read is bound to a key without generation. The key's next use opens what the first one's end had closed, and the old reference reads the new lease.",
			Harm:      "A late reader is served the KV, and the answer, of whoever came after.",
			Rules:     []spec.RuleID{spec.SIG1, spec.DAT1, spec.DAT2},
			Scenarios: []string{"reference-stale"}, Mode: Pull,
			Issues: []string{"vllm#52234", "vllm#52232"},
		},
		{
			Name: defSharedKey, Title: "The samples of one request share one handoff key",
			Cause:     "A key has exactly one owner. With several answers to one prompt, each has blocks of its own and all have the one key: the table entry of the first is lost to the last.",
			Harm:      "One sample's word that it has read ends the lease of another, which reads on; or it hangs.",
			Rules:     []spec.RuleID{spec.SIG1},
			Scenarios: []string{"samples-share-key"}, Mode: Pull,
			Issues: []string{"sglang#34845", "sglang#10110", "sglang#26486", "vllm#49796"},
		},
		{
			Name: defSameIdentity, Title: "A worker is restarted under the same identity, and an old reference is honoured",
			Cause:     "The right to write was given by an incarnation that is gone. The one that came back at the same address takes it for its own.",
			Harm:      "A write of before the crash lands in the KV of a request that came after it.",
			Rules:     []spec.RuleID{spec.DAT2},
			Scenarios: []string{"decode-restarted"}, Mode: Push,
			Issues: []string{"vllm#49238"},
		},
	}
}

// clockDefects take time for proof.
func clockDefects() []Defect {
	return []Defect{
		{
			Name: defTimeoutFrees, Title: "Blocks are released at a timeout, without proof",
			Cause:     "Decode waits for the writer's word and, when none comes in time, takes the time for the word.",
			Harm:      "A transfer that is slower than the clock writes into the next request's KV.",
			Rules:     []spec.RuleID{spec.BLK2, spec.SIG2, spec.REQ2},
			Scenarios: []string{"hold-timeout", "ack-lost"}, Mode: Push,
			Issues: []string{"sglang#27372", "sglang#35049", "sglang#38961"},
		},
		{
			Name: defSilentIsDead, Title: "A peer that misses heartbeats is declared dead while its writes go on",
			Cause:     "A worker's silence says nothing of what it has posted. Its rights to the memory are taken for ended with its voice.",
			Harm:      "The peer comes back, or its fabric never stopped: its write lands in the next request's KV.",
			Rules:     []spec.RuleID{spec.BLK2, spec.SIG2},
			Scenarios: []string{"peer-silent"}, Mode: Push,
			Issues: []string{"sglang#9266", "sglang#38961"},
		},
		{
			Name: defForeignClock, Title: "A deadline is compared across clocks",
			Cause:     "Prefill ends the lease by its clock, and decode is to keep to the deadline by its own: a term in a clock that the holder does not share.",
			Harm:      "Decode begins to read when the blocks have long been another's, and answers from them.",
			Rules:     []spec.RuleID{spec.BLK3, spec.SIG2},
			Scenarios: []string{"reference-stale"}, Mode: Pull,
			Issues: []string{"vllm#50326", "vllm#47021"},
		},
		{
			Name: defSweepStops, Title: "The sweep over expired leases stops at the first one that was renewed",
			Cause:     "The leases stand in the order in which they were granted, and the sweep takes that for the order in which they end. One that is renewed keeps all behind it.",
			Harm:      "Blocks that nobody will read are held as long as one reader renews.",
			Rules:     []spec.RuleID{spec.BLK5},
			Scenarios: []string{"lease-renewed"}, Mode: Pull,
			Issues: []string{"vllm#50789", "vllm#58222"},
		},
		{
			Name: defLeaseReuse, Title: "A lease expires and the blocks are reused while the read runs",
			Cause:     "Prefill takes its clock for proof that the reader has finished and gives the source blocks to the next prompt.",
			Harm:      "Decode reads the next prompt's KV and answers from it.",
			Rules:     []spec.RuleID{spec.BLK2, spec.SIG2},
			Scenarios: []string{"lease-expiry"}, Mode: Pull,
			Issues: []string{"vllm#41383", "vllm#53095"},
		},
	}
}

// refusalDefects lose a rejection, or its truth, on the way between stages.
func refusalDefects() []Defect {
	return []Defect{
		{
			Name: defRejectHanded, Title: "A rejected request is still handed over",
			Cause:     "Prefill drops the prompt that it can't process, yet passes a stub of it into the handoff and reports Success: the rejection is terminal on one path only.",
			Harm:      "The client is told 200 and gets tokens computed from KV that is not its prompt's.",
			Rules:     []spec.RuleID{spec.REQ1, spec.REQ4},
			Scenarios: []string{"reject-prefill-capacity"}, Mode: Push,
			Issues: []string{"sglang#30233", "sglang#34208", "sglang#38935"},
		},
		{
			Name: defRejectLeaks, Title: "A request rejected before admission leaks the peer's blocks",
			Cause:     "The stage that refuses tells the client but not the stage that has already reserved for it, whose duty to release rests on a word that never comes. In pull mode it is decode that refuses (reject-decode-capacity) and prefill that leaks.",
			Harm:      "Capacity is lost with each refused request, until a restart.",
			Rules:     []spec.RuleID{spec.REQ2, spec.BLK5},
			Scenarios: []string{"reject-prefill-capacity"}, Mode: Push, Clockless: true,
			Issues: []string{"vllm#41269", "sglang#28651"},
		},
		{
			Name: defRejectByClock, Title: "A rejection is known to the other side by its own timeout alone",
			Cause:     "The stage that refuses sends no word. Decode finds out by its clock, and gives back what the clock says nobody will write.",
			Harm:      "Blocks are idle for as long as the clock runs, and go back without proof that no writer was let in.",
			Rules:     []spec.RuleID{spec.REQ2, spec.SIG2},
			Scenarios: []string{"reject-prefill-capacity"}, Mode: Push,
			Issues: []string{"sglang#36612", "sglang#38935", "vllm#35943"},
		},
		{
			Name: defAdmitContext, Title: "Admission goes by the configured context, not by what can be processed",
			Cause:     "A stage admits what its configuration promises to clients; what it can hold at once is another number, and nobody compares.",
			Harm:      "A prompt between the two is cut, or waits for ever, or is answered with 200 and garbage.",
			Rules:     []spec.RuleID{spec.REQ5},
			Scenarios: []string{"reject-prefill-capacity"},
			Issues:    []string{"sglang#35421", "sglang#30233"},
		},
	}
}

// requestDefects do the same to another end of a request.
func requestDefects() []Defect {
	return []Defect{
		{
			Name: defCancel200, Title: "HTTP 200 for a cancelled request",
			Cause:     "The path that ends a request early reports the outcome of the path that ends it in full.",
			Harm:      "The client takes a fragment for the answer.",
			Rules:     []spec.RuleID{spec.REQ4},
			Scenarios: []string{"cancel-during-transfer"},
			Issues:    []string{"sglang#33507"},
		},
		{
			Name: defAbortIgnored, Title: "An abort after the finish is ignored, and the blocks are held for ever",
			Cause:     "Prefill's request has finished and its blocks wait for a reader. The abort says that none will come; it is refused because the request is over, which its blocks are not.",
			Harm:      "Capacity is lost with each client that leaves between the stages.",
			Rules:     []spec.RuleID{spec.REQ2, spec.BLK5},
			Scenarios: []string{"cancel-between-stages"}, Mode: Pull, Clockless: true,
			Issues: []string{"vllm#25067", "vllm#50425", "vllm#29987"},
		},
		{
			Name: defQueuedForgets, Title: "The duty to release the peer's blocks is lost when a queued request is cancelled",
			Cause:     "Decode takes over the duty to tell prefill when it takes the request, and drops the request from its queue without it.",
			Harm:      "Prefill holds the blocks until a clock that runs for minutes.",
			Rules:     []spec.RuleID{spec.REQ2, spec.BLK5},
			Scenarios: []string{"cancel-while-queued"}, Mode: Pull, Clockless: true,
			Issues: []string{"vllm#19223", "vllm#20139"},
		},
		{
			Name: defOffloadEvicts, Title: "The prompt's blocks are freed once they have a copy on the host, though the request runs on",
			Cause:     "The copier takes its own end for the end of every use; the request that still reads the blocks in each of its steps is a holder that it does not know.",
			Harm:      "Another prompt's KV takes their place, and the answer goes on from it.",
			Rules:     []spec.RuleID{spec.BLK3},
			Scenarios: []string{"offload-finish"},
			Issues:    []string{"sglang#24063", "sglang#24226"},
		},
		{
			Name: defOffloadFinish, Title: "A request's end frees its blocks while they are still copied to the host",
			Cause:     "The blocks have two holders, the request and the copy of them to the host, which goes on after the request's last step; its end ends only the first lifetime.",
			Harm:      "The copy on the host holds another request's KV, and whoever continues the conversation from it gets that.",
			Rules:     []spec.RuleID{spec.BLK3},
			Scenarios: []string{"offload-finish"},
			Issues:    []string{"sglang#24226"},
		},
	}
}
