package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"conform/spec"
	"conform/spec/check"
)

// width is where text is wrapped, in columns.
const width = 100

// page collects a summary, so that it is written at once and can't mix with
// other output.
type page struct {
	b     strings.Builder
	color bool
}

func (p *page) flush(w io.Writer) error {
	_, err := io.WriteString(w, p.b.String())
	return err
}

// line adds one line; what it holds must be clean or come from the program.
// In the log of a CI job no line is a command: GitHub's runner takes ::name:: at a
// line's start for one, and ##[name] anywhere.
func (p *page) line(s string) {
	s = strings.ReplaceAll(strings.TrimRight(s, " "), "##[", `#\x23[`)
	if text := strings.TrimLeft(s, " "); strings.HasPrefix(text, "::") {
		s = s[:len(s)-len(text)] + `\x3a` + text[1:]
	}
	p.b.WriteString(s + "\n")
}

func (p *page) headline(v spec.Verdict, rest string) {
	word := p.paint(v, strings.ToUpper(v.String()))
	if rest == "" {
		p.line(word)
		return
	}
	p.line(word + "  " + rest)
}

func (p *page) field(name, value string) { p.line(fmt.Sprintf("  %-12s %s", name, Clean(value))) }

// list adds a titled list, nothing where it is empty.
func (p *page) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.line("")
	p.line("  " + title)
	for _, l := range lines {
		p.wrapped("    ", l)
	}
}

// ruleRow is one line of the table of rules.
type ruleRow struct {
	id       spec.RuleID
	verdict  spec.Verdict
	judged   int
	findings int
}

func (p *page) rules(rows []ruleRow) {
	p.line("")
	p.line(fmt.Sprintf("  %-28s %-13s %8s  %s", "rule", "verdict", "judged", "findings"))
	for _, r := range rows {
		judged, findings := "-", ""
		if r.judged > 0 {
			judged = number(r.judged)
		}
		if r.findings > 0 {
			findings = number(r.findings)
		}
		verdict := p.paint(r.verdict, fmt.Sprintf("%-13s", r.verdict))
		p.line(fmt.Sprintf("  %-28s %s %8s  %s", string(r.id)+" "+ruleName(r.id), verdict, judged, findings))
	}
}

// signals says of each kind of signal what it claims, what held at every emission,
// and what refutes more. Traces below dir are named relative to it.
func (p *page) signals(signals []check.SignalResult, dir string) {
	if len(signals) == 0 {
		return
	}
	p.line("")
	p.line(fmt.Sprintf("  %-28s %-10s %-10s %8s  %s", "signal", "declared", "inferred", "seen", "counterexample to more"))
	shown := min(len(signals), 2*maxLines)
	for _, s := range signals[:shown] {
		p.line(fmt.Sprintf("  %-28s %-10s %-10s %8s  %s", Clean(s.Signal), orDash(s.Claims), orDash(s.Inferred), number(s.Seen), counterexample(&s, dir)))
	}
	if more := len(signals) - shown; more > 0 {
		p.line(fmt.Sprintf("  and %s more", count(more, "kind")))
	}
}

// counterexample says what refutes that a kind of signal proves more than was
// inferred: what it claims, where that was refuted, else the least that was.
func counterexample(s *check.SignalResult, dir string) string {
	if len(s.Refuted) == 0 {
		return ""
	}
	r := s.Refuted[0]
	for _, other := range s.Refuted {
		if other.Claim == s.Claims || s.Claims == spec.ClaimsDrained {
			r = other
		}
	}
	how := "begin after" // stopped
	if r.Claim == spec.ClaimsCompleted {
		how = "be open at"
	}
	text := string(r.Claim)
	if len(r.Events) == 2 {
		text += fmt.Sprintf(": %s may %s %s", eventName(r.Events[1]), how, eventName(r.Events[0]))
	}
	if r.Trace != "" {
		text += ", in " + strings.TrimPrefix(r.Trace, dir+"/")
	}
	return Clean(text)
}

func eventName(id spec.EventID) string { return fmt.Sprintf("%s#%d", id.Src, id.Seq) }

// clocks adds a line for each clock but the first, against that.
func (p *page) clocks(clocks []check.ClockResult) {
	if len(clocks) == 0 {
		return
	}
	p.line("")
	shown := 0
	for _, c := range clocks {
		if c.Minus != clocks[0].Minus {
			continue
		}
		if shown++; shown > 2*maxLines {
			p.line("  and more clocks")
			return
		}
		p.line(fmt.Sprintf("  clock %s minus clock %s: %s", Clean(c.Clock), Clean(c.Minus), offsets(c.Lo, c.Hi)))
	}
}

// offsets says between which bounds a clock's offset lies.
func offsets(lo, hi *int64) string {
	switch {
	case lo == nil && hi == nil:
		return "nothing bounds it"
	case lo == nil:
		return fmt.Sprintf("at most %s ns", number(int(*hi)))
	case hi == nil:
		return fmt.Sprintf("at least %s ns", number(int(*lo)))
	}
	return fmt.Sprintf("%s to %s ns", number(int(*lo)), number(int(*hi)))
}

func orDash(v spec.Predicate) string {
	if v == spec.ClaimsNothing {
		return "-"
	}
	return Clean(string(v))
}

// wrapped adds s at an indent, broken at spaces where it is too long.
func (p *page) wrapped(indent, s string) { p.hanging(indent, indent, s) }

// item adds s behind a mark, further lines below its text.
func (p *page) item(mark, s string) { p.hanging(mark, strings.Repeat(" ", len(mark)), s) }

func (p *page) hanging(first, indent, s string) {
	line, empty := first, true
	for _, word := range strings.Fields(Clean(s)) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			p.line(line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	if !empty {
		p.line(line)
	}
}

// paint colours s by the verdict.
func (p *page) paint(v spec.Verdict, s string) string {
	if !p.color {
		return s
	}
	codes := map[spec.Verdict]string{
		spec.Pass: "32", spec.Inconclusive: "33", spec.Unproven: "33", spec.Fail: "31;1", spec.Error: "31;1",
	}
	code, ok := codes[v]
	if !ok {
		code = "2"
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Clean makes text from outside fit for one line of a terminal: control and
// other unprintable characters, line ends among them, become their Go escape.
func Clean(s string) string {
	printable := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	if !strings.ContainsFunc(s, func(r rune) bool { return !printable(r) }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case printable(r):
			b.WriteRune(r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, "\\x%02x", s[i])
		case r < 0x80:
			fmt.Fprintf(&b, "\\x%02x", r)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// Quote makes one argument of a command that can be pasted into a shell.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./=:,@%+", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// number writes n with a comma at the thousands.
func number(n int) string {
	s := fmt.Sprint(n)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		s = "-" + s
	}
	return s
}

// count writes "1 run", "2 runs", "3 accesses".
func count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return number(n) + " " + noun
}

func distinct(s []string) int {
	s = slices.Clone(s)
	slices.Sort(s)
	return len(slices.Compact(s))
}

func joinSet(s []string, sep string) string {
	var out []string
	for _, v := range s {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return strings.Join(out, sep)
}

func orNone(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func seedRange(seeds []uint64) string {
	if len(seeds) == 0 {
		return "no seed"
	}
	lo, hi := slices.Min(seeds), slices.Max(seeds)
	if lo == hi {
		return fmt.Sprintf("seed %d", lo)
	}
	return fmt.Sprintf("seeds %d-%d", lo, hi)
}

// limit keeps the first n lines and says how many more there are.
func limit(lines []string, n int) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n]), fmt.Sprintf("and %d more", len(lines)-n))
}
