package hunt

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"conform/harness/report"
)

// Text writes a result for a person: the verdict, what was predicted from what, each
// answer, and how to see a confirmed one again. It shows of the answers that are not
// confirmed one line each.
func Text(w io.Writer, r *Result, o report.Options) error {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(report.Clean(fmt.Sprintf(format, args...)) + "\n") }
	line("%s  %s", strings.ToUpper(r.Verdict.String()), r.summary())
	stack := r.Adapter
	if r.Engine != "" {
		stack += " " + r.Engine
	}
	if r.Defect != "" {
		stack += " with defect " + r.Defect
	}
	line("  stack      %s", stack)
	for _, c := range r.Clean {
		line("  clean run  %s: %s, %d accesses met the end of a lease; %s", c.Mode, c.Verdict, c.Pairs, c.Trace)
	}
	for _, n := range r.Notes {
		line("  note       %s", n)
	}
	for _, a := range []Answer{Confirmed, NotForced, Refuted} {
		for i := range r.Hunted {
			if h := &r.Hunted[i]; h.Answer == a {
				h.text(line, o)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) summary() string {
	s := fmt.Sprintf("%d predictions: %d confirmed, %d refuted, %d not forced, in %.0f s", len(r.Hunted), r.Count(Confirmed), r.Count(Refuted), r.Count(NotForced), r.Seconds)
	if r.Interrupted {
		s += "; it was stopped"
	}
	return s
}

func (h *Hunted) text(line func(string, ...any), o report.Options) {
	line("  %-11s %s, %s: while it is held, %s", h.Answer, h.Mode, h.Class, endByName(h.End).Says)
	line("              the clean run: %s", h.Seen.words())
	if h.Answer != Confirmed {
		line("              %s", h.Why)
		return
	}
	rules := make([]string, len(h.Rules))
	for i, id := range h.Rules {
		rules[i] = string(id)
	}
	line("              harm: %s (%s), %.0f s into the hunt", h.Harm, strings.Join(rules, ", "), h.Seconds)
	line("              %s", h.Why)
	line("              see it    %s check %s", o.Program, h.Trace)
	line("              again     %s %s", o.Program, strings.Join(quoted(h.Again), " "))
}

// words says what a clean run showed of a prediction.
func (s Seen) words() string {
	switch {
	case s.Times == 0:
		return "no lease ended so"
	case s.Unproven > 0:
		return fmt.Sprintf("%d of %d such ends were ordered by nothing", s.Unproven, s.Times)
	}
	return fmt.Sprintf("%d such ends, ordered by %s", s.Times, counted(s.Ordered))
}

// quoted puts what a shell would take apart into quotes.
func quoted(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if strings.ContainsAny(a, " \t\"'$`\\*?(){}[]<>|&;~#!") {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return out
}
