package certify

import (
	"fmt"
	"io"
	"strings"
	"time"

	"conform/spec"
)

// Report says what a certificate claims, and what it does not.
type Report struct {
	Subject    Subject     `json:"subject"`
	Build      string      `json:"build_sha256"`
	Profile    string      `json:"profile"`
	Title      string      `json:"title"`
	Quarter    Quarter     `json:"quarter"`
	Issued     time.Time   `json:"issued"`
	Expires    time.Time   `json:"expires"`
	Signers    []Signer    `json:"signers"`
	Attempts   int         `json:"attempts"`
	Required   int         `json:"required"`
	NoResult   int         `json:"no_result"` // attempts that were aborted or came to no verdict
	Planted    int         `json:"planted"`   // defects that were to be found, and were
	Events     int         `json:"events"`
	Faults     int         `json:"faults"` // that fired in the required attempts
	Rules      []RuleClaim `json:"rules"`
	Unjudged   []string    `json:"unjudged"` // rules of the specification that it says nothing of
	Scenarios  []string    `json:"scenarios"`
	NotClaimed []string    `json:"not_claimed"`
}

// Signer is one whose signature holds. Name is "" where its key is not trusted.
type Signer struct {
	Name  string `json:"name,omitempty"`
	KeyID string `json:"key"`

	trusted *TrustedKey
}

func (r *record) report() *Report {
	p := r.predicate()
	rep := &Report{
		Subject: r.subject, Build: r.subject.Build.digest(), Profile: r.profile.Name, Title: r.profile.Title, Quarter: r.quarter,
		Issued: r.issued, Expires: r.expires, Attempts: len(r.journal), Required: len(r.required), Planted: len(r.profile.Planted),
		Rules: p.Rules, NotClaimed: notClaimed(),
	}
	for _, a := range r.journal {
		if a.Defect == "" && (a.Outcome != Finished || a.Verdict != spec.Pass) {
			rep.NoResult++
		}
		rep.Events += r.results[a.N-1].Stats.Events
	}
	for _, i := range r.required {
		for _, f := range r.results[i].Faults {
			rep.Faults += f.Fired
		}
	}
	for _, s := range r.profile.Scenarios {
		rep.Scenarios = append(rep.Scenarios, s.ID+" ("+strings.Join(s.Modes, ", ")+")")
	}
	judged := map[spec.RuleID]bool{}
	for _, rule := range p.Rules {
		judged[rule.ID] = true
	}
	for _, rule := range spec.Rules() {
		if !judged[rule.ID] {
			rep.Unjudged = append(rep.Unjudged, string(rule.ID))
		}
	}
	return rep
}

// notClaimed are the limits of every certificate.
func notClaimed() []string {
	return []string{
		"that the traces were recorded on the stack that they name: they were made by the signers, and the signatures say only who answers for them",
		"that no further attempt was made in a folder that was never handed in",
		"anything about another build, launch argument, environment, topology, transport, hardware or limit than those above",
		"anything about a scenario, a fault or an order of events that did not occur in these attempts",
		"anything below the level of evidence of each rule: L0 what the client saw, L1 what passed the proxies, L2 what the engine's probe recorded, L3 the content of the blocks",
	}
}

// Text writes the report for a person.
func (rep *Report) Text(w io.Writer) error {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("profile", "%s: %s", rep.Profile, rep.Title)
	row("subject", "%s (build %.12s)", rep.Subject.Build.Engine, rep.Build)
	if s := strings.Join(rep.Subject.Build.Args, " "); s != "" {
		row("arguments", "%s", s)
	}
	if s := strings.Join(rep.Subject.Build.Env, " "); s != "" {
		row("environment", "%s", s)
	}
	row("topology", "%s", strings.Join(rep.Subject.Topologies, "; "))
	for _, c := range rep.Subject.Limits {
		row("limit", "%s: can process %d %s (configured %d; %s)", c.Stage, c.Processable, c.Unit, c.Configured, c.Why)
	}
	if h := rep.Subject.Hardware; h != nil {
		row("hardware", "%s, %d cores, %s, %s", h.CPU, h.Cores, h.OS, strings.Join(append([]string{"accelerators:"}, or(h.Accelerators, "none")...), " "))
	}
	for _, s := range rep.Signers {
		name := s.Name
		if name == "" {
			name = "a key that is not trusted"
		}
		row("signed by", "%s (%.12s)", name, s.KeyID)
	}
	row("valid", "from %s until %s", rep.Issued.Format(time.DateOnly), rep.Expires.Format(time.DateOnly))
	row("seeds", "%d, derived from the value of %s and the build", len(rep.Quarter.Seeds), rep.Quarter.Name)

	fmt.Fprintf(&b, "\nIt claims that\n")
	fmt.Fprintf(&b, "  - in %d attempts, %s, this build kept these rules:\n", rep.Required, strings.Join(rep.Scenarios, ", "))
	for _, rule := range rep.Rules {
		fmt.Fprintf(&b, "      %-6s by evidence of level %s, applied %d times\n", rule.ID, rule.Level, rule.Judged)
	}
	fmt.Fprintf(&b, "  - %d faults fired in them, and each rule of each fault plan at least once\n", rep.Faults)
	fmt.Fprintf(&b, "  - of %d attempts in all none broke a rule or passed by luck only, planted defects aside; %d came to no result\n", rep.Attempts, rep.NoResult)
	fmt.Fprintf(&b, "  - %d planted defects were found, so recorder and judge were alive\n", rep.Planted)
	fmt.Fprintf(&b, "\nIt does not claim\n")
	if len(rep.Unjudged) > 0 {
		fmt.Fprintf(&b, "  - anything about %s\n", strings.Join(rep.Unjudged, ", "))
	}
	for _, s := range rep.NotClaimed {
		fmt.Fprintf(&b, "  - %s\n", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func or(list []string, none string) []string {
	if len(list) == 0 {
		return []string{none}
	}
	return list
}
