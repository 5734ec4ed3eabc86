package traces

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// Long files get room for all their events at once, and what is counted wrongly is
// read all the same.
func TestLongFilesAreCountedFirst(t *testing.T) {
	const events = 30_000
	var lines strings.Builder
	lines.WriteString(`{"src":"s","seq":0,"t":0,"k":"source","worker":"w","role":"store","host":"h","clock":"c"}` + "\n")
	r := rand.New(rand.NewPCG(1, 2))
	for i := 1; i < events; i++ { // text that does not compress to less than is counted
		fmt.Fprintf(&lines, `{"src":"s","seq":%d,"t":0,"k":"note","text":"%x%x%x%x%x"}`+"\n", i, r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64())
	}
	enc, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for name, content := range map[string][]byte{
		"x.jsonl": []byte(lines.String()), "x.jsonl.zst": enc.EncodeAll([]byte(lines.String()), nil),
	} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		require.Greater(t, len(content), expectBytes)
		rd := newReader(DefaultLimits())
		require.NoError(t, rd.path(path, nil))
		require.Len(t, rd.events, 1, "it grew by chunks")
		tr, err := Read(path, nil)
		require.NoError(t, err)
		require.Len(t, tr.Events, events)

		rd = newReader(DefaultLimits())
		rd.expected = events / 3 // as if the file had grown since
		require.NoError(t, rd.file(path, false))
		grown, err := rd.finish()
		require.NoError(t, err)
		require.Equal(t, tr.Events, grown.Events)
	}
	blank := filepath.Join(t.TempDir(), "blank.jsonl")
	require.NoError(t, os.WriteFile(blank, []byte(strings.Repeat("\n", 2<<20)), 0o600))
	require.EqualValues(t, 2<<20/leastLine, countLines(blank, 1<<40), "no more than there can be events")
	require.Zero(t, countLines(filepath.Join(t.TempDir(), "none"), 1))
}
