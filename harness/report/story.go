package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// Told is one finding's story, and what shows it again.
type Told struct {
	// Trace and Finding name the finding as the user can name it again.
	Trace, Finding string
	Story          *check.Story
	// DriftPPM is what the clocks were allowed.
	DriftPPM int
	// Manifest is that of the run directory that the trace is; nil without one.
	Manifest *traces.Manifest
}

// StoryText tells one finding of a trace to a person.
func StoryText(w io.Writer, t Told, o Options) error {
	s := t.Story
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
		for line := range strings.Lines(cleanLanes(s.Lanes).String()) {
			p.line(strings.TrimSuffix(line, "\n"))
		}
	}
	p.line("")
	for _, c := range t.commands(o) {
		p.line(fmt.Sprintf("  %-8s %s", c.Shows, Clean(c.Command)))
	}
	return p.flush(w)
}

// told adds a named text, broken where it is too long.
func (p *page) told(name, text string) {
	p.item(fmt.Sprintf("  %-8s ", name), text)
}

// cleanLanes is l with clean names: one with a line feed in it would draw lines
// of its own.
func cleanLanes(l check.Lanes) check.Lanes {
	l.Block = Clean(l.Block)
	l.Rows = slices.Clone(l.Rows)
	for i := range l.Rows {
		l.Rows[i].Text = Clean(l.Rows[i].Text)
	}
	return l
}

// storyCommand is a command line that shows something about a finding.
type storyCommand struct {
	Shows   string `json:"shows"` // again, smallest, picture, run, the rule
	Command string `json:"command"`
}

// commands are what the user can do next.
func (t Told) commands(o Options) []storyCommand {
	f := &t.Story.Finding
	named := Quote(t.Trace)
	if t.DriftPPM > 0 {
		named = fmt.Sprintf("--drift-ppm %d %s", t.DriftPPM, named)
	}
	if t.Finding != "1" {
		named += " " + t.Finding
	}
	out := []storyCommand{{"again", "explain " + named}, {"smallest", "shrink " + named + " -o small.jsonl"}}
	if f.Verdict == spec.Fail && strings.HasPrefix(string(f.Rule), "BLK-") && f.Rule != spec.BLK5 {
		out = append(out, storyCommand{"picture", "export --to porcupine " + named + " -o picture.html"})
	}
	if r, ok := rerunOf(t.Manifest); ok {
		out = append(out, storyCommand{"run", r.command()})
	}
	out = append(out, storyCommand{"the rule", "spec " + string(f.Rule)})
	for i := range out {
		out[i].Command = o.program() + " " + out[i].Command
	}
	return out
}

// StoryJSON writes one finding for a program.
func StoryJSON(w io.Writer, t Told, o Options) error {
	return Encode(w, struct {
		*check.Story
		Commands []storyCommand `json:"commands"`
	}{t.Story, t.commands(o)})
}
