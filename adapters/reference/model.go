package reference

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
)

// The shape of the toy model.
const (
	BlockTokens = 8  // tokens of one KV block
	tokenBytes  = 32 // KV bytes of one token
	blockBytes  = BlockTokens * tokenBytes
	vocabulary  = 32000
)

// mix is the finaliser of a 64-bit hash: each bit of x moves each bit of the result.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// kvState is the running hash of the tokens so far.
type kvState uint64

// append takes one token in and returns its KV bytes.
func (s *kvState) append(token int32) [tokenBytes]byte {
	*s = kvState(mix(uint64(*s) + 0x9e3779b97f4a7c15 + uint64(uint32(token))))
	var kv [tokenBytes]byte
	x := uint64(*s)
	for i := 0; i < tokenBytes; i += 8 {
		x = mix(x + 0x9e3779b97f4a7c15)
		binary.LittleEndian.PutUint64(kv[i:], x)
	}
	return kv
}

// nextToken is the model's forward pass over all KV bytes read.
func nextToken(kv []byte) int32 {
	h := fnv.New64a()
	h.Write(kv)
	return int32(mix(h.Sum64()) % vocabulary)
}

// kvOf is the KV of tokens that follow a state.
func kvOf(s *kvState, tokens []int32) []byte {
	kv := make([]byte, 0, len(tokens)*tokenBytes)
	for _, t := range tokens {
		b := s.append(t)
		kv = append(kv, b[:]...)
	}
	return kv
}

// Generate is the reference answer: the n tokens that follow a prompt when
// nothing goes wrong. It takes time linear in n times the length.
func Generate(prompt []int32, n int) []int32 {
	var s kvState
	kv := kvOf(&s, prompt)
	out := make([]int32, 0, n)
	for len(out) < n {
		t := nextToken(kv)
		out = append(out, t)
		b := s.append(t)
		kv = append(kv, b[:]...)
	}
	return out
}

// stateAfter is the model's state after tokens.
func stateAfter(tokens []int32) kvState {
	var s kvState
	for _, t := range tokens {
		s.append(t)
	}
	return s
}

// digest names content without showing it.
func digest(content []byte) string {
	h := fnv.New64a()
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

func blocksFor(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }
