package traces_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/traces"
)

// What Walk gives is what Read lists, and what Read refuses Walk refuses in the
// same words: of each case that is bad, and of each that is not.
func TestWalkGivesWhatReadLists(t *testing.T) {
	for name, path := range caseNames(t) {
		t.Run(name, func(t *testing.T) {
			want, wantErr := traces.Read(path, nil)
			var got []spec.Event
			losses, err := traces.Walk(t.Context(), path, nil, func(e *spec.Event) error {
				got = append(got, *e)
				return nil
			})
			if wantErr != nil {
				require.EqualError(t, err, wantErr.Error())
				return
			}
			require.NoError(t, err)
			require.Equal(t, want.Events, got)
			require.Equal(t, want.Losses, losses)
		})
	}
}

// A pool that another source declares later, or never, is found out without the
// events that named it.
func TestWalkChecksPoolsThatComeLater(t *testing.T) {
	walk := func(text string) error {
		_, err := traces.Walk(t.Context(), "-", strings.NewReader(text), func(*spec.Event) error { return nil })
		return err
	}
	later := []string{srcP, begin, strings.Replace(begin, "a1", "a2", 1), srcD, pool}
	require.NoError(t, walk(lines(later...)))
	var bad *traces.BadInput
	require.ErrorAs(t, walk(lines(later[:4]...)), &bad)
	require.Equal(t, 2, bad.Line)
	later[2] = strings.Replace(later[2], "[3]", "[0,[2,4]]", 1)
	require.ErrorAs(t, walk(lines(later...)), &bad)
	require.Equal(t, 3, bad.Line, bad)
	require.Contains(t, bad.Found, "block 4")
}

func TestWalkEndsWithItsCallee(t *testing.T) {
	text := lines(srcD, pool, alloc)
	stop := errors.New("enough")
	n := 0
	_, err := traces.Walk(t.Context(), "-", bytes.NewBufferString(text), func(*spec.Event) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	require.Equal(t, stop, err)
	require.Equal(t, 2, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = traces.Walk(ctx, "-", bytes.NewBufferString(text), func(*spec.Event) error { return nil })
	require.Equal(t, context.Canceled, err)
	_, err = traces.Walk(t.Context(), t.TempDir()+"/none.jsonl", nil, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}
