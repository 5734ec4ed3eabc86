package reference

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// ErrRevoked is how an access ends whose key the target has revoked.
var ErrRevoked = errors.New("the target's NIC has revoked the key of this handoff, or is another worker's")

// A NIC request: op, key, pool, target, offset, length, then the bytes of a write. The
// answer: a status byte, then the bytes of a read.
const (
	nicRead  = 'r'
	nicWrite = 'w'

	nicOK      = 0
	nicRevoked = 1
	nicBad     = 2

	nicMaxBytes = 1 << 20
	nicMaxName  = 256
)

// NIC serves one-sided accesses to a worker's pools over TCP: each connection
// has its own goroutine, which touches pool memory at the address that it is
// told and never asks the scheduler. Its one defence is the key: after Revoke of
// a handoff no access under it touches memory.
type NIC struct {
	pools map[string]*pool
	self  string                      // what an access must name as its target; "" for anything
	key   func(handoff string) string // what a handoff's memory is protected by
	ln    net.Listener
	wg    sync.WaitGroup

	mu      sync.RWMutex // held for reading while an access touches memory
	revoked map[string]bool
	conns   map[net.Conn]bool
	closed  bool
}

func newNIC(addr string, pools map[string]*pool) (*NIC, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("NIC: %w", err)
	}
	n := &NIC{pools: pools, key: func(handoff string) string { return handoff }, ln: ln, revoked: map[string]bool{}, conns: map[net.Conn]bool{}}
	n.wg.Add(1)
	go n.accept()
	return n, nil
}

// Addr is where peers reach it.
func (n *NIC) Addr() string { return n.ln.Addr().String() }

// Revoke turns away every further access under the handoff's key and returns
// when none that was posted earlier still touches memory: TRACE.md's fence.
func (n *NIC) Revoke(handoff string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revoked[n.key(handoff)] = true
}

// Permit opens a handoff's key. A handoff has a key of its own, so that none that
// was revoked is ever opened again.
func (n *NIC) Permit(handoff string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.revoked, n.key(handoff))
}

func (n *NIC) accept() {
	defer n.wg.Done()
	for {
		c, err := n.ln.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		if n.closed {
			n.mu.Unlock()
			c.Close()
			return
		}
		n.conns[c] = true
		n.wg.Add(1)
		n.mu.Unlock()
		go n.serve(c)
	}
}

func (n *NIC) serve(c net.Conn) {
	defer n.wg.Done()
	defer func() {
		c.Close()
		n.mu.Lock()
		delete(n.conns, c)
		n.mu.Unlock()
	}()
	for {
		req, err := readNICRequest(c)
		if err != nil {
			return
		}
		status, data := n.access(req)
		if _, err := c.Write(append([]byte{status}, data...)); err != nil {
			return
		}
	}
}

func (n *NIC) access(r *nicRequest) (byte, []byte) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.revoked[n.key(r.key)] || n.self != "" && r.to != n.self {
		return nicRevoked, make([]byte, r.answerLen())
	}
	p := n.pools[r.pool]
	if p == nil {
		return nicBad, make([]byte, r.answerLen())
	}
	if r.op == nicRead {
		b, err := p.readAt(r.off, r.n)
		if err != nil {
			return nicBad, make([]byte, r.n)
		}
		return nicOK, b
	}
	if err := p.writeAt(r.off, r.data); err != nil {
		return nicBad, nil
	}
	return nicOK, nil
}

// Close ends every connection and waits for them.
func (n *NIC) Close() {
	n.ln.Close()
	n.mu.Lock()
	n.closed = true
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.wg.Wait()
}

type nicRequest struct {
	op        byte
	key, pool string
	to        string // the incarnation that it is meant for
	off       int64
	n         int
	data      []byte
}

func (r *nicRequest) answerLen() int {
	if r.op == nicRead {
		return r.n
	}
	return 0
}

func (r *nicRequest) encode() []byte {
	b := []byte{r.op}
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.key)))
	b = append(b, r.key...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.pool)))
	b = append(b, r.pool...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.to)))
	b = append(b, r.to...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.off))
	b = binary.BigEndian.AppendUint32(b, uint32(r.n))
	return append(b, r.data...)
}

func readNICRequest(c io.Reader) (*nicRequest, error) {
	var op [1]byte
	if _, err := io.ReadFull(c, op[:]); err != nil {
		return nil, err
	}
	r := &nicRequest{op: op[0]}
	var err error
	if r.key, err = readNICName(c); err != nil {
		return nil, err
	}
	if r.pool, err = readNICName(c); err != nil {
		return nil, err
	}
	if r.to, err = readNICName(c); err != nil {
		return nil, err
	}
	var head [12]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	r.off = int64(binary.BigEndian.Uint64(head[:]))
	r.n = int(binary.BigEndian.Uint32(head[8:]))
	if r.n > nicMaxBytes || r.op != nicRead && r.op != nicWrite {
		return nil, errors.New("NIC: a malformed request")
	}
	if r.op == nicWrite {
		r.data = make([]byte, r.n)
		_, err = io.ReadFull(c, r.data)
	}
	return r, err
}

func readNICName(c io.Reader) (string, error) {
	var n [2]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return "", err
	}
	l := binary.BigEndian.Uint16(n[:])
	if l > nicMaxName {
		return "", errors.New("NIC: a name is too long")
	}
	b := make([]byte, l)
	_, err := io.ReadFull(c, b)
	return string(b), err
}

// nicPeer is one thread's connection to a peer's NIC. It is not safe for
// concurrent use: each transfer thread has its own.
type nicPeer struct {
	addr string
	conn net.Conn
}

// do performs one access and returns when the target has answered or is known to
// be gone; a write that was posted can't be called back, so ctx bounds reads
// only (closing the connection ends a read on this side).
func (p *nicPeer) do(ctx context.Context, r *nicRequest) ([]byte, error) {
	used := p.conn != nil
	data, err := p.once(ctx, r)
	if used && p.conn == nil && ctx.Err() == nil { // it was one to a process that is gone
		data, err = p.once(ctx, r)
	}
	return data, err
}

func (p *nicPeer) once(ctx context.Context, r *nicRequest) ([]byte, error) {
	if p.conn == nil {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", p.addr)
		if err != nil {
			return nil, fmt.Errorf("peer's NIC: %w", err)
		}
		p.conn = c
	}
	c := p.conn
	if r.op == nicRead {
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
	}
	data, err := p.roundTrip(c, r)
	if err != nil && !errors.Is(err, ErrRevoked) {
		p.close()
	}
	return data, err
}

func (p *nicPeer) roundTrip(c net.Conn, r *nicRequest) ([]byte, error) {
	if _, err := c.Write(r.encode()); err != nil {
		return nil, fmt.Errorf("peer's NIC: %w", err)
	}
	answer := make([]byte, 1+r.answerLen())
	if _, err := io.ReadFull(c, answer); err != nil {
		return nil, fmt.Errorf("peer's NIC: %w", err)
	}
	switch answer[0] {
	case nicOK:
		return answer[1:], nil
	case nicRevoked:
		return nil, ErrRevoked
	}
	return nil, errors.New("peer's NIC: refused an address outside its pools")
}

func (p *nicPeer) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}
