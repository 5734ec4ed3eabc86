package unknown

import (
	"cmp"
	"slices"
	"sync"
)

// MaxKinds are told apart by a [Book]; what comes beyond is counted by where it passed.
const MaxKinds = 256

// Kind is one kind of thing that passed without being understood, or that could not be
// led through a proxy.
type Kind struct {
	Where  string // between whom it went, such as "decode->prefill"
	Tag    string // how it begins, in a short word
	Frames int    // of the message; 0 for what is no message
	Why    string // "no row of the table", …
	Count  int
}

// Sum is how often kinds came in all.
func Sum(kinds []Kind) int {
	n := 0
	for _, k := range kinds {
		n += k.Count
	}
	return n
}

// Book counts kinds. The zero value is ready; its methods may be called from any goroutine.
type Book struct {
	mu    sync.Mutex
	kinds map[Kind]int
}

// Note counts one more of a kind, whatever its Count says.
func (b *Book) Note(k Kind) {
	k.Count = 0
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kinds == nil {
		b.kinds = map[Kind]int{}
	}
	if _, known := b.kinds[k]; !known && len(b.kinds) >= MaxKinds {
		k = Kind{Where: k.Where, Why: "more kinds than are told apart"}
	}
	b.kinds[k]++
}

// List is what was noted, and more, in a fixed order.
func (b *Book) List(more ...Kind) []Kind {
	b.mu.Lock()
	list := slices.Clone(more)
	for k, n := range b.kinds {
		k.Count = n
		list = append(list, k)
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Frames, b.Frames), cmp.Compare(a.Why, b.Why))
	})
	return list
}
