package traces

import "conform/spec"

type tokenType byte

const (
	tokenString tokenType = iota
	tokenInt
	tokenBool
	tokenBlocks
)

// token is one field of a line in the plain form; see [fastParser].
type token struct {
	name   []byte
	typ    tokenType
	text   []byte      // of a string
	number int64       // of an int; 1 for true
	blocks spec.Blocks // of a list of blocks
}

// cursor goes over a line. Its methods report false where the plain form ends.
type cursor struct {
	b []byte
	i int
}

// tokenize splits a line into its fields, or reports false.
func tokenize(line []byte, tokens []token) ([]token, bool) {
	c := cursor{b: line}
	if !c.take('{') {
		return nil, false
	}
	for len(tokens) < cap(tokens) {
		var t token
		var ok bool
		if t.name, ok = c.str(); !ok || !c.take(':') || !c.value(&t) {
			return nil, false
		}
		tokens = append(tokens, t)
		if c.take('}') {
			return tokens, c.i == len(c.b)
		}
		if !c.take(',') {
			return nil, false
		}
	}
	return nil, false
}

// peek skips spaces and returns the next byte, 0 at the end.
func (c *cursor) peek() byte {
	for c.i < len(c.b) && c.b[c.i] == ' ' {
		c.i++
	}
	if c.i == len(c.b) {
		return 0
	}
	return c.b[c.i]
}

func (c *cursor) take(want byte) bool {
	if c.peek() != want {
		return false
	}
	c.i++
	return true
}

// str reads a string of printable ASCII without escapes.
func (c *cursor) str() ([]byte, bool) {
	if !c.take('"') {
		return nil, false
	}
	start := c.i
	for ; c.i < len(c.b); c.i++ {
		switch b := c.b[c.i]; {
		case b == '"':
			c.i++
			return c.b[start : c.i-1], true
		case b < ' ' || b > '~' || b == '\\':
			return nil, false
		}
	}
	return nil, false
}

func (c *cursor) value(t *token) (ok bool) {
	switch c.peek() {
	case '"':
		t.typ = tokenString
		t.text, ok = c.str()
	case '[':
		t.typ = tokenBlocks
		t.blocks, ok = c.blockList()
	case 't':
		t.typ, t.number = tokenBool, 1
		ok = c.literal("true")
	case 'f':
		t.typ = tokenBool
		ok = c.literal("false")
	default:
		t.typ = tokenInt
		t.number, ok = c.int()
	}
	return ok
}

func (c *cursor) literal(want string) bool {
	if len(c.b)-c.i < len(want) || string(c.b[c.i:c.i+len(want)]) != want {
		return false
	}
	c.i += len(want)
	return true
}

// int reads a whole number as JSON writes it, but for a negative zero.
func (c *cursor) int() (int64, bool) {
	negative := c.take('-')
	start := c.i
	var n int64
	for ; c.i < len(c.b) && '0' <= c.b[c.i] && c.b[c.i] <= '9'; c.i++ {
		if c.i-start == maxDigits {
			return 0, false
		}
		n = n*10 + int64(c.b[c.i]-'0')
	}
	digits := c.i - start
	if digits == 0 || c.b[start] == '0' && (digits > 1 || negative) {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

func (c *cursor) blockList() (spec.Blocks, bool) {
	c.i++ // [
	list := spec.Blocks{}
	if c.take(']') {
		return list, true
	}
	for {
		var r spec.BlockRange
		var ok bool
		if c.peek() == '[' {
			r, ok = c.pair()
		} else if r.First, ok = c.int(); ok {
			r.Last = r.First
		}
		if !ok || r.First < 0 || r.Last < r.First {
			return nil, false
		}
		list = append(list, r)
		if c.take(']') {
			return list, true
		}
		if !c.take(',') {
			return nil, false
		}
	}
}

func (c *cursor) pair() (r spec.BlockRange, ok bool) {
	c.i++ // [
	if r.First, ok = c.int(); !ok || !c.take(',') {
		return r, false
	}
	if r.Last, ok = c.int(); !ok || !c.take(']') {
		return r, false
	}
	return r, true
}
