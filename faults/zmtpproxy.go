package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"conform/faults/zmtp"
)

// Decoder tells what a ZeroMQ message is. What it does not know passes
// untouched and is counted. It must not keep or change the message. It leaves
// Kind, From and To empty for the proxy to fill in, or sets them itself.
type Decoder func(msg [][]byte) (Point, bool)

// ZMTPProxyOptions say where a proxy stands.
type ZMTPProxyOptions struct {
	Listen   string // "127.0.0.1:0" by default
	Upstream string // host:port of the socket behind it
	From, To string // worker roles or ids of the two ends: who connects, who is bound
	Decode   Decoder
	Engine   *Engine
	Limits   zmtp.Limits // of one message; a connection that exceeds them is cut
	// Rewrite changes a message that Decode knew, in whichever direction it goes,
	// after the decision and only if it passes: once for the message and once for
	// its copies. It must leave msg and its frames as they are and return another
	// message, or msg itself where nothing changes; one without frames counts as
	// no change. It may be nil.
	Rewrite func(msg [][]byte) [][]byte
}

const (
	dialWithin    = 5 * time.Second
	maxProxyLinks = 1024     // connections of one proxy
	maxHeld       = 4096     // messages held on one connection, per direction …
	maxHeldBytes  = 64 << 20 // … and their bytes; beyond that, the connection waits
	acceptBackoff = 10 * time.Millisecond
	defaultListen = "127.0.0.1:0"
)

// ZMTPProxy stands between a ZeroMQ socket that connects and one that is bound.
// It takes part in nothing: greetings and commands pass as they are, whatever
// the sockets' types. Messages pass, in both directions, as the engine decides.
//
// For each connection it makes one of its own, so that what the client sees is
// what the upstream does: a dead upstream closes the connection. A client that
// goes away leaves what it had sent on its way, as a network does.
//
// A message that is held or delayed lets the ones behind it pass, unless the
// rule says `ordered`.
type ZMTPProxy struct {
	opt     ZMTPProxyOptions
	ln      net.Listener
	own     *owner
	unknown atomic.Int64

	mu       sync.Mutex
	upstream string
	links    map[*link]struct{}
}

// NewZMTPProxy starts a proxy. It must be closed.
func NewZMTPProxy(opt ZMTPProxyOptions) (*ZMTPProxy, error) {
	if opt.Engine == nil || opt.Decode == nil {
		return nil, errors.New("faults: a ZMTP proxy needs an engine and a decoder")
	}
	if opt.Listen == "" {
		opt.Listen = defaultListen
	}
	ln, err := net.Listen("tcp", opt.Listen)
	if err != nil {
		return nil, fmt.Errorf("faults: ZMTP proxy: %w", err)
	}
	p := &ZMTPProxy{opt: opt, ln: ln, own: newOwner(), upstream: opt.Upstream, links: map[*link]struct{}{}}
	p.own.spawn(p.accept)
	return p, nil
}

// Addr is the host:port that clients connect to.
func (p *ZMTPProxy) Addr() string { return p.ln.Addr().String() }

// SetUpstream changes where new connections go. Those that there are stay.
func (p *ZMTPProxy) SetUpstream(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = addr
}

// Unknown counts what passed without being understood: messages that the
// decoder did not know, and connections that are not ZMTP, or are encrypted.
func (p *ZMTPProxy) Unknown() int { return int(p.unknown.Load()) }

// Close ends every connection, drops what is held, and waits for the proxy's
// goroutines.
func (p *ZMTPProxy) Close() error {
	p.own.shut()
	err := p.ln.Close()
	p.mu.Lock()
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.own.wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("faults: ZMTP proxy: %w", err)
	}
	return nil
}

func (p *ZMTPProxy) accept() {
	for {
		conn, err := p.ln.Accept()
		switch {
		case p.own.ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			select {
			case <-time.After(acceptBackoff):
			case <-p.own.ctx.Done():
			}
		case !p.own.spawn(func() { p.serve(conn) }):
			_ = conn.Close()
		}
	}
}

func (p *ZMTPProxy) serve(client net.Conn) {
	p.mu.Lock()
	upstream, full := p.upstream, len(p.links) >= maxProxyLinks
	p.mu.Unlock()
	if full {
		_ = client.Close()
		return
	}
	d := net.Dialer{Timeout: dialWithin}
	server, err := d.DialContext(p.own.ctx, "tcp", upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	l := p.link(client, server)
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	if p.own.ctx.Err() != nil {
		l.close()
	}
	var back sync.WaitGroup
	back.Go(func() { l.back.run() })
	l.forth.run()
	back.Wait()
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// link is one connection of a client with the one that the proxy made for it.
type link struct {
	client, server net.Conn
	forth, back    *flow
	cutOnce        sync.Once
	ctx            context.Context // ends with the link
	cancel         context.CancelFunc
}

func (p *ZMTPProxy) link(client, server net.Conn) *link {
	l := &link{client: client, server: server}
	l.ctx, l.cancel = context.WithCancel(p.own.ctx)
	l.forth = &flow{proxy: p, link: l, src: client, dst: server, from: p.opt.From, to: p.opt.To}
	l.back = &flow{proxy: p, link: l, src: server, dst: client, from: p.opt.To, to: p.opt.From}
	l.forth.other, l.back.other = l.back, l.forth
	for _, f := range []*flow{l.forth, l.back} {
		f.ctx, f.cancel = context.WithCancel(l.ctx)
	}
	return l
}

func (l *link) close() {
	l.cancel()
	_ = l.client.Close()
	_ = l.server.Close()
}

// cutAfter breaks the connection once a partition that dropped one of its
// messages is over: no network delivers what comes after a gap.
func (l *link) cutAfter(o *owner, part *partition) {
	l.cutOnce.Do(func() {
		o.spawn(func() {
			select {
			case <-part.healed:
			case <-l.ctx.Done():
			}
			l.close()
		})
	})
}
