// Package failpoint lets a worker process ask the harness about faults on the
// payload path, where no proxy stands.
package failpoint

import (
	"context"

	"conform/faults"
)

// Server answers the questions of workers.
type Server struct{}

// Serve listens on a loopback address.
func Serve(listen string, e *faults.Engine) (*Server, error) { return &Server{}, nil }

// Addr is the host:port that workers connect to.
func (s *Server) Addr() string { return "" }

// Close ends every connection and waits for the server's goroutines.
func (s *Server) Close() error { return nil }

// Client is a worker's end.
type Client struct{}

// Connect reaches the harness. worker is what Pass puts into Point.From where it is empty.
func Connect(ctx context.Context, addr string, worker string) (*Client, error) {
	return &Client{}, nil
}

// Pass asks what happens to p. If the harness is gone the answer is Forward, at once.
func (c *Client) Pass(ctx context.Context, p faults.Point) faults.Action { return faults.Action{} }

// Tap hands a recorded event's line to the harness, without waiting.
func (c *Client) Tap(line []byte) {}

// Dropped counts the lines that Tap had no room for.
func (c *Client) Dropped() int64 { return 0 }

// Close ends the connection; later questions are answered Forward.
func (c *Client) Close() error { return nil }
