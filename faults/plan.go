package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits on a plan, so that a file from elsewhere cannot take the harness down.
const (
	maxPlanBytes = 1 << 20
	maxRules     = 256
	maxName      = 64
	maxWait      = 10 * time.Minute
	maxCopies    = 16
	defaultLimit = 2 * time.Second // of a hold that names none
)

// Plan is a parsed plan of faults. It is not changed after [ParsePlan].
type Plan struct {
	Name  string // the file's
	Rules []Rule
}

// Rule is one rule of a plan: when it acts, and what it does.
type Rule struct {
	Name string
	Line int // where it stands in the plan, from 1
	When Match
	Do   string // one of the names of [Registry]

	Nth         int     // acts on the nth match (from 1); 0: on all
	Every       int     // and on each so many-th after it; 0: not again
	Probability float64 // that a match acts, in (0, 1]; drawn from the seed
	Count       int     // acts so often at most; 0: without end
	After       *Match  // acts only once this has been seen

	For, ForMax  time.Duration // how long; ForMax above For for a jitter, drawn evenly
	Until        *Match        // hold, duplicate: what releases it
	Behind       *Match        // reorder: what goes first; nil: the next match of When
	Limit        time.Duration // hold, duplicate with Until, reorder: released then in any case
	Copies       int           // duplicate
	Ordered      bool          // what comes later on the connection waits too
	Worker       string        // pause, kill, restart: whose processes; abort: the stage that is asked
	RestartAfter time.Duration // kill: started again after this, if WillRestart; restart: waits so long first
	WillRestart  bool
	Between      [2]string // partition
}

// Match says what points a rule is about. An empty field matches anything.
type Match struct {
	Kind string // of the [Point]
	// Name is compared with the point's: exactly, or by what precedes a "*" at
	// its end. A signal's name also matches by what precedes its "/".
	Name string

	From, To string // a role, or a worker's id, or the beginning of one

	Pool, Sig, Access, Handoff, Req, Signal, Why, Mode string
	N                                                  *int64

	// Nth counts matches (Until, Behind, After); 0 and 1 are the first.
	Nth int
	// Same is "handoff", "req" or "block": the match must agree in it with what
	// is held (Until), or with what asks later (After).
	Same string
}

// PlanError says what is wrong with a plan, and where. Lines and columns count from 1.
type PlanError struct {
	File         string
	Line, Column int
	Found        string
	Expected     string
}

func (e *PlanError) Error() string {
	return fmt.Sprintf("%s:%d:%d: found %s, expected %s", e.File, e.Line, e.Column, e.Found, e.Expected)
}

// matches lists every condition of the rule that looks at points.
func (r *Rule) matches() []*Match {
	return slices.DeleteFunc([]*Match{&r.When, r.After, r.Until, r.Behind}, func(m *Match) bool { return m == nil })
}

// workers lists the names of workers and roles that the rule uses.
func (r *Rule) workers() []string {
	names := []string{r.Worker, r.Between[0], r.Between[1]}
	for _, m := range r.matches() {
		names = append(names, m.From, m.To)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// Known checks that each worker that the plan names is one of a stack, whose workers'
// ids are known: a role, an id, or an id with an incarnation or a rank behind it. The
// error is a *[PlanError]: such a rule could never act.
func (p *Plan) Known(known []string) error {
	m := newMatcher()
	for i := range p.Rules {
		for _, name := range p.Rules[i].workers() {
			if slices.ContainsFunc(known, func(k string) bool { return m.isWorker(name, k) || m.isWorker(k, name) }) {
				continue
			}
			return &PlanError{
				File: p.Name, Line: p.Rules[i].Line, Column: 1,
				Found:    fmt.Sprintf("the worker %q in the rule %s", name, p.Rules[i].Name),
				Expected: "one of prefill, decode, " + strings.Join(known, ", "),
			}
		}
	}
	return nil
}

// Wants reports whether a rule of the plan can have use for points of this kind.
func (p *Plan) Wants(kind string) bool {
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Do == DoPartition && kind != KindEvent {
			return true
		}
		for _, m := range r.matches() {
			if m.Kind == kind {
				return true
			}
		}
	}
	return false
}

// Events lists the kinds of recorded events that a rule looks at, without
// doubles. A source event is wanted besides, as it says which role a worker has.
func (p *Plan) Events() []string {
	var ks []string
	for i := range p.Rules {
		for _, m := range p.Rules[i].matches() {
			if m.Kind == KindEvent {
				ks = append(ks, m.Name)
			}
		}
	}
	slices.Sort(ks)
	return slices.Compact(ks)
}

// Interest is a part of a [Match] that a worker can check by itself, before it
// asks about an access. Empty fields match anything.
type Interest struct {
	Mode string `json:"mode,omitempty"` // "r", "w"
	Pool string `json:"pool,omitempty"`
}

// Wants reports whether an access with this mode and pool can be meant.
func (i Interest) Wants(mode, pool string) bool {
	return (i.Mode == "" || i.Mode == mode) && (i.Pool == "" || i.Pool == pool)
}

// Interests says which accesses any rule of the plan can match. Without an
// access rule it is empty, and a worker need not ask at all.
func (p *Plan) Interests() []Interest {
	var is []Interest
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Do == DoPartition {
			return []Interest{{}}
		}
		for _, m := range r.matches() {
			if m.Kind != KindAccess {
				continue
			}
			in := Interest{Pool: m.Pool}
			if m.Name == "r" || m.Name == "w" {
				in.Mode = m.Name
			}
			if !slices.Contains(is, in) {
				is = append(is, in)
			}
		}
	}
	return is
}
