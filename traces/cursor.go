package traces

import (
	"encoding/binary"
	"math/bits"

	"conform/spec"
)

// cursor goes over a line in the plain form; see [fastParser]. Its methods report
// false where the plain form ends.
type cursor struct {
	b []byte
	i int
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

// str reads a string of ASCII without escapes and control characters.
func (c *cursor) str() ([]byte, bool) {
	if !c.take('"') {
		return nil, false
	}
	start := c.i
	i := start + plain(c.b[start:])
	if i == len(c.b) || c.b[i] != '"' {
		return nil, false
	}
	c.i = i + 1
	return c.b[start:i], true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plain is the number of bytes before the first quote, backslash, control
// character or byte beyond ASCII. It looks at eight bytes at a time.
func plain(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// Each term has the high bit of a byte set where the byte is one of those; only
		// the lowest is to be trusted.
		m := (x | (quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & highs
		if m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b); i++ {
		if x := b[i]; x == '"' || x == '\\' || x < ' ' || x >= 0x80 {
			return i
		}
	}
	return i
}

func (c *cursor) literal(want string) bool {
	if len(c.b)-c.i < len(want) || string(c.b[c.i:c.i+len(want)]) != want {
		return false
	}
	c.i += len(want)
	return true
}

// int reads a whole number as JSON writes it, but for a negative zero and the
// smallest of 64 bits.
func (c *cursor) int() (int64, bool) {
	const most = 1<<63 - 1
	negative := c.take('-')
	start := c.i
	var n uint64
	for ; c.i < len(c.b) && '0' <= c.b[c.i] && c.b[c.i] <= '9'; c.i++ {
		if n > most/10 {
			return 0, false
		}
		n = n*10 + uint64(c.b[c.i]-'0')
	}
	digits := c.i - start
	if digits == 0 || n > most || c.b[start] == '0' && (digits > 1 || negative) {
		return 0, false
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
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
