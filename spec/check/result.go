package check

import "conform/spec"

// Result is what judging one trace gives. Its JSON form is that of DESIGN.md
// section 8.
type Result struct {
	Verdict spec.Verdict   `json:"verdict"`
	Rules   []RuleResult   `json:"rules"`
	Signals []SignalResult `json:"signals"`
	Stats   Stats          `json:"stats"`
	// Settled says how rejected, cancelled and expired requests gave back what they
	// held (REQ-2), at most 100 rows; empty where there was nothing.
	Settled []SettledResult `json:"settled,omitempty"`
	// Clocks says how far the trace's clocks may be apart; empty for one clock.
	Clocks []ClockResult `json:"clocks,omitempty"`
	// Notes are lines for a person about what limits the verdict: where a source
	// ends, what was not recorded.
	Notes []string `json:"notes,omitempty"`
}

// RuleResult is the verdict of one rule. All sixteen are listed, in the order of
// the registry.
type RuleResult struct {
	ID      spec.RuleID  `json:"id"`
	Verdict spec.Verdict `json:"verdict"`
	Level   spec.Level   `json:"level"`
	// Judged counts what the rule was applied to: leases, accesses, signals, …
	Judged int `json:"judged"`
	// Found counts the findings; Findings lists the first of them only.
	Found    int       `json:"found"`
	Findings []Finding `json:"findings"`
}

// Finding is one thing that went wrong, or that nothing proves.
type Finding struct {
	Rule    spec.RuleID    `json:"rule"`
	Verdict spec.Verdict   `json:"verdict"`
	Harm    spec.Harm      `json:"harm,omitempty"`
	Block   *spec.BlockID  `json:"block,omitempty"`
	Handoff string         `json:"handoff,omitempty"`
	Req     string         `json:"req,omitempty"`
	Events  []spec.EventID `json:"events"`
	// Text tells it in words: what happened, which events prove it, what
	// evidence was missing.
	Text string `json:"text"`
	// ID is the finding's fingerprint; see [Sign]. Empty until it was given.
	ID string `json:"fingerprint,omitempty"`

	about *subject // what Porcupine refuses; of BLK-1 to BLK-4, while judging
}

// SignalResult says what one kind of signal was declared to prove, and the
// strongest predicate that held at every emission.
type SignalResult struct {
	Signal   string         `json:"signal"`
	Claims   spec.Predicate `json:"claims"`
	Inferred spec.Predicate `json:"inferred"`
	Seen     int            `json:"seen"`
	// Refuted are the counterexamples to what is stronger, at most one to stopped
	// and one to completed, in this order. Of drained, which is both, either is one.
	Refuted []Refutation `json:"refuted,omitempty"`
}

// Refutation shows that a predicate did not hold at an emission in every legal
// order: an access that the emitter may have begun after it (against stopped), or
// that may have been open at it (against completed).
type Refutation struct {
	Claim spec.Predicate `json:"claim"`
	// Trace is the trace of the events, of several that were judged together.
	Trace string `json:"trace,omitempty"`
	// Events are the emission, and the begin of the access.
	Events []spec.EventID `json:"events"`
}

// ClockResult says what a clock may have read minus what another read at the same
// instant, in ns: every offset in the range fits the trace's program order, pool
// order, signals and comparisons, and none outside does. Of clocks that may drift
// it is the range over the whole trace.
type ClockResult struct {
	Clock string `json:"clock"`
	Minus string `json:"minus"`
	// Lo and Hi are null where nothing bounds the offset.
	Lo *int64 `json:"lo"`
	Hi *int64 `json:"hi"`
}

// Stats says how much was judged.
type Stats struct {
	Events   int `json:"events"`
	Sources  int `json:"sources"`
	Workers  int `json:"workers"`
	Blocks   int `json:"blocks"` // that were leased at least once
	Leases   int `json:"leases"`
	Reused   int `json:"reused"` // leases of a block that had been leased before
	Accesses int `json:"accesses"`
	Handoffs int `json:"handoffs"`
	Requests int `json:"requests"`
	Signals  int `json:"signals"`
	Faults   int `json:"faults"`
	// Histories counts the histories of blocks that Porcupine judged, Refused
	// those for which it found no linearization, and Undecided those for which it
	// ran out of time.
	Histories int `json:"histories"`
	Refused   int `json:"refused"`
	Undecided int `json:"undecided"`
}
