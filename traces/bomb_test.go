package traces

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"conform/spec"
)

// A small file that would fill the memory with lines that are fine is bad input.
func TestZstdBomb(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl.zst")
	f, err := os.Create(path)
	require.NoError(t, err)
	enc, err := zstd.NewWriter(f)
	require.NoError(t, err)
	fmt.Fprintln(enc, `{"src":"D","seq":0,"t":0,"k":"source","worker":"d0","role":"decode","host":"h","clock":"m"}`)
	long := strings.Repeat("a", 1<<20)
	for i := range 200 {
		fmt.Fprintf(enc, `{"src":"D","seq":%d,"t":0,"k":"note","text":"%s"}`+"\n", i+1, long)
	}
	require.NoError(t, enc.Close())
	require.NoError(t, f.Close())
	_, err = Read(path, nil)
	var bad *BadInput
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Expected, "250 times")
	require.Less(t, bad.Line, 70, "it is not read to its end")
	whole, err := Stream(context.Background(), path, func(*spec.Event, int32, int32) bool { return true })
	require.NoError(t, err)
	require.False(t, whole)
}
