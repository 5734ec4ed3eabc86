package report

import (
	"fmt"
	"io"
	"strings"

	"conform/spec"
	"conform/spec/check"
)

// StoryText tells one finding of a trace to a person. The trace and the finding
// are named as the user can name them again.
func StoryText(w io.Writer, trace, finding string, s *check.Story, o Options) error {
	p := &page{color: o.Color}
	f := &s.Finding
	head := fmt.Sprintf("%s %s", f.Rule, ruleName(f.Rule))
	if f.Harm != spec.HarmNone {
		head += ", harm: " + string(f.Harm)
	}
	p.headline(f.Verdict, head)
	p.told("the rule", s.Must)
	p.told("why", s.Why)
	p.told("found", f.Text+shownBy(*f))
	for i, owner := range s.Owners {
		name := ""
		if i == 0 {
			name = "owners"
		}
		p.told(name, owner)
	}
	p.told("missing", s.Missing)
	p.told("enough", s.Enough)
	if len(s.Lanes.Rows) > 0 {
		p.line("")
		for line := range strings.Lines(s.Lanes.String()) {
			p.line(cut(Clean(strings.TrimSuffix(line, "\n")), width))
		}
	}
	p.line("")
	again := func(name, command string) {
		p.line(fmt.Sprintf("  %-8s %s %s", name, o.program(), command))
	}
	named := Quote(trace)
	if finding != "1" {
		named += " " + finding
	}
	again("again", "explain "+named)
	again("smallest", "shrink "+named+" -o small.jsonl")
	if f.Verdict == spec.Fail && strings.HasPrefix(string(f.Rule), "BLK-") && f.Rule != spec.BLK5 {
		again("picture", "export --to porcupine "+named+" -o picture.html")
	}
	again("the rule", "spec "+string(f.Rule))
	return p.flush(w)
}

// told adds a named text, broken where it is too long.
func (p *page) told(name, text string) {
	p.item(fmt.Sprintf("  %-8s ", name), text)
}

// StoryJSON writes one finding for a program.
func StoryJSON(w io.Writer, s *check.Story) error { return Encode(w, s) }

// cut shortens a line to a number of columns.
func cut(s string, columns int) string {
	if r := []rune(s); len(r) > columns {
		return string(r[:columns-1]) + "…"
	}
	return s
}
