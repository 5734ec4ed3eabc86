package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	batchMessages = 64
	batchBytes    = 256 << 10
)

// DialOptions bound a PUSH socket. Zero values mean the defaults.
type DialOptions struct {
	HWM        int           // messages queued at most, the high-water mark; default 1000
	MinBackoff time.Duration // first wait after a lost connection; default 10 ms
	MaxBackoff time.Duration // longest wait, reached by doubling; default 200 ms
	Limits     Limits        // on what a message may be, and on what the peer sends
}

func (o DialOptions) withDefaults() DialOptions {
	if o.HWM <= 0 {
		o.HWM = 1000
	}
	if o.MinBackoff <= 0 {
		o.MinBackoff = 10 * time.Millisecond
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = 200 * time.Millisecond
	}
	o.MaxBackoff = max(o.MaxBackoff, o.MinBackoff)
	o.Limits = o.Limits.withDefaults()
	return o
}

// Push is a PUSH socket that connects to one peer.
type Push struct {
	addr   string
	opt    DialOptions
	queue  chan [][]byte
	ctx    context.Context // ends when Close gives up
	cancel context.CancelFunc
	done   chan struct{} // closed when run has ended

	closing   chan struct{} // closed when Close was called
	closeOnce sync.Once
	senders   sync.RWMutex  // held for reading by a Send that may still queue
	sealed    chan struct{} // closed when nothing more can be queued

	unsent [][][]byte // of run: taken from the queue, not known to be written
	left   int        // of run, read after done: messages that were not written

	connections atomic.Int64 // open now: 0 or 1
}

// Dial makes a PUSH socket for a host:port or tcp://host:port. It returns at
// once, connects in the background, and does so again, with growing waits, as
// often as the connection is lost.
func Dial(addr string, opt DialOptions) *Push {
	opt = opt.withDefaults()
	p := &Push{
		addr: trimScheme(addr), opt: opt,
		queue:   make(chan [][]byte, opt.HWM),
		done:    make(chan struct{}),
		closing: make(chan struct{}),
		sealed:  make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	go p.run()
	return p
}

// Send queues a message of at least one frame, which must not be changed
// afterwards. It blocks while the queue is full. The error is ctx's,
// [ErrClosed], or a *[LimitError].
func (p *Push) Send(ctx context.Context, msg [][]byte) error {
	if err := p.check(msg); err != nil {
		return err
	}
	p.senders.RLock()
	defer p.senders.RUnlock()
	select {
	case <-p.closing:
		return ErrClosed
	default:
	}
	select {
	case p.queue <- msg:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closing:
		return ErrClosed
	}
}

func (p *Push) check(msg [][]byte) error {
	if len(msg) == 0 {
		return &ProtocolError{"a message without frames", "at least one frame"}
	}
	lim, total := p.opt.Limits, 0
	if len(msg) > lim.Frames {
		return &LimitError{"frames of a message", uint64(len(msg)), lim.Frames}
	}
	for _, f := range msg {
		if len(f) > lim.FrameBytes {
			return &LimitError{"bytes of a frame", uint64(len(f)), lim.FrameBytes}
		}
		total += len(f)
	}
	if total > lim.MessageBytes {
		return &LimitError{"bytes of a message", uint64(total), lim.MessageBytes}
	}
	return nil
}

// Close writes what is queued, within ctx, and ends the connection. The error
// says how many messages were not written. Sends that wait are refused.
func (p *Push) Close(ctx context.Context) error {
	p.closeOnce.Do(func() {
		close(p.closing)
		p.senders.Lock() // after the last Send that could still queue
		close(p.sealed)
		p.senders.Unlock()
	})
	defer p.cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.cancel()
		<-p.done
	}
	if p.left > 0 {
		err := ctx.Err()
		if err == nil {
			err = ErrClosed // another Close gave up first
		}
		return fmt.Errorf("zmtp: %d messages were not sent: %w", p.left, err)
	}
	return nil
}

func (p *Push) run() {
	defer close(p.done)
	wait := p.opt.MinBackoff
	for p.ctx.Err() == nil && !p.finished() {
		connected, err := p.session()
		if err == nil {
			break
		}
		if connected {
			wait = p.opt.MinBackoff
		}
		p.backoff(wait)
		wait = min(2*wait, p.opt.MaxBackoff)
	}
	p.left = len(p.unsent) + len(p.queue)
}

// finished: everything that was ever queued has been written.
func (p *Push) finished() bool {
	select {
	case <-p.sealed:
		return len(p.unsent) == 0 && len(p.queue) == 0
	default:
		return false
	}
}

// backoff waits, but not for a socket that is being closed with nothing left.
func (p *Push) backoff(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	sealed := p.sealed
	if p.isSealed() {
		sealed = nil // there is something left to send: the wait counts
	}
	select {
	case <-t.C:
	case <-sealed:
	case <-p.ctx.Done():
	}
}

func (p *Push) isSealed() bool {
	select {
	case <-p.sealed:
		return true
	default:
		return false
	}
}

// session is one connection, from dialling to its end. It returns nil when
// everything was written and the socket is being closed.
func (p *Push) session() (connected bool, err error) {
	var d net.Dialer
	conn, err := d.DialContext(p.ctx, "tcp", p.addr)
	if err != nil {
		return false, fmt.Errorf("zmtp: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(p.ctx, func() { _ = conn.Close() })
	defer stop()
	r, err := handshake(conn, "PUSH", "PULL", p.opt.Limits, handshakeWithin)
	if err != nil {
		return false, err
	}
	p.connections.Add(1)
	defer p.connections.Add(-1)
	peer := &peer{conn: conn, gone: make(chan struct{})}
	go peer.listen(r)
	err = p.write(peer)
	if err == nil {
		peer.hangUp(p.ctx)
	}
	_ = conn.Close()
	<-peer.gone
	return true, err
}

// write sends the queue until the peer is gone (an error) or the socket is
// closed and the queue empty (nil).
func (p *Push) write(to *peer) error {
	var buf []byte
	for {
		if err := p.gather(to); err != nil || len(p.unsent) == 0 {
			return err
		}
		var ends []int // where each message of the batch ends in buf
		buf = buf[:0]
		for _, msg := range p.unsent {
			buf = AppendMessage(buf, msg)
			ends = append(ends, len(buf))
		}
		n, err := to.write(buf)
		sent := 0
		for sent < len(ends) && ends[sent] <= n {
			sent++
		}
		// The rest did not leave whole: the peer cannot have it, so sending it
		// again over the next connection cannot send it twice.
		p.unsent = p.unsent[sent:]
		if err != nil {
			return fmt.Errorf("zmtp: %w", err)
		}
		if cap(buf) > 4*batchBytes {
			buf = nil
		}
	}
}

// gather takes the next batch off the queue. It leaves unsent empty when there
// will be none.
func (p *Push) gather(to *peer) error {
	if to.isGone() {
		return errPeerGone
	}
	bytes := 0
	if len(p.unsent) == 0 {
		select {
		case msg := <-p.queue:
			p.unsent = append(p.unsent[:0:0], msg)
		case <-to.gone:
			return errPeerGone
		case <-p.ctx.Done():
			return p.ctx.Err()
		case <-p.sealed:
			if len(p.queue) == 0 {
				return nil
			}
		}
	}
	for _, msg := range p.unsent {
		bytes += Item{Message: msg}.Bytes()
	}
	for len(p.unsent) < batchMessages && bytes < batchBytes {
		select {
		case msg := <-p.queue:
			p.unsent = append(p.unsent, msg)
			bytes += Item{Message: msg}.Bytes()
		default:
			return nil
		}
	}
	return nil
}

var errPeerGone = errors.New("zmtp: the peer ended the connection")

// peer is the other end of one connection of a Push.
type peer struct {
	conn net.Conn
	mu   sync.Mutex // writes are of whole frames
	gone chan struct{}
}

func (c *peer) write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Write(b)
}

func (c *peer) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// listen answers heartbeats and notices the end. It closes the connection, so
// that a write that waits for a dead peer ends too.
func (c *peer) listen(r *Reader) {
	defer close(c.gone)
	defer c.conn.Close()
	for {
		it, err := r.Next()
		if err != nil {
			return
		}
		if it.Message != nil {
			return // a PULL socket sends none
		}
		reply, err := pong(it.Command)
		if err != nil {
			return
		}
		if reply == nil {
			continue
		}
		if _, err := c.write(reply); err != nil {
			return
		}
	}
}

// hangUp ends the connection in an orderly way: a close with unread bytes on our
// side would make the kernel throw away what the peer has not read yet.
func (c *peer) hangUp(ctx context.Context) {
	tcp, ok := c.conn.(*net.TCPConn)
	if !ok || tcp.CloseWrite() != nil {
		return
	}
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-c.gone:
	case <-t.C:
	case <-ctx.Done():
	}
}
