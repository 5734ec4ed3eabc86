package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// A long trace is judged as it streams, as the judge of whole traces would, whether
// all is well in it or not.
func TestLongTraces(t *testing.T) {
	for name, spoil := range map[string]int{"fine": 0, "spoiled": 500} {
		path := filepath.Join(t.TempDir(), "x.jsonl.zst")
		writeBigTrace(t, path, 20_000, 3, spoil)
		sifted, err := siftTrace(context.Background(), path, check.Options{})
		require.NoError(t, err)
		require.NotNil(t, sifted, name)
		tr, err := traces.Read(path, nil)
		require.NoError(t, err)
		want, err := check.Judge(context.Background(), tr, check.Options{})
		require.NoError(t, err)
		got, err := checkTrace(context.Background(), path, nil, check.Options{})
		require.NoError(t, err)
		if spoil == 0 {
			require.Equal(t, spec.Pass, got.Verdict)
		} else {
			require.Equal(t, spec.Fail, got.Verdict)
		}
		require.Equal(t, want, sifted, name)
		require.Equal(t, want, got, name)
	}
}
