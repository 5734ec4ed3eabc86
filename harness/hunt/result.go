package hunt

import (
	"time"

	"conform/spec"
)

// Answer is what became of a prediction.
type Answer string

// The answers.
const (
	// Confirmed: the bad order was forced, and its trace fails.
	Confirmed Answer = "confirmed"
	// Refuted: the stack orders the two whatever is done; Ordered says by what.
	Refuted Answer = "refuted"
	// NotForced: the bad order was not seen, and nothing shows that it can't be; Why
	// says what stood in the way.
	NotForced Answer = "not forced"
)

// Hunted is one prediction with its answer.
type Hunted struct {
	Prediction
	Answer Answer `json:"answer"`
	// Why says in words how the answer was come to.
	Why string `json:"why"`
	// Harm is how far the harm could be driven, and Rules are those that fail, where it
	// was confirmed; Rules also where a forced run failed about something else.
	Harm  spec.Harm     `json:"harm,omitempty"`
	Rules []spec.RuleID `json:"rules,omitempty"`
	// Ordered counts what ordered the held accesses before the end of their leases.
	Ordered map[string]int `json:"ordered,omitempty"`
	// Trace is that of the forced run, Plan the file with its fault plan, Seed its seed,
	// and Again the arguments of conform that show it again.
	Trace    string   `json:"trace,omitempty"`
	Plan     string   `json:"plan,omitempty"`
	Seed     uint64   `json:"seed,omitempty"`
	Again    []string `json:"again,omitempty"`
	Attempts int      `json:"attempts"`
	// Seconds is from the start of the hunt until this answer.
	Seconds float64 `json:"seconds"`

	unasked bool // no access of the class asked before it was carried out: no plan can hold one
}

// Clean is a run that predictions were made from.
type Clean struct {
	Mode    string       `json:"mode"`
	Trace   string       `json:"trace"`
	Verdict spec.Verdict `json:"verdict"`
	Pairs   int          `json:"pairs"` // accesses that met the end of a lease
}

// Result is what a hunt found.
type Result struct {
	Verdict     spec.Verdict `json:"verdict"`
	Adapter     string       `json:"adapter"`
	Engine      string       `json:"engine,omitempty"`
	Defect      string       `json:"defect,omitempty"`
	Dir         string       `json:"dir"`
	Clean       []Clean      `json:"clean"`
	Hunted      []Hunted     `json:"predictions"`
	Notes       []string     `json:"notes,omitempty"`
	Seconds     float64      `json:"seconds"`
	Interrupted bool         `json:"interrupted,omitempty"`
}

// conclude sums the answers up: fail if one was confirmed, pass if each was refuted,
// else unproven; a hunt that predicted nothing, or was cut short, is inconclusive.
func (r *Result) conclude(since time.Time) {
	r.Seconds = time.Since(since).Seconds()
	r.Verdict = spec.Pass
	for i := range r.Hunted {
		switch h := &r.Hunted[i]; {
		case h.Answer == Confirmed, len(h.Rules) > 0: // or it failed, if not as predicted
			r.Verdict = spec.Worst(r.Verdict, spec.Fail)
		case h.Answer == NotForced:
			r.Verdict = spec.Worst(r.Verdict, spec.Unproven)
		}
	}
	if len(r.Hunted) == 0 || r.Interrupted {
		r.Verdict = spec.Worst(r.Verdict, spec.Inconclusive)
	}
}

// Count says how many predictions got an answer.
func (r *Result) Count(a Answer) int {
	n := 0
	for i := range r.Hunted {
		if r.Hunted[i].Answer == a {
			n++
		}
	}
	return n
}

// Worst is the confirmed prediction with the most harm, the first of equals; nil if
// none was confirmed.
func (r *Result) Worst() *Hunted {
	var worst *Hunted
	for i := range r.Hunted {
		h := &r.Hunted[i]
		if h.Answer == Confirmed && (worst == nil || h.Harm.Rank() > worst.Harm.Rank()) {
			worst = h
		}
	}
	return worst
}
