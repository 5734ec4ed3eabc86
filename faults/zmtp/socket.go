package zmtp

import (
	"context"
	"time"
)

// Pull is a bound PULL socket.
type Pull struct{}

// Listen binds a PULL socket.
func Listen(addr string) (*Pull, error) { return &Pull{}, nil }

// Addr is the host:port that it is bound to.
func (p *Pull) Addr() string { return "" }

// Recv waits for the next message, fairly over the connections.
func (p *Pull) Recv(ctx context.Context) ([][]byte, error) { return nil, ErrClosed }

// Close ends every connection and waits for the socket's goroutines.
func (p *Pull) Close() error { return nil }

// DialOptions bound a PUSH socket. Zero values mean the defaults.
type DialOptions struct {
	HWM        int           // messages queued at most; default 1000
	MinBackoff time.Duration // first wait after a lost connection; default 10 ms
	MaxBackoff time.Duration // longest wait; default 1 s
}

// Push is a PUSH socket that connects.
type Push struct{}

// Dial makes a PUSH socket. It connects in the background, and again when the connection is lost.
func Dial(addr string, opt DialOptions) *Push { return &Push{} }

// Send queues a message; it blocks while the queue is full.
func (p *Push) Send(ctx context.Context, msg [][]byte) error { return ErrClosed }

// Close writes what is queued, within ctx, and ends the connection.
func (p *Push) Close(ctx context.Context) error { return nil }
