package spec

import (
	"fmt"
	"slices"
)

// Verdict is the outcome of judging a rule, a trace or a run. Its order is the
// order of badness: a result takes the worst of its parts, with unexercised and
// not-judged rules left aside.
type Verdict int

// The verdicts. See DESIGN.md section 2.2.
const (
	// NotJudged: nothing was judged: a run that has no such rule or scenario. Every
	// rule of a judged trace has another verdict. Never counted as a pass.
	NotJudged Verdict = iota
	// Unexercised: the rule had nothing to judge. Never counted as a pass.
	Unexercised
	// Pass: a legal order exists, and evidence forced it.
	Pass
	// Inconclusive: events that the rule needs are missing.
	Inconclusive
	// Unproven: the run was fine, but nothing proves that the next one will be.
	Unproven
	// Fail: no legal order exists.
	Fail
	// Error: the harness or the trace is broken.
	Error
)

var verdictNames = [...]string{"not judged", "unexercised", "pass", "inconclusive", "unproven", "fail", "error"}

// Verdicts lists every verdict, from the least to the worst.
func Verdicts() []Verdict {
	return []Verdict{NotJudged, Unexercised, Pass, Inconclusive, Unproven, Fail, Error}
}

func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdictNames) {
		return fmt.Sprintf("verdict(%d)", int(v))
	}
	return verdictNames[v]
}

// MarshalText writes the word.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads the word.
func (v *Verdict) UnmarshalText(b []byte) error {
	for i, name := range verdictNames {
		if name == string(b) {
			*v = Verdict(i)
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %q", b)
}

// ExitStatus is the exit status of a command whose result is v: 0 pass, 1 fail,
// 2 unproven or inconclusive, 3 bad input. A harness or an engine that failed is
// 4, which no verdict alone can say.
func (v Verdict) ExitStatus() int {
	switch v {
	case Pass:
		return 0
	case Fail:
		return 1
	case Error:
		return 3
	}
	return 2
}

// Worst is the worse of two verdicts.
func Worst(a, b Verdict) Verdict { return max(a, b) }

// Harm ranks what a finding means for the people whose requests were served.
type Harm string

// The harms, from the least to the most. See DESIGN.md section 2.2.
const (
	HarmNone          Harm = ""
	HarmUnprovenOrder Harm = "unproven order"
	HarmReclaimedOpen Harm = "reclaimed while open"
	HarmStaleAccess   Harm = "stale access"
	HarmWrongContent  Harm = "wrong content read"
	HarmWrongAnswer   Harm = "wrong answer served"
)

// Rank orders harms, from 0 for none to the most; -1 is no harm of this list.
func (h Harm) Rank() int {
	return slices.Index([]Harm{
		HarmNone, HarmUnprovenOrder, HarmReclaimedOpen, HarmStaleAccess, HarmWrongContent, HarmWrongAnswer,
	}, h)
}

// Level is the level of evidence that a trace reaches or a rule needs.
type Level int

// The levels. See DESIGN.md section 7.
const (
	L0 Level = iota // the client: HTTP, output
	L1              // the wire: proxies
	L2              // the probe: in-process events
	L3              // content: digests of the bytes
)

func (l Level) String() string { return fmt.Sprintf("L%d", int(l)) }

// MarshalText writes L0 to L3.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads L0 to L3.
func (l *Level) UnmarshalText(b []byte) error {
	if len(b) == 2 && b[0] == 'L' && '0' <= b[1] && b[1] <= '3' {
		*l = Level(b[1] - '0')
		return nil
	}
	return fmt.Errorf("unknown level %q", b)
}
