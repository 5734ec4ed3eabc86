package traces

import "hash/maphash"

// idSet tells whether a name is new. It holds hashes of 64 bits with a random
// seed, not the names: a new name may look like one that was there, with a chance
// of one in 2^64 for each that was, and never the other way round.
type idSet struct {
	seed  maphash.Seed
	parts [idParts]idPart
}

// idParts splits the set, so that not all of it is copied when it grows.
const idParts = 64

type idPart struct {
	slots []uint64
	n     int
}

func newIDSet() idSet { return idSet{seed: maphash.MakeSeed()} }

// add adds a name and reports whether it is new.
func (s *idSet) add(name string) bool {
	h := maphash.String(s.seed, name) | 1<<63 // 0 is an empty slot
	p := &s.parts[h%idParts]
	if p.n*8 >= len(p.slots)*7 {
		p.grow()
	}
	if !p.put(h) {
		return false
	}
	p.n++
	return true
}

func (p *idPart) grow() {
	old := p.slots
	p.slots = make([]uint64, max(64, len(old)+len(old)/2))
	for _, h := range old {
		if h != 0 {
			p.put(h)
		}
	}
}

func (p *idPart) put(h uint64) bool {
	i := int(h / idParts % uint64(len(p.slots)))
	for p.slots[i] != 0 {
		if p.slots[i] == h {
			return false
		}
		if i++; i == len(p.slots) {
			i = 0
		}
	}
	p.slots[i] = h
	return true
}
