package traces

import (
	"bytes"
	"io"
	"os"
	"strings"
)

const (
	// expectBytes is from which size of a file on its lines are counted first.
	expectBytes = 1 << 20
	// leastLine is shorter than any line that is an event.
	leastLine = 32
)

// expect counts the lines of files before they are read, so that long traces get
// room for all events at once: grown in chunks, they take twice the memory for a
// moment at the end. What can't be read twice, or at all, is not counted.
func (r *reader) expect(paths ...string) {
	if r.each != nil { // none is kept
		return
	}
	lines := int64(0)
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() >= expectBytes {
			lines += countLines(path, r.lim.TotalBytes)
		}
	}
	r.expected = int(min(lines, int64(r.lim.Events)))
}

// countLines counts the lines of a file, up to some bytes, but never more than
// there can be events in that many bytes.
func countLines(path string, most int64) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0 // reading it says why
	}
	defer func() { _ = f.Close() }() // only read from
	plain, done, err := openLines(f, strings.HasSuffix(path, ".zst"))
	if err != nil {
		return 0
	}
	defer done()
	lines, size, buf := int64(0), int64(0), make([]byte, 256<<10)
	for in := io.LimitReader(plain, most); ; {
		n, err := in.Read(buf)
		lines, size = lines+int64(bytes.Count(buf[:n], []byte{'\n'})), size+int64(n)
		if err != nil {
			return min(lines+1, size/leastLine)
		}
	}
}
