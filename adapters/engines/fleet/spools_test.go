package fleet

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCutSpools(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "events"), 0o755))
	long := append(bytes.Repeat([]byte("{}\n"), 1<<20), "\x00\"half\":1}\n\x00\x00"...) // a record's first byte comes last
	texts := map[string][]string{
		"sealed": {"{}\n{}\n", "{}\n{}\n"},
		"killed": {"{}\n\x00\x00\x00", "{}\n"},
		"torn":   {"{}\n{\"a\":1\x00\x00", "{}\n{\"a\":1"},
		"half":   {string(long), string(long[:3<<20])},
		"none":   {"", ""},
		"zeros":  {"\x00\x00", ""},
	}
	for name, text := range texts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "events", name+".jsonl"), []byte(text[0]), 0o600))
	}
	for range 2 {
		require.NoError(t, CutSpools(dir))
		for name, text := range texts {
			got, err := os.ReadFile(filepath.Join(dir, "events", name+".jsonl"))
			require.NoError(t, err)
			require.Equal(t, text[1], string(got), name)
		}
	}
	require.NoError(t, CutSpools(filepath.Join(dir, "nothing")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "events", "folder.jsonl"), 0o755))
	require.ErrorContains(t, CutSpools(dir), "folder.jsonl")
}
