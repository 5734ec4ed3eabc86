package zmtp

import "errors"

// ErrClosed is returned by a socket that has been closed.
var ErrClosed = errors.New("zmtp: the socket is closed")
