package check

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fingerprintVersion changes whenever fingerprints of equal findings do.
const fingerprintVersion = "1"

// Fingerprint names the defect that a finding shows: 16 hexadecimal digits that two
// runs of the same scenario share, whatever their seeds, times and names. It is
// made of the rule, the verdict, the harm, the pool, the [Finding.Shape], and of
// the scope: where it was found, such as a scenario and its mode. Findings of one
// defect that read differently have different fingerprints; two defects of one
// scope that break one rule in the same way share theirs.
func (f *Finding) Fingerprint(scope ...string) string {
	pool := ""
	if f.Block != nil {
		pool = shapeOf(f.Block.Pool)
	}
	parts := append([]string{fingerprintVersion, string(f.Rule), f.Verdict.String(), string(f.Harm), pool, singular(f.Shape())}, scope...)
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(strings.ReplaceAll(part, "\x00", " ") + "\x00"))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

var (
	eventTime = regexp.MustCompile(` at [+-][0-9.]+ (ns|us|ms|s)\)`)
	counted   = regexp.MustCompile(`\bN \w+`)
	repeated  = regexp.MustCompile(`\b(N|an event)(,? (and )?(N|an event)\b)+`)
	kindOf    = regexp.MustCompile(`^[A-Z][A-Z_]*[A-Z](/[A-Za-z0-9]+)?$`) // of signals, such as ABORT_ACK/4
)

// Shape is the finding's text without what differs from run to run: of events their
// kinds stay, of workers their roles, of requests, handoffs, blocks, counts, times
// and digests nothing but that they were there.
func (f *Finding) Shape() string {
	text := eventTime.ReplaceAllString(f.Text, ")")
	names := []string{f.Handoff, "N", f.Req, "N"}
	if f.Block != nil {
		names = append(names, f.Block.Worker, shapeOf(f.Block.Worker))
	}
	for i := 0; i < len(names); i += 2 {
		text = replaceName(text, names[i], names[i+1])
	}
	words := strings.Fields(text)
	for i, w := range words {
		words[i] = shapeOf(w)
	}
	return repeated.ReplaceAllString(strings.Join(words, " "), "$1")
}

// replaceName puts a word in the place of a name, where it stands alone.
func replaceName(text, name, by string) string {
	if name == "" {
		return text
	}
	inName := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.", r) }
	var b strings.Builder
	for done := 0; ; {
		at := strings.Index(text[done:], name)
		if at < 0 {
			b.WriteString(text[done:])
			return b.String()
		}
		at += done
		end := at + len(name)
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[end:])
		b.WriteString(text[done:at])
		if at > 0 && inName(before) || end < len(text) && inName(after) {
			b.WriteString(name)
		} else {
			b.WriteString(by)
		}
		done = end
	}
}

// shapeOf is one word without what its digits say. decode-0/kv and decode-1/kv are
// decode/kv, prefill-0#7 is an event, 5f3a… and 17 are N.
func shapeOf(word string) string {
	core := strings.Trim(word, ".,;:()\"'")
	if core == "" || kindOf.MatchString(core) || !strings.ContainsFunc(core, unicode.IsDigit) {
		return word
	}
	at := strings.Index(word, core)
	head, tail := word[:at], word[at+len(core):]
	if src, seq, ok := strings.Cut(core, "#"); ok && src != "" && seq != "" && strings.Trim(seq, "0123456789") == "" {
		return head + "an event" + tail
	}
	parts := strings.Split(core, "/")
	for i, part := range parts {
		parts[i] = withoutDigits(part)
	}
	return head + strings.Join(parts, "/") + tail
}

func withoutDigits(s string) string {
	switch {
	case !strings.ContainsFunc(s, unicode.IsDigit) || kindOf.MatchString(s):
		return s
	case isHex(s):
		return "N"
	}
	if n := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) }); n > 0 {
		return s[:n] // decode-0, decode-0.r1, a12
	}
	return "N"
}

// singular makes "N hold" and "N holds" the same; what it makes is not for reading.
func singular(shape string) string {
	return counted.ReplaceAllStringFunc(shape, func(s string) string { return strings.TrimRight(s, "es") })
}

// isHex reports a digest, or a plain number.
func isHex(s string) bool { return strings.Trim(strings.ToLower(s), "0123456789abcdef") == "" }

// Sign gives each finding its fingerprint in a scope.
func Sign(rules []RuleResult, scope ...string) {
	for i := range rules {
		for j := range rules[i].Findings {
			f := &rules[i].Findings[j]
			f.ID = f.Fingerprint(scope...)
		}
	}
}
