package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// Times of a monotonic clock are long numbers; a person reads how far into the
// trace they are.
func TestTimesAreSaidForAPerson(t *testing.T) {
	for _, c := range []struct {
		start int64
		want  string
	}{
		{0, "d#1 (note at 40)"},
		{4_485_887_415_063, "d#1 (note at +0.000040 ms)"},
	} {
		tr := &spec.Trace{Events: []spec.Event{
			{Src: "d", T: c.start, T2: c.start, Th: "main", K: spec.KindSource, Worker: "d0", Role: spec.RoleDecode, Host: "h", Clock: "m"},
			{Src: "d", Seq: 1, T: c.start + 40, T2: c.start + 40, Th: "main", K: spec.KindNote, Text: "x"},
			{Src: "d", Seq: 2, T: c.start + 40, T2: c.start + 3_500_000, Th: "main", K: spec.KindNote, Text: "x"},
		}}
		h, err := newHistory(tr)
		require.NoError(t, err)
		court := &court{h: h}
		require.Equal(t, c.want, court.say(1))
		require.Contains(t, court.say(2), " to +3.500000 ms)")
	}
}
