package faults

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"time"
)

const (
	maxRequestBytes = 32 << 20
	maxAnswerBytes  = 1 << 20     // of an answer that is shown to Answer
	copyWithin      = time.Minute // a duplicated request's own time
	headersWithin   = 30 * time.Second
)

// HTTPProxyOptions say where a proxy stands.
type HTTPProxyOptions struct {
	Listen   string // "127.0.0.1:0" by default
	Upstream string // host:port of the server behind it
	From, To string // worker roles or ids of the two ends
	Engine   *Engine
	// Decode adds what the request says about itself (its Req, say). Kind, Name,
	// From and To are filled in where it leaves them empty. It may be nil. It must
	// neither read r.Body nor keep body.
	Decode func(r *http.Request, body []byte) Point
	// Answer alters the body of an answer: it gets the request as it went to the
	// server, and what the server answered, and returns the body that goes to the
	// client; nil leaves the answer as it is. It may be called from many goroutines
	// at once, and must not change body or r. Answers that have no body, and those
	// of more than 1 MiB, are not shown to it and pass as they are. It may be nil;
	// if it is not, an answer goes to the client only once it is complete, so it is
	// for servers that do not stream.
	Answer func(r *http.Request, status int, header http.Header, body []byte) []byte
}

// HTTPProxy stands between HTTP clients and one server. Answers stream through
// chunk by chunk (without the option Answer). A client that goes away is gone for the server at once; a
// server that is dead is dead for the client: its connection is closed, and no
// answer of the proxy's own stands in for one.
//
// Requests of more than 32 MiB are refused with status 413.
type HTTPProxy struct {
	opt    HTTPProxyOptions
	ln     net.Listener
	own    *owner
	server *http.Server
	proxy  *httputil.ReverseProxy
	client *http.Transport

	mu       sync.Mutex
	upstream string
}

// NewHTTPProxy starts a proxy. It must be closed.
func NewHTTPProxy(opt HTTPProxyOptions) (*HTTPProxy, error) {
	if opt.Engine == nil {
		return nil, errors.New("faults: an HTTP proxy needs an engine")
	}
	if opt.Listen == "" {
		opt.Listen = defaultListen
	}
	ln, err := net.Listen("tcp", opt.Listen)
	if err != nil {
		return nil, fmt.Errorf("faults: HTTP proxy: %w", err)
	}
	p := &HTTPProxy{opt: opt, ln: ln, own: newOwner(), upstream: opt.Upstream}
	quiet := log.New(io.Discard, "", 0)
	p.client = &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialWithin}).DialContext,
		// A kept connection could belong to a worker's earlier life, and would
		// fail a request that the new one could serve.
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", p.target()
			r.Out.Host = r.In.Host
		},
		Transport: p.client, FlushInterval: -1, ErrorLog: quiet, ModifyResponse: p.alter,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.handle), ErrorLog: quiet, ReadHeaderTimeout: headersWithin,
		BaseContext: func(net.Listener) context.Context { return p.own.ctx },
	}
	p.own.spawn(func() { _ = p.server.Serve(ln) })
	return p, nil
}

// Addr is the host:port that clients connect to.
func (p *HTTPProxy) Addr() string { return p.ln.Addr().String() }

// SetUpstream changes where new requests go.
func (p *HTTPProxy) SetUpstream(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = addr
}

func (p *HTTPProxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
}

// Close ends every request and waits for the proxy's goroutines.
func (p *HTTPProxy) Close() error {
	p.own.shut()
	err := p.server.Close()
	p.own.wait()
	p.client.CloseIdleConnections()
	if err != nil {
		return fmt.Errorf("faults: HTTP proxy: %w", err)
	}
	return nil
}

// handle serves one request. Its panics are [http.ErrAbortHandler]: the way to
// make net/http close the connection without an answer.
func (p *HTTPProxy) handle(w http.ResponseWriter, r *http.Request) {
	leave, ok := p.own.enter()
	if !ok {
		panic(http.ErrAbortHandler)
	}
	defer leave()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, "the request is larger than the fault proxy takes", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		panic(http.ErrAbortHandler)
	}
	point := p.point(r, body)
	action := p.opt.Engine.Pass(r.Context(), point)
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone meanwhile
	}
	switch action.Do {
	case Drop:
		panic(http.ErrAbortHandler)
	case Fail:
		http.Error(w, "a fault of the plan", http.StatusServiceUnavailable)
		return
	case Duplicate:
		p.own.spawn(p.copies(r, body, action))
	case Forward:
	}
	ctx, abort := context.WithCancel(r.Context())
	defer abort()
	defer p.opt.Engine.fly(point, abort)()
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.proxy.ServeHTTP(w, r)
}

// alter shows an answer to the option Answer. An answer that breaks off half way
// is an error, which breaks the client's connection too.
func (p *HTTPProxy) alter(answer *http.Response) error {
	bodiless := answer.Request.Method == http.MethodHead || answer.StatusCode < http.StatusOK ||
		answer.StatusCode == http.StatusNoContent || answer.StatusCode == http.StatusNotModified
	if p.opt.Answer == nil || bodiless {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	if err != nil {
		return fmt.Errorf("faults: HTTP proxy: the answer broke off: %w", err)
	}
	if len(body) > maxAnswerBytes {
		answer.Body = resumed{io.MultiReader(bytes.NewReader(body), answer.Body), answer.Body}
		return nil
	}
	altered := p.opt.Answer(answer.Request, answer.StatusCode, answer.Header, body)
	_ = answer.Body.Close()
	if altered == nil {
		altered = body
	} else {
		answer.Header.Set("Content-Length", strconv.Itoa(len(altered)))
		answer.ContentLength, answer.TransferEncoding = int64(len(altered)), nil
	}
	answer.Body = io.NopCloser(bytes.NewReader(altered))
	return nil
}

// resumed is a body of which the beginning has been read already.
type resumed struct {
	io.Reader
	io.Closer
}

func (p *HTTPProxy) point(r *http.Request, body []byte) Point {
	var pt Point
	if p.opt.Decode != nil {
		pt = p.opt.Decode(r, body)
	}
	pt.Kind = KindHTTP
	pt.Name = cmp.Or(pt.Name, r.Method+" "+r.URL.Path)
	pt.From = cmp.Or(pt.From, p.opt.From)
	pt.To = cmp.Or(pt.To, p.opt.To)
	return pt
}

// copies makes what sends a request again, as a client's retry would, and
// throws the answers away.
func (p *HTTPProxy) copies(r *http.Request, body []byte, a Action) func() {
	ctx, header := p.own.ctx, r.Header.Clone()
	method, uri, host := r.Method, r.URL.RequestURI(), r.Host
	return func() {
		if a.After > 0 {
			select {
			case <-p.opt.Engine.clock.After(a.After):
			case <-ctx.Done():
				return
			}
		}
		for range a.Copies {
			p.again(ctx, method, uri, host, header, body)
		}
	}
}

func (p *HTTPProxy) again(ctx context.Context, method, uri, host string, header http.Header, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, copyWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.target()+uri, bytes.NewReader(body))
	if err != nil {
		return
	}
	r.Header, r.Host = header.Clone(), host
	answer, err := p.client.RoundTrip(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
}
