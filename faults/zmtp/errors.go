package zmtp

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by a socket that has been closed.
var ErrClosed = errors.New("zmtp: the socket is closed")

// ProtocolError says that a peer does not speak ZMTP as this package expects it.
type ProtocolError struct {
	Found    string
	Expected string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("zmtp: found %s, expected %s", e.Found, e.Expected)
}

// LimitError says that a peer sent more than [Limits] allow.
type LimitError struct {
	What string // "bytes of a frame", "frames of a message", …
	Got  uint64
	Max  int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("zmtp: %d %s, at most %d are allowed", e.Got, e.What, e.Max)
}
