package traces

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// A run that was killed at the boundary of a frame looks whole but for its
// manifest.
func TestKilledRunLosesItsUnsealedSources(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		m    Manifest
		lost []string
	}{
		"killed":          {Manifest{Start: start}, []string{"a"}},
		"ended":           {Manifest{Start: start, End: start.Add(time.Second)}, nil},
		"not ours to say": {Manifest{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, WriteManifest(dir, c.m))
			for _, src := range []string{"a", "b"} {
				w, err := Create(dir, src, WriterOptions{Flush: -1})
				require.NoError(t, err)
				w.Record(spec.Event{K: spec.KindSource, Worker: src, Role: spec.RoleDecode, Host: "h", Clock: "c"})
				if src == "a" {
					require.NoError(t, w.Close())
				} else {
					require.NoError(t, w.Seal())
				}
			}
			tr, err := Read(dir, nil)
			require.NoError(t, err)
			var lost []string
			for _, l := range tr.Losses {
				lost = append(lost, l.Src)
				require.Equal(t, uint64(1), l.Next)
				require.Contains(t, l.Why, "killed")
			}
			require.Equal(t, c.lost, lost)
		})
	}
}
