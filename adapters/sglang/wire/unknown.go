package wire

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	maxUnknown = 256 // kinds that are told apart
	maxTag     = 32  // bytes of a first frame that are shown
)

// Unknown is one kind of thing that passed without being understood, or that
// could not be led through the interposer. It passed as it was.
type Unknown struct {
	Where  string // a [Direction], or "bootstrap"
	Tag    string // the first frame if it is a short word, "<number>", or its size, "<1024 bytes>"
	Frames int    // of the message; 0 for what is no message
	Why    string // "no row of the table", …
	Count  int
}

// Unknown lists what passed without being understood, in a fixed order. A run
// that has some was not seen whole.
func (i *Interposer) Unknown() []Unknown {
	i.mu.Lock()
	defer i.mu.Unlock()
	var list []Unknown
	for u, n := range i.unknown {
		u.Count = n
		list = append(list, u)
	}
	for _, way := range []Direction{ToPrefill, ToDecode} {
		foreign := 0
		for _, l := range i.legs {
			if l.to == way {
				foreign += max(l.proxy.Unknown()-int(l.refused.Load()), 0)
			}
		}
		if foreign > 0 {
			list = append(list, Unknown{Where: string(way), Why: "a connection that is not ZMTP, or is encrypted", Count: foreign})
		}
	}
	slices.SortFunc(list, func(a, b Unknown) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Frames, b.Frames), cmp.Compare(a.Why, b.Why))
	})
	return list
}

// note counts one more. i.mu is held.
func (i *Interposer) note(u Unknown) {
	u.Count = 0
	if _, known := i.unknown[u]; !known && len(i.unknown) >= maxUnknown {
		u = Unknown{Where: u.Where, Why: "more kinds than are told apart"}
	}
	i.unknown[u]++
}

// tagOf names a message's kind by its first frame.
func tagOf(msg [][]byte) string {
	switch {
	case len(msg) == 0:
		return ""
	case len(msg[0]) > maxTag || !isText(msg[0]):
		return fmt.Sprintf("<%d bytes>", len(msg[0]))
	}
	if _, err := number(msg[0]); err == nil {
		return "<number>"
	}
	return string(msg[0])
}
