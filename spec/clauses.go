package spec

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed clauses/*.jsonl
var clauseTraces embed.FS

// Clause is one clause of how a rule is judged (TRACE.md, "Judging"), as a minimal
// trace and the verdict that the rule must get on it. Most clauses have a trace on
// either side.
type Clause struct {
	Rule RuleID
	// Name says in a few words what the trace shows, unique in its rule.
	Name string
	// Want is the rule's verdict.
	Want Verdict
	// Trace is the trace, as JSON Lines.
	Trace []byte
}

// ID names the clause as its file is named.
func (c Clause) ID() string { return fmt.Sprintf("%s.%s.%s", c.Rule, c.Name, c.Want) }

// Clauses lists the clause traces of all rules, by rule and name. The files are
// spec/clauses/RULE.NAME.VERDICT.jsonl.
func Clauses() ([]Clause, error) {
	files, err := fs.Glob(clauseTraces, "clauses/*.jsonl")
	if err != nil {
		return nil, err
	}
	out := make([]Clause, 0, len(files))
	for _, file := range files {
		parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(file, "clauses/"), ".jsonl"), ".")
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s: a clause's file is named RULE.NAME.VERDICT.jsonl", file)
		}
		c := Clause{Rule: RuleID(parts[0]), Name: parts[1]}
		if err := c.Want.UnmarshalText([]byte(parts[2])); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if c.Trace, err = clauseTraces.ReadFile(file); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
