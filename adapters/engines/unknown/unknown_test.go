package unknown

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKindsAreCountedInAFixedOrder(t *testing.T) {
	var b Book
	require.Empty(t, b.List())
	b.Note(Kind{Where: "b", Tag: "x", Count: 7})
	b.Note(Kind{Where: "a", Tag: "y"})
	b.Note(Kind{Where: "b", Tag: "x"})
	require.Equal(t, []Kind{{Where: "a", Tag: "x", Count: 3}, {Where: "a", Tag: "y", Count: 1}, {Where: "b", Tag: "x", Count: 2}},
		b.List(Kind{Where: "a", Tag: "x", Count: 3}))
}

func TestKindsAreBounded(t *testing.T) {
	var b Book
	for n := range MaxKinds + 10 {
		b.Note(Kind{Where: "here", Frames: n, Why: "x"})
	}
	list := b.List()
	require.Len(t, list, MaxKinds+1)
	require.Contains(t, list, Kind{Where: "here", Why: "more kinds than are told apart", Count: 10})
}
