package traces

import (
	"slices"

	"conform/spec"
)

// fastParser reads the plain form that recorders write: one object of known
// fields, each once, ASCII without escapes, whole numbers of up to 18 digits. It
// is several times as fast as [spec.ParseEvent], and lets equal words share their
// memory. It says no to everything else, right or wrong, and spec.ParseEvent then
// decides: the two never disagree on a line that fastParser takes.
type fastParser struct {
	kinds map[spec.Kind]kindTable
	words map[string]string
}

// kindTable is the table of one kind, with the bits of the required fields.
type kindTable struct {
	fields   []spec.Field
	required uint64
	t2       uint64 // the bit of t2
}

const (
	maxTokens = 32      // of a line
	maxWords  = 1 << 16 // remembered at a time
	maxDigits = 18      // of a number: no overflow
)

func newFastParser() *fastParser {
	p := &fastParser{kinds: map[spec.Kind]kindTable{}, words: map[string]string{}}
	for _, k := range spec.Kinds() {
		table := kindTable{fields: spec.Fields(k)}
		for i, f := range table.fields {
			if f.Required {
				table.required |= 1 << i
			}
			if f.Name == "t2" {
				table.t2 = 1 << i
			}
		}
		p.kinds[k] = table
	}
	return p
}

// event parses a line, or reports false.
func (p *fastParser) event(line []byte, e *spec.Event) bool {
	var array [maxTokens]token
	tokens, ok := tokenize(line, array[:0])
	if !ok {
		return false
	}
	at := slices.IndexFunc(tokens, func(t token) bool { return string(t.name) == "k" })
	if at < 0 {
		return false
	}
	table := p.kinds[spec.Kind(tokens[at].text)]
	var seen uint64
	for i := range tokens {
		at := slices.IndexFunc(table.fields, func(f spec.Field) bool { return f.Name == string(tokens[i].name) })
		if at < 0 || seen&(1<<at) != 0 || !p.set(e, &table.fields[at], &tokens[i]) {
			return false
		}
		seen |= 1 << at
	}
	if table.required&^seen != 0 {
		return false
	}
	if seen&table.t2 == 0 {
		e.T2 = e.T
	}
	if e.Th == "" {
		e.Th = mainThread
	}
	return fits(e)
}

// fits reports whether the fields go together.
func fits(e *spec.Event) bool {
	switch e.K {
	case spec.KindBegin, spec.KindExpire:
		return e.T2 >= e.T && (e.Handoff != "" || e.Req != "")
	case spec.KindClockCmp:
		return e.T2 >= e.T && e.Hi >= e.Lo
	}
	return e.T2 >= e.T
}

// set stores a value, or reports false where the field wants another.
func (p *fastParser) set(e *spec.Event, f *spec.Field, t *token) bool {
	switch {
	case f.Type == spec.TypeString && t.typ == tokenString:
		word := p.word(t.text)
		if f.Enum != nil && !slices.Contains(f.Enum, word) {
			return false
		}
		e.SetString(f.Name, word)
		return true
	case f.Type == spec.TypeUint && t.typ == tokenInt && t.number < 0:
		return false
	case (f.Type == spec.TypeInt || f.Type == spec.TypeUint) && t.typ == tokenInt:
		e.SetInt(f.Name, t.number)
		return true
	case f.Type == spec.TypeBool && t.typ == tokenBool && f.Name == "ok":
		ok := t.number != 0
		e.OK = &ok
		return true
	case f.Type == spec.TypeBlocks && t.typ == tokenBlocks:
		e.Blocks = t.blocks
		return true
	}
	return false
}

// word makes a string of b, once for all lines that have it.
func (p *fastParser) word(b []byte) string {
	if w, ok := p.words[string(b)]; ok {
		return w
	}
	if len(p.words) >= maxWords {
		clear(p.words)
	}
	w := string(b)
	p.words[w] = w
	return w
}
