package zmtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	handshakeWithin = 30 * time.Second // as libzmq
	maxConnections  = 1024             // of one Pull
)

// Pull is a bound PULL socket.
type Pull struct {
	ln     net.Listener
	lim    Limits
	ch     chan [][]byte
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}

	malformed atomic.Int64
}

// Listen binds a PULL socket to a host:port, or to a ZeroMQ address
// tcp://host:port. Port 0 takes a free one.
func Listen(addr string) (*Pull, error) {
	ln, err := net.Listen("tcp", trimScheme(addr))
	if err != nil {
		return nil, fmt.Errorf("zmtp: %w", err)
	}
	p := &Pull{ln: ln, ch: make(chan [][]byte), conns: map[net.Conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

func trimScheme(addr string) string { return strings.TrimPrefix(addr, "tcp://") }

// Addr is the host:port that it is bound to.
func (p *Pull) Addr() string { return p.ln.Addr().String() }

// Recv waits for the next message. Within one connection messages keep their
// order; between connections they are taken in turn. The error is ctx's, or
// [ErrClosed].
func (p *Pull) Recv(ctx context.Context) ([][]byte, error) {
	select {
	case msg := <-p.ch:
		return msg, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ctx.Done():
		return nil, ErrClosed
	}
}

// Malformed counts the connections that ended because the peer broke the
// protocol or a limit.
func (p *Pull) Malformed() int { return int(p.malformed.Load()) }

// Close ends every connection and waits for the socket's goroutines. What was
// not received is lost.
func (p *Pull) Close() error {
	p.cancel()
	err := p.ln.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("zmtp: %w", err)
	}
	return nil
}

func (p *Pull) accept() {
	for {
		conn, err := p.ln.Accept()
		if p.ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			// Out of descriptors, or a connection gone before it was taken: the
			// listener lives on.
			sleep(p.ctx, 10*time.Millisecond)
			continue
		}
		if !p.add(conn) {
			_ = conn.Close()
			continue
		}
		p.wg.Go(func() { p.serve(conn) })
	}
}

func (p *Pull) add(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || len(p.conns) >= maxConnections {
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *Pull) serve(conn net.Conn) {
	defer func() {
		p.mu.Lock()
		delete(p.conns, conn)
		p.mu.Unlock()
		_ = conn.Close()
	}()
	err := p.receive(conn)
	var protocol *ProtocolError
	var limit *LimitError
	if errors.As(err, &protocol) || errors.As(err, &limit) {
		p.malformed.Add(1)
	}
}

// receive hands over one connection's messages. The channel has no buffer: each
// connection waits with one message, and Go serves waiting senders in the order
// in which they came, which makes Recv fair. It returns why the connection ended.
func (p *Pull) receive(conn net.Conn) error {
	r, err := handshake(conn, "PULL", "PUSH", p.lim, handshakeWithin)
	if err != nil {
		return err
	}
	for {
		it, err := r.Next()
		if err != nil {
			return err
		}
		if it.Message == nil {
			if err := answer(conn, it.Command); err != nil {
				return err
			}
			continue
		}
		if err := p.hand(it.Message); err != nil {
			return err
		}
	}
}

func (p *Pull) hand(msg [][]byte) error {
	select {
	case p.ch <- msg:
		return nil
	case <-p.ctx.Done():
		return ErrClosed
	}
}

func answer(w io.Writer, command []byte) error {
	reply, err := pong(command)
	if err != nil || reply == nil {
		return err
	}
	_, err = w.Write(reply)
	return err
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
