package faults

import "net/http"

// HTTPProxyOptions say where a proxy stands.
type HTTPProxyOptions struct {
	Listen   string // "127.0.0.1:0" by default
	Upstream string // host:port of the server behind it
	From, To string // worker roles or ids of the two ends
	Engine   *Engine
	// Decode adds what the request says about itself (its Req, say). Kind, Name,
	// From and To are filled in where it leaves them empty. It may be nil.
	Decode func(r *http.Request, body []byte) Point
}

// HTTPProxy stands between HTTP clients and one server.
type HTTPProxy struct{}

// NewHTTPProxy starts a proxy.
func NewHTTPProxy(opt HTTPProxyOptions) (*HTTPProxy, error) { return &HTTPProxy{}, nil }

// Addr is the host:port that clients connect to.
func (p *HTTPProxy) Addr() string { return "" }

// SetUpstream changes where new requests go.
func (p *HTTPProxy) SetUpstream(addr string) {}

// Close ends every request and waits for the proxy's goroutines.
func (p *HTTPProxy) Close() error { return nil }
