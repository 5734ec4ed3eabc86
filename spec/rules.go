package spec

import "embed"

// RuleID is the stable name of a rule.
type RuleID string

// The rules of DESIGN.md section 2.1.
const (
	BLK1 RuleID = "BLK-1"
	BLK2 RuleID = "BLK-2"
	BLK3 RuleID = "BLK-3"
	BLK4 RuleID = "BLK-4"
	BLK5 RuleID = "BLK-5"
	REQ1 RuleID = "REQ-1"
	REQ2 RuleID = "REQ-2"
	REQ3 RuleID = "REQ-3"
	REQ4 RuleID = "REQ-4"
	REQ5 RuleID = "REQ-5"
	SIG1 RuleID = "SIG-1"
	SIG2 RuleID = "SIG-2"
	SIG3 RuleID = "SIG-3"
	SIG4 RuleID = "SIG-4"
	DAT1 RuleID = "DAT-1"
	DAT2 RuleID = "DAT-2"
)

// Rule is one entry of the registry.
type Rule struct {
	ID   RuleID
	Name string // two words
	Must string // the one normative sentence
	Why  string // what goes wrong where it does not hold
	// Level is the least level of evidence at which the rule can be judged.
	Level Level
	// Harm is what breaking the rule means for those who are served, where the
	// rule alone tells.
	Harm Harm
}

//go:embed rules/*.jsonl
var ruleTraces embed.FS

// Bad is a minimal trace that breaks the rule, as JSON Lines.
func (r Rule) Bad() ([]byte, error) {
	return ruleTraces.ReadFile("rules/" + string(r.ID) + ".bad.jsonl")
}

// Good is a minimal trace that exercises the rule and keeps it.
func (r Rule) Good() ([]byte, error) {
	return ruleTraces.ReadFile("rules/" + string(r.ID) + ".good.jsonl")
}

// Rules is the registry, in the order in which results list them.
func Rules() []Rule {
	return []Rule{
		{
			BLK1, "exclusive", "A block is allocated only while it is free.",
			"Two leases of one block are two owners who each believe that nobody else writes there.",
			L2, HarmNone,
		},
		{
			BLK2, "quiescent reclaim", "A lease does not end while an access to it is open.",
			"A block in the free list with a transfer still running is handed to the next request, and the transfer lands in that one's memory.",
			L2, HarmReclaimedOpen,
		},
		{
			BLK3, "no stale access", "An access begins only under the lease that it was granted, never under a later one or none.",
			"A reference that outlived its lease names whatever the block holds now: another request's state.",
			L2, HarmStaleAccess,
		},
		{
			BLK4, "single release", "Each holder drops a lease exactly once; a lease is reclaimed exactly once.",
			"A second release of a lease takes the block from the owner that came after, or puts it into the free list twice.",
			L2, HarmNone,
		},
		{
			BLK5, "no leak", "When the run is idle, each block is free, cached, or held by a live request.",
			"A block that nobody will ever give back is capacity lost until the next restart.",
			L2, HarmNone,
		},
		{
			REQ1, "terminal rejection", "After a stage rejects a request, no stage accepts it, transfers for it, or emits output for it.",
			"An error response proves nothing about the other paths: a rejected request that still passes into the handoff computes from state that nobody made for it.",
			L2, HarmNone,
		},
		{
			REQ2, "settled end", "A rejected, cancelled or expired request gives back everything that it held, on every worker, by a signal and not only by a timeout.",
			"A timeout proves that time has passed, not that the peer has stopped; and what one stage forgets, the other holds for ever.",
			L2, HarmNone,
		},
		{
			REQ3, "stopped", "After a worker observes a cancellation it begins no new access for that request.",
			"A transfer that starts after its cancellation was taken in races with the release that the cancellation caused.",
			L2, HarmNone,
		},
		{
			REQ4, "one outcome", "A request has one terminal outcome, and the client's answer states it.",
			"A client that is told 200 for a request that was rejected, failed or cut short takes a fragment or garbage for the answer.",
			L0, HarmNone,
		},
		{
			REQ5, "capacity", "A stage admits only what it can process; the configured context limit is not capacity.",
			"What is admitted and can't be processed is dropped later, on a path that was not built to refuse it.",
			L2, HarmNone,
		},
		{
			SIG1, "honest acknowledgement", "When a signal is emitted, its declared predicate holds.",
			"Who waited for the word acts on it: an acknowledgement that says drained while a sibling transfer runs frees memory under that transfer.",
			L2, HarmNone,
		},
		{
			SIG2, "sufficient evidence", "A reclaim is ordered after the end of every access by signals whose predicates permit it.",
			"An order that only happened to come about comes about until the day of load, and then does not.",
			L2, HarmUnprovenOrder,
		},
		{
			SIG3, "no stale signal", "A late, duplicated or replayed signal changes nothing about a later lease or handoff.",
			"Keys are reused; a word about the earlier use of a key that is taken for the present one releases memory in use.",
			L1, HarmNone,
		},
		{
			SIG4, "answered", "Each cancellation that asks for an acknowledgement gets one, or its absence is reported by the stack.",
			"An obligation to answer that is lost with the request object leaves the peer to guess by the clock.",
			L1, HarmNone,
		},
		{
			DAT1, "content", "What a holder reads under a lease is what was written under that lease for that request.",
			"Computing from another request's state is silent: no error is raised anywhere.",
			L3, HarmWrongContent,
		},
		{
			DAT2, "output", "The client's tokens equal the reference tokens for its own prompt.",
			"This is the harm itself: a client was served tokens computed from wrong state.",
			L0, HarmWrongAnswer,
		},
	}
}

// RuleByID finds a rule in the registry.
func RuleByID(id RuleID) (Rule, bool) {
	for _, r := range Rules() {
		if r.ID == id {
			return r, true
		}
	}
	return Rule{}, false
}
