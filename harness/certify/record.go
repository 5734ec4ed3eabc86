package certify

import (
	"time"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// record is all that follows from the run directories, a profile and a quarter.
type record struct {
	profile  Profile
	quarter  Quarter
	subject  Subject
	journal  []Attempt
	results  []Result
	short    []string // what is missing for the profile
	failed   bool     // some of it is a failure of what was tested
	expires  time.Time
	issued   time.Time
	required []int // the attempts that the profile asks for, as indexes
	runs     []runFolder
}

// Quarter is the published value that seeds derive from.
type Quarter struct {
	Name  string   `json:"name"`
	Value string   `json:"value"`
	Seeds []uint64 `json:"seeds"` // that the profile asks for
}

// Subject is what was tested. It is the same in every attempt.
type Subject struct {
	Build    Build            `json:"build"`
	Hardware *traces.Hardware `json:"hardware,omitempty"`
	Probe    string           `json:"probe,omitempty"` // with its version
	// Topologies are those of the attempts, and Limits what each stage was configured
	// for and can process.
	Topologies []string           `json:"topologies"`
	Limits     []harness.Capacity `json:"limits"`
	Tool       string             `json:"tool"` // with its version
	SpecDigest string             `json:"spec_digest"`
}

// Build is the part of the subject that is known before any run; seeds derive from
// its digest.
type Build struct {
	Adapter  string   `json:"adapter"`
	Engine   string   `json:"engine"`             // with its version
	Packages string   `json:"packages,omitempty"` // the digest of the engine's packages
	Device   string   `json:"device,omitempty"`
	Model    string   `json:"model,omitempty"`
	Args     []string `json:"args,omitempty"` // of the launch, by allow-list
	Env      []string `json:"env,omitempty"`  // of the launch, by allow-list
}

// The outcomes of an attempt.
const (
	Finished = "finished"
	Aborted  = "aborted" // it began and did not end in good order
	Missing  = "missing" // it was to be made, and there is nothing of it
)

// Attempt is a line of the journal.
type Attempt struct {
	N        int          `json:"n"` // from 1
	Run      string       `json:"run"`
	Attempt  string       `json:"attempt"`
	Outcome  string       `json:"outcome"`
	Scenario string       `json:"scenario,omitempty"`
	Mode     string       `json:"mode,omitempty"`
	Seed     uint64       `json:"seed"`
	Defect   string       `json:"defect,omitempty"`
	Start    time.Time    `json:"start,omitzero"`
	End      time.Time    `json:"end,omitzero"`
	Verdict  spec.Verdict `json:"verdict"`
	Why      string       `json:"why,omitempty"`
	// Previous is the SHA-256 of the line before, "" of the first.
	Previous string `json:"previous"`

	plan string
}

// Result is what one attempt was judged to be.
type Result struct {
	N        int                  `json:"n"` // of the journal
	Verdict  spec.Verdict         `json:"verdict"`
	Rules    []RuleResult         `json:"rules"`
	Signals  []check.SignalResult `json:"signals"`
	Branches []harness.Branch     `json:"branches"`
	Faults   []harness.FaultCount `json:"faults"`
	Stats    check.Stats          `json:"stats"`
}

// RuleResult is a rule in one attempt.
type RuleResult struct {
	ID      spec.RuleID  `json:"id"`
	Verdict spec.Verdict `json:"verdict"`
	Level   spec.Level   `json:"level"`
	Judged  int          `json:"judged"`
	Found   int          `json:"found"`
}
