package traces

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"conform/spec"
)

// ending says how a line ended.
type ending int

const (
	endLF   ending = iota // with a line feed
	endFile               // with the file
	endTorn               // where a zstd frame is torn: nothing follows
)

var (
	errTornFrame = errors.New("a torn zstd frame")
	errLineLimit = errors.New("line limit")
)

// lineScanner splits a stream into lines and holds no more than one of them.
type lineScanner struct {
	in    *bufio.Reader
	long  []byte // a line that does not fit into in
	limit int    // of a line, in bytes
}

func newLineScanner(in io.Reader, limit int) *lineScanner {
	return &lineScanner{in: bufio.NewReaderSize(in, 64<<10), limit: limit}
}

// next returns the next line without its line feed; it is valid until the next
// call. After the last one it returns io.EOF. A torn frame gives what was left
// of the line, perhaps nothing.
func (s *lineScanner) next() ([]byte, ending, error) {
	s.long = s.long[:0]
	for {
		part, err := s.in.ReadSlice('\n')
		if len(s.long)+len(part) > s.limit+1 || len(s.long)+len(part) > s.limit && err != nil {
			return nil, endLF, errLineLimit
		}
		line := part
		if len(s.long) > 0 || errors.Is(err, bufio.ErrBufferFull) {
			s.long = append(s.long, part...)
			line = s.long
		}
		switch {
		case err == nil:
			return line[:len(line)-1], endLF, nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, errTornFrame):
			return line, endTorn, nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, endFile, nil
		}
		return nil, endFile, err
	}
}

// openLines returns the decompressed bytes of in, which is zstd where its name
// or its first bytes say so. The caller calls done when it has read enough.
func openLines(in io.Reader, zst bool) (r io.Reader, done func(), err error) {
	buffered := bufio.NewReaderSize(in, 64<<10)
	if head, _ := buffered.Peek(4); !zst && !isZstd(head) {
		return buffered, func() {}, nil
	}
	src := &markedReader{in: buffered}
	dec, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, nil, fmt.Errorf("zstd decoder: %w", err)
	}
	return &zstdReader{src: src, dec: dec}, dec.Close, nil
}

// isZstd knows the magic number of a frame and of a skippable frame.
func isZstd(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18})
}

// markedReader remembers a failure of the file itself, so that it is not taken
// for a defect of the compression.
type markedReader struct {
	in  io.Reader
	err error
	n   int64 // bytes so far
}

func (m *markedReader) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	m.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	return n, err
}

// zstdReader turns the decoder's errors into the two that matter here: the
// stream ended within a frame, or it is no zstd stream.
type zstdReader struct {
	src *markedReader
	dec *zstd.Decoder
	n   int64 // decompressed bytes so far
}

// A stream that grows beyond bombBytes may grow to bombRatio times its size. What
// recorders write grows to some 10 to 50 times.
const (
	bombBytes = 64 << 20
	bombRatio = 250
)

func (z *zstdReader) Read(p []byte) (int, error) {
	n, err := z.dec.Read(p)
	z.n += int64(n)
	if z.n > bombBytes && z.n/bombRatio > z.src.n {
		return 0, &spec.FieldError{
			Found:    fmt.Sprintf("a zstd stream of which %d bytes make %d", z.src.n, z.n),
			Expected: fmt.Sprintf("one that grows to at most %d times its size", bombRatio),
		}
	}
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case z.src.err != nil:
		return n, z.src.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, errTornFrame
	}
	return n, &spec.FieldError{Found: "a damaged zstd stream: " + err.Error(), Expected: "zstd frames"}
}
