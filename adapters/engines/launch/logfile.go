package launch

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
)

const (
	tailLines = 20       // of a log, in errors and exits
	tailBytes = 16 << 10 // at most that much of it is read
)

// tail is the last n lines of a file, at most 16 KiB; "" if it can't be read.
func tail(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := max(0, size-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return ""
	}
	if from > 0 { // the first line may have lost its beginning
		if _, rest, found := bytes.Cut(data, []byte("\n")); found {
			data = rest
		}
	}
	lines := strings.Split(strings.TrimRight(string(bytes.ToValidUTF8(data, []byte("?"))), "\n"), "\n")
	return strings.Join(lines[len(lines)-min(max(0, n), len(lines)):], "\n")
}

// A scanner looks for texts in a file that grows. It reads each byte once.
type scanner struct {
	path   string
	texts  []string
	file   *os.File
	rest   []byte // the end of what was read: a text may go on behind it
	buffer []byte
}

// next reads on to the end of the file. It gives the index of the text that comes
// first in what is new, or -1.
func (s *scanner) next() (int, error) {
	if s.file == nil {
		f, err := os.Open(s.path)
		if err != nil {
			return -1, err
		}
		s.file, s.buffer = f, make([]byte, 32<<10)
	}
	for {
		n, err := s.file.Read(s.buffer)
		s.rest = append(s.rest, s.buffer[:n]...)
		if found := s.first(); found >= 0 {
			return found, nil
		}
		if errors.Is(err, io.EOF) || (err == nil && n == 0) {
			return -1, nil
		}
		if err != nil {
			return -1, err
		}
	}
}

// first is the text that begins first in rest, or -1; then only as much of rest is
// kept as the beginning of a text can be.
func (s *scanner) first() int {
	found, at, longest := -1, len(s.rest)+1, 0
	for i, text := range s.texts {
		longest = max(longest, len(text))
		if j := bytes.Index(s.rest, []byte(text)); j >= 0 && j < at {
			found, at = i, j
		}
	}
	if keep := longest - 1; found < 0 && len(s.rest) > keep {
		s.rest = append(s.rest[:0], s.rest[len(s.rest)-max(0, keep):]...)
	}
	return found
}

func (s *scanner) close() {
	if s.file != nil {
		s.file.Close()
	}
}
