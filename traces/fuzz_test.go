package traces_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/traces"
)

// FuzzRead: whatever the bytes, there is a trace that keeps its promises to a
// judge, or bad input.
func FuzzRead(f *testing.F) {
	for _, path := range caseNames(f) {
		if b, err := os.ReadFile(path); err == nil { // a run directory is none
			f.Add(b)
		}
	}
	f.Add(frames(f, lines(srcD, pool), lines(srcP, begin, end)))
	lim := traces.Limits{LineBytes: 4096, TotalBytes: 1 << 20, Events: 1000}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := traces.ReadLimited("-", bytes.NewReader(text), lim)
		if err != nil {
			var bad *traces.BadInput
			require.True(t, errors.As(err, &bad), err)
			require.Positive(t, bad.Line)
			return
		}
		next := map[string]uint64{}
		for _, e := range got.Events {
			_, known := next[e.Src]
			require.Equal(t, !known, e.K == spec.KindSource, "its source line first, and once")
			require.GreaterOrEqual(t, e.Seq, next[e.Src])
			next[e.Src] = e.Seq + 1
			require.GreaterOrEqual(t, e.T2, e.T)
			require.NotEmpty(t, e.Th)
		}
		for _, l := range got.Losses {
			require.LessOrEqual(t, l.Next, next[l.Src])
		}
	})
}

// FuzzEventRoundTrip: an event that was read is written as one line, and read
// again it is the same event.
func FuzzEventRoundTrip(f *testing.F) {
	for _, path := range caseNames(f) {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			f.Add(bytes.TrimSuffix(line, []byte{'\n'}))
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return // a reader splits there
		}
		e, err := spec.ParseEvent(line)
		if err != nil {
			var fe *spec.FieldError
			require.True(t, errors.As(err, &fe), err)
			return
		}
		written := e.AppendJSON(nil)
		require.NotContains(t, string(written), "\n")
		again, err := spec.ParseEvent(written)
		require.NoError(t, err, "%s", written)
		require.Equal(t, e, again)
		require.Equal(t, string(written), string(again.AppendJSON(nil)))
	})
}
