package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// BlockRange is an inclusive range of block numbers.
type BlockRange struct{ First, Last int64 }

// Blocks is a list of block numbers as a trace writes it: numbers and inclusive
// pairs. It is kept as ranges, so that a line cannot make a reader allocate
// more than its own length.
type Blocks []BlockRange

// MakeBlocks packs block numbers, keeping their order; runs become ranges.
func MakeBlocks(numbers ...int64) Blocks {
	var b Blocks
	for _, n := range numbers {
		if last := len(b) - 1; last >= 0 && b[last].Last+1 == n {
			b[last].Last = n
			continue
		}
		b = append(b, BlockRange{n, n})
	}
	return b
}

// All yields each block number, in the order of the list.
func (b Blocks) All(yield func(int64) bool) {
	for _, r := range b {
		for n := r.First; ; n++ {
			if !yield(n) {
				return
			}
			if n == r.Last {
				break
			}
		}
	}
}

// Len is the number of block numbers, at most the largest int64.
func (b Blocks) Len() int64 {
	var n int64
	for _, r := range b {
		n += r.Last - r.First + 1
		if n < 0 {
			return 1<<63 - 1
		}
	}
	return n
}

// Max is the largest block number, -1 for an empty list.
func (b Blocks) Max() int64 {
	m := int64(-1)
	for _, r := range b {
		m = max(m, r.Last)
	}
	return m
}

// Contains reports whether the list names block n.
func (b Blocks) Contains(n int64) bool {
	for _, r := range b {
		if r.First <= n && n <= r.Last {
			return true
		}
	}
	return false
}

// String writes the list as a trace does.
func (b Blocks) String() string { return string(b.append(nil)) }

func (b Blocks) append(dst []byte) []byte {
	dst = append(dst, '[')
	for i, r := range b {
		if i > 0 {
			dst = append(dst, ',')
		}
		if r.First == r.Last {
			dst = strconv.AppendInt(dst, r.First, 10)
			continue
		}
		dst = append(dst, '[')
		dst = strconv.AppendInt(dst, r.First, 10)
		dst = append(dst, ',')
		dst = strconv.AppendInt(dst, r.Last, 10)
		dst = append(dst, ']')
	}
	return append(dst, ']')
}

func parseBlocks(raw json.RawMessage) (Blocks, error) {
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, errors.New("a list of block numbers and inclusive pairs")
	}
	b := make(Blocks, 0, len(items))
	for _, it := range items {
		r, err := parseBlockItem(it)
		if err != nil {
			return nil, err
		}
		b = append(b, r)
	}
	return b, nil
}

func parseBlockItem(raw json.RawMessage) (BlockRange, error) {
	if raw[0] != '[' {
		n, err := parseUint(raw)
		return BlockRange{n, n}, err
	}
	var pair []json.RawMessage
	if json.Unmarshal(raw, &pair) != nil || len(pair) != 2 {
		return BlockRange{}, errors.New("a block number or an inclusive pair of two")
	}
	first, err := parseUint(pair[0])
	if err != nil {
		return BlockRange{}, err
	}
	last, err := parseUint(pair[1])
	if err != nil {
		return BlockRange{}, err
	}
	if last < first {
		return BlockRange{}, fmt.Errorf("a pair whose first number is not above its second")
	}
	return BlockRange{first, last}, nil
}

func parseUint(raw json.RawMessage) (int64, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 || raw[0] == '-' || raw[0] == '+' {
		return 0, errors.New("a block number, an integer from 0")
	}
	return n, nil
}
