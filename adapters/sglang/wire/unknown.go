package wire

import (
	"fmt"

	"conform/adapters/engines/unknown"
)

const maxTag = 32 // bytes of a first frame that are shown

// Unknown is one kind of thing that passed without being understood, or that
// could not be led through the interposer. Its Where is a [Direction], or
// "bootstrap"; its Tag the first frame if it is a short word, "<number>", or its
// size, "<1024 bytes>".
type Unknown = unknown.Kind

// Unknown lists what passed without being understood, in a fixed order. A run
// that has some was not seen whole.
func (i *Interposer) Unknown() []Unknown {
	i.mu.Lock()
	defer i.mu.Unlock()
	var foreign []Unknown
	for _, way := range []Direction{ToPrefill, ToDecode} {
		n := 0
		for _, l := range i.legs {
			if l.to == way {
				n += max(l.proxy.Unknown()-int(l.refused.Load()), 0)
			}
		}
		if n > 0 {
			foreign = append(foreign, Unknown{Where: string(way), Why: "a connection that is not ZMTP, or is encrypted", Count: n})
		}
	}
	return i.unknown.List(foreign...)
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
