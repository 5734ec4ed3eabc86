package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// What is read of one answer, in bytes, at most: of a whole one or a piece of a stream,
// and of all pieces, each of which may hold everything so far.
const (
	MaxAnswer = 16 << 20
	maxStream = 1 << 30
)

// ErrTooLong is an answer, or a piece of one, above [MaxAnswer].
var ErrTooLong = fmt.Errorf("the answer is longer than %d bytes", MaxAnswer)

// ReadAnswer reads an answer that comes in one piece.
func ReadAnswer(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer ends in its middle: %w", err)
	case len(b) > MaxAnswer:
		return nil, ErrTooLong
	}
	return b, nil
}

// ReadPieces reads an answer that comes as server-sent events, and gives each, up to
// the one that says that it was the last. Without that one it is an error.
func ReadPieces[T any](r io.Reader, each func(piece T)) error {
	lines := bufio.NewScanner(io.LimitReader(r, maxStream))
	lines.Buffer(nil, MaxAnswer)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(lines.Bytes()), []byte("data:"))
		if !ok {
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			return nil
		}
		var piece T
		if err := json.Unmarshal(data, &piece); err != nil {
			return fmt.Errorf("a piece of the answer is no JSON: %w", err)
		}
		each(piece)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return ErrTooLong
	}
	return errors.Join(errors.New("the answer ends without its last piece"), lines.Err())
}
