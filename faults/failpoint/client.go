package failpoint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"conform/faults"
)

const (
	maxQueue      = 8192     // lines that wait to be written …
	maxQueueBytes = 16 << 20 // … and their bytes
)

// Client is a worker's end. Its methods may be called from many goroutines.
type Client struct {
	worker    string
	conn      net.Conn
	kinds     []string
	interests []faults.Interest
	events    [][]byte // `"k":"alloc"` of each event that the plan looks at; a coarse sieve

	queue      chan []byte
	queueBytes atomic.Int64
	dropped    atomic.Int64
	reported   int64 // of the writer: how many of dropped it has told

	closing   chan struct{}
	closeOnce sync.Once
	gone      chan struct{} // closed when the connection has ended
	wg        sync.WaitGroup

	mu   sync.Mutex
	next uint64
	open map[uint64]chan faults.Action
}

// Connect reaches the harness, within ctx. worker names the process in the
// questions that do not say From.
func Connect(ctx context.Context, addr string, worker string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("failpoint: %w", err)
	}
	c := &Client{
		worker: worker, conn: conn,
		queue:   make(chan []byte, maxQueue),
		closing: make(chan struct{}), gone: make(chan struct{}),
		open: map[uint64]chan faults.Action{},
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	lines, err := c.greet()
	if !stop() || err != nil {
		_ = conn.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	c.wg.Go(func() { c.read(lines) })
	c.wg.Go(c.writeAll)
	return c, nil
}

func (c *Client) greet() (*bufio.Scanner, error) {
	_ = c.conn.SetDeadline(time.Now().Add(helloWithin))
	if err := writeHello(c.conn, hello{Worker: c.worker}); err != nil {
		return nil, err
	}
	lines := newScanner(c.conn)
	h, err := readHello(lines)
	if err != nil {
		return nil, err
	}
	c.kinds, c.interests = h.Kinds, h.Interests
	for _, k := range append(h.Events, "source") {
		c.events = append(c.events, []byte(`"k":`+strconv.Quote(k)), []byte(`"k": `+strconv.Quote(k)))
	}
	return lines, c.conn.SetDeadline(time.Time{})
}

// Pass asks the engine what happens to p, and waits for the answer, which may
// take as long as a delay or a hold. When ctx ends, when no rule can be about p,
// and when the harness is gone, the answer is Forward at once.
func (c *Client) Pass(ctx context.Context, p faults.Point) faults.Action {
	if !c.wants(&p) {
		return faults.Action{}
	}
	if p.From == "" {
		p.From = c.worker
	}
	id, reply := c.register()
	defer c.forget(id)
	if !c.sendPoint(ctx, 'Q', id, p) {
		return faults.Action{}
	}
	select {
	case a := <-reply:
		return a
	case <-c.gone:
	case <-ctx.Done():
		if b, err := line('C', question{ID: id}); err == nil {
			c.offer(b) // if there is no room, the hold's limit ends it
		}
	}
	return faults.Action{}
}

// Passed says that a signal which Pass let through has now been written; see
// [faults.Engine.Passed].
func (c *Client) Passed(ctx context.Context, p faults.Point) {
	if c.wants(&p) {
		c.sendPoint(ctx, 'P', 0, p)
	}
}

// Tap hands a recorded event's line to the harness. It never waits: a line for
// which there is no room is dropped and counted. Lines that no rule looks at are
// not sent at all.
func (c *Client) Tap(event []byte) {
	event = bytes.TrimRight(event, "\n")
	looked := slices.ContainsFunc(c.events, func(k []byte) bool { return bytes.Contains(event, k) })
	if !looked || c.isGone() {
		return
	}
	if len(event) >= maxLine-1 || bytes.IndexByte(event, '\n') >= 0 || !c.offer(frame('T', event)) {
		c.dropped.Add(1)
	}
}

// Dropped counts the lines that Tap had no room for. The harness learns it too.
func (c *Client) Dropped() int64 { return c.dropped.Load() }

// Close hands over what is queued, for a second at most, and ends the
// connection. Questions, open and later ones, are answered Forward.
func (c *Client) Close() error {
	c.closeOnce.Do(func() { close(c.closing) })
	c.wg.Wait()
	return nil
}

// wants reports whether a rule can be about p.
func (c *Client) wants(p *faults.Point) bool {
	if p.Kind != faults.KindAccess {
		return slices.Contains(c.kinds, p.Kind) && !c.isGone()
	}
	for _, i := range c.interests {
		if i.Wants(p.Name, p.Pool) {
			return !c.isGone()
		}
	}
	return false
}

func (c *Client) isGone() bool {
	select {
	case <-c.gone:
		return true
	case <-c.closing:
		return true
	default:
		return false
	}
}

func (c *Client) register() (uint64, chan faults.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	reply := make(chan faults.Action, 1)
	c.open[c.next] = reply
	return c.next, reply
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, id)
}

// sendPoint queues a question; it waits for room.
func (c *Client) sendPoint(ctx context.Context, letter byte, id uint64, p faults.Point) bool {
	b, err := line(letter, question{ID: id, Point: toWire(p)})
	if err != nil || len(b) > maxLine {
		return false
	}
	c.queueBytes.Add(int64(len(b)))
	select {
	case c.queue <- b:
		return true
	case <-ctx.Done():
	case <-c.gone:
	case <-c.closing:
	}
	c.queueBytes.Add(-int64(len(b)))
	return false
}

// offer queues a line if there is room.
func (c *Client) offer(b []byte) bool {
	size := int64(len(b))
	if c.queueBytes.Add(size) <= maxQueueBytes {
		select {
		case c.queue <- b:
			return true
		default:
		}
	}
	c.queueBytes.Add(-size)
	return false
}

// read takes in answers until the connection ends.
func (c *Client) read(lines *bufio.Scanner) {
	defer close(c.gone)
	defer c.conn.Close()
	for lines.Scan() {
		b := lines.Bytes()
		var a answer
		if len(b) == 0 || b[0] != 'A' || json.Unmarshal(b[1:], &a) != nil {
			return
		}
		c.mu.Lock()
		reply := c.open[a.ID]
		delete(c.open, a.ID)
		c.mu.Unlock()
		if reply != nil {
			reply <- faults.Action{Do: a.Do, Copies: a.Copies, After: a.After}
		}
	}
}

// writeAll writes what is queued until the connection ends, or the client is
// closed and the queue empty. It ends the connection.
func (c *Client) writeAll() {
	defer c.conn.Close()
	w := bufio.NewWriter(c.conn)
	for {
		select {
		case b := <-c.queue:
			if c.write(w, b) != nil {
				return
			}
		case <-c.gone:
			return
		case <-c.closing:
			_ = c.conn.SetWriteDeadline(time.Now().Add(flushWithin))
			for len(c.queue) > 0 {
				if c.write(w, <-c.queue) != nil {
					return
				}
			}
			return
		}
	}
}

// write writes one line, and flushes when there is none behind it.
func (c *Client) write(w *bufio.Writer, b []byte) error {
	c.queueBytes.Add(-int64(len(b)))
	_, err := w.Write(b)
	if err == nil && len(c.queue) == 0 {
		if n := c.dropped.Load(); n > c.reported {
			_, _ = w.Write(frame('L', strconv.AppendInt(nil, n-c.reported, 10)))
			c.reported = n
		}
		err = w.Flush()
	}
	return err
}
