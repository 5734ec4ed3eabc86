package failpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"conform/faults"
	"conform/spec"
)

// ErrNotLoopback is returned for an address that others could reach.
var ErrNotLoopback = errors.New("failpoint: not a loopback address")

// Server answers the questions of workers from an engine.
type Server struct {
	engine *faults.Engine
	ln     net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}

	lost, malformed, overflow atomic.Int64
}

// Serve listens on a loopback host:port. Port 0 takes a free one. Close
// the engine first, then the server, then the engine's recorder.
func Serve(listen string, e *faults.Engine) (*Server, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("failpoint: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%w: %q", ErrNotLoopback, listen)
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("failpoint: %w", err)
	}
	s := &Server{engine: e, ln: ln, conns: map[net.Conn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// Addr is the host:port that workers connect to.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Lost counts the recorded lines that workers had no room to hand over. While it
// is above 0, an `until` or `after` may have missed its event.
func (s *Server) Lost() int64 { return s.lost.Load() }

// Malformed counts tapped lines that are not events, and connections that ended
// because the worker broke the protocol.
func (s *Server) Malformed() int64 { return s.malformed.Load() }

// Overflow counts the questions that passed undecided because too many were open.
func (s *Server) Overflow() int64 { return s.overflow.Load() }

// Close ends every connection and waits for the server's goroutines. Workers
// then run on as if there were no plan.
func (s *Server) Close() error {
	s.cancel()
	err := s.ln.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("failpoint: %w", err)
	}
	return nil
}

func (s *Server) accept() {
	for {
		conn, err := s.ln.Accept()
		if s.ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		if s.ctx.Err() != nil {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(conn) })
	}
}

// session is one worker's connection.
type session struct {
	s      *Server
	conn   net.Conn
	worker string
	ctx    context.Context
	wg     sync.WaitGroup // open questions

	write sync.Mutex

	mu   sync.Mutex
	open map[uint64]context.CancelFunc
}

func (s *Server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	w := &session{s: s, conn: conn, ctx: ctx, open: map[uint64]context.CancelFunc{}}
	if err := w.run(); err != nil && s.ctx.Err() == nil {
		s.malformed.Add(1)
	}
	// The worker is gone: what it asked about will not happen.
	cancel()
	_ = conn.Close()
	w.wg.Wait()
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
}

// run serves until the worker goes away (nil) or breaks the protocol.
func (w *session) run() error {
	_ = w.conn.SetDeadline(time.Now().Add(helloWithin))
	lines := newScanner(w.conn)
	h, err := readHello(lines)
	if err != nil {
		return err
	}
	w.worker = h.Worker
	if err := writeHello(w.conn, w.s.hello()); err != nil {
		return err
	}
	_ = w.conn.SetDeadline(time.Time{})
	for lines.Scan() {
		if b := lines.Bytes(); len(b) > 0 {
			err = w.line(b[0], b[1:])
		} else {
			err = errors.New("failpoint: an empty line")
		}
		if err != nil {
			return err
		}
	}
	var network net.Error
	if err := lines.Err(); err != nil && !errors.As(err, &network) {
		return err
	}
	return nil
}

func (s *Server) hello() hello {
	plan := s.engine.Plan()
	h := hello{Interests: plan.Interests(), Events: plan.Events()}
	for _, k := range []string{faults.KindSignal, faults.KindAccess, faults.KindHTTP} {
		if plan.Wants(k) {
			h.Kinds = append(h.Kinds, k)
		}
	}
	return h
}

func (w *session) line(letter byte, body []byte) error {
	switch letter {
	case 'T':
		ev, err := spec.ParseEvent(body)
		if err != nil {
			w.s.malformed.Add(1)
			return nil // one bad line must not cost the worker its failpoints
		}
		w.s.engine.Observe(&ev)
		return nil
	case 'L':
		n, err := strconv.ParseInt(string(body), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("failpoint: found L%.40q, expected a count", body)
		}
		w.s.lost.Add(n)
		return nil
	}
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return fmt.Errorf("failpoint: %w", err)
	}
	p := q.Point.point()
	if p.From == "" {
		p.From = w.worker
	}
	switch letter {
	case 'Q':
		return w.ask(q.ID, p)
	case 'C':
		w.mu.Lock()
		defer w.mu.Unlock()
		if cancel, ok := w.open[q.ID]; ok {
			cancel()
		}
		return nil
	case 'P':
		w.s.engine.Passed(p)
		return nil
	}
	return fmt.Errorf("failpoint: found a line %q, expected Q, C, P, T or L", letter)
}

// ask decides in the order of the lines, and answers when the waiting is over.
func (w *session) ask(id uint64, p faults.Point) error {
	w.mu.Lock()
	_, twice := w.open[id]
	full := len(w.open) >= maxQuestions
	w.mu.Unlock()
	switch {
	case twice:
		return fmt.Errorf("failpoint: question %d was asked twice", id)
	case full:
		w.s.overflow.Add(1)
		return w.reply(answer{ID: id})
	}
	d := w.s.engine.Decide(p)
	if !d.Blocks() {
		return w.reply(toAnswer(id, d.Wait(w.ctx)))
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.mu.Lock()
	w.open[id] = cancel
	w.mu.Unlock()
	w.wg.Go(func() {
		a := toAnswer(id, d.Wait(ctx))
		w.mu.Lock()
		delete(w.open, id)
		w.mu.Unlock()
		cancel()
		if w.reply(a) != nil {
			_ = w.conn.Close()
		}
	})
	return nil
}

func toAnswer(id uint64, a faults.Action) answer {
	return answer{ID: id, Do: a.Do, Copies: a.Copies, After: a.After}
}

func (w *session) reply(a answer) error {
	b, err := line('A', a)
	if err != nil {
		return err
	}
	w.write.Lock()
	defer w.write.Unlock()
	if _, err := w.conn.Write(b); err != nil && w.ctx.Err() == nil {
		return fmt.Errorf("failpoint: %w", err)
	}
	return nil
}
