package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"conform/harness"
	"conform/spec"
)

// Progress shows how far a run has come. Its methods belong to one goroutine. A
// failing writer is ignored: progress is a courtesy, not a result.
type Progress struct {
	w       io.Writer
	tty     bool
	columns int
	live    bool // the line on the terminal has no line end yet
}

// NewProgress makes a progress display. On a terminal it is one line that is
// written over, of at most columns columns (0: 80), and a line stays for each
// scenario that did not pass; elsewhere it is one line for each finished scenario.
func NewProgress(w io.Writer, tty bool, columns int) *Progress {
	if columns <= 0 {
		columns = 80
	}
	return &Progress{w: w, tty: tty, columns: columns}
}

// Update shows one step.
func (p *Progress) Update(s harness.Progress) {
	line := fmt.Sprintf("[%d/%d] %s", s.Done, s.Total, s.Scenario)
	if s.Mode != "" {
		line += " " + s.Mode
	}
	if s.Scenario != "" { // else it is about the whole run
		line += fmt.Sprintf(" seed %d: ", s.Seed)
	}
	if s.Finished {
		line += s.Verdict.String()
	} else {
		line += s.Phase
	}
	line = Clean(line)
	switch {
	case !p.tty && s.Finished:
		fmt.Fprintln(p.w, line)
	case p.tty:
		p.rewrite(line)
		if s.Finished && s.Verdict != spec.Pass {
			p.Close()
		}
	}
}

// Close ends the line that is being written over, where there is one. The
// display can be used again after it.
func (p *Progress) Close() {
	if p.live {
		fmt.Fprintln(p.w)
		p.live = false
	}
}

// Clear removes the line that is being written over, where there is one.
func (p *Progress) Clear() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.live = false
	}
}

// rewrite shows a line that leaves the last column free: a terminal that wraps
// there could not be written over.
func (p *Progress) rewrite(line string) {
	if most := p.columns - 1; utf8.RuneCountInString(line) > most {
		line = strings.TrimSpace(string([]rune(line)[:max(most-1, 0)])) + "…"
	}
	fmt.Fprint(p.w, "\r"+line+"\x1b[K")
	p.live = true
}
