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
		place := stringField(e, f.Name)
		word := p.word(t.text)
		if place == nil || f.Enum != nil && !slices.Contains(f.Enum, word) {
			return false
		}
		*place = word
		e.HasExp = e.HasExp || f.Name == "expect"
		return true
	case f.Type == spec.TypeUint && t.typ == tokenInt && t.number < 0:
		return false
	case (f.Type == spec.TypeInt || f.Type == spec.TypeUint) && t.typ == tokenInt:
		return setInt(e, f.Name, t.number)
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

// stringField is where an event keeps a string, nil for a field that is not in
// the plain form.
func stringField(e *spec.Event, name string) *string {
	switch name {
	case "src":
		return &e.Src
	case "th":
		return &e.Th
	case "k":
		return (*string)(&e.K)
	case "pool":
		return &e.Pool
	case "holder":
		return &e.Holder
	case "req":
		return &e.Req
	case "handoff":
		return &e.Handoff
	case "why":
		return &e.Why
	case "by":
		return &e.By
	case "to":
		return &e.To
	case "mode":
		return &e.Mode
	case "access":
		return &e.Access
	case "target":
		return &e.Target
	case "via":
		return &e.Via
	case "sig":
		return &e.Sig
	case "signal":
		return &e.Signal
	case "claims":
		return (*string)(&e.Claims)
	case "asks":
		return &e.Asks
	case "side":
		return &e.Side
	case "sum":
		return &e.Sum
	case "expect":
		return &e.Expect
	case "unit":
		return &e.Unit
	case "outcome":
		return (*string)(&e.Result)
	case "text":
		return &e.Text
	}
	return nil
}

func setInt(e *spec.Event, name string, n int64) bool {
	switch name {
	case "seq":
		e.Seq = uint64(n)
	case "t":
		e.T = n
	case "t2":
		e.T2 = n
	case "need":
		e.Need = &n
	case "n":
		e.N = n
	case "part":
		e.Part = n
	case "status":
		e.Status = n
	case "limit":
		e.Limit = n
	case "blocks", "count":
		e.Count = n
	case "bytes":
		e.Bytes = n
	default:
		return false
	}
	return true
}
