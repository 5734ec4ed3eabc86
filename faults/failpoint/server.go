package failpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
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
	opt    Options
	ln     net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	sessions map[*session]struct{} // whose hello has come

	lost, malformed, overflow atomic.Int64
}

// Options are what a server does besides answering from its engine. The zero value
// does nothing more.
type Options struct {
	// Events are kinds of recorded events that workers hand over besides those
	// that the engine's plan has use for.
	Events []spec.Kind
	// Heard is told of each recorded event that a worker hands over, in the order
	// of its lines. It is called from a goroutine for each worker and must not block.
	Heard func(*spec.Event)
}

// Serve listens as [Serve] does, with these options.
func (o Options) Serve(listen string, e *faults.Engine) (*Server, error) {
	s, err := listenAt(listen, e)
	if err != nil {
		return nil, err
	}
	s.opt = o
	s.wg.Go(s.accept)
	return s, nil
}

// Serve listens on a loopback host:port. Port 0 takes a free one. Close
// the engine first, then the server, then the engine's recorder.
func Serve(listen string, e *faults.Engine) (*Server, error) { return Options{}.Serve(listen, e) }

func listenAt(listen string, e *faults.Engine) (*Server, error) {
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
	s := &Server{engine: e, ln: ln, conns: map[net.Conn]struct{}{}, sessions: map[*session]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
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
	seals  bool // the worker can end its recording when it is told to
	ctx    context.Context
	wg     sync.WaitGroup // open questions

	sealed   chan struct{} // closed when the worker has ended its recording, or is gone
	sealOnce sync.Once

	asking sync.Mutex
	loads  chan Load // the answer to I

	write sync.Mutex

	mu   sync.Mutex
	open map[uint64]context.CancelFunc
}

func (s *Server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	w := &session{s: s, conn: conn, ctx: ctx, sealed: make(chan struct{}), loads: make(chan Load, 1), open: map[uint64]context.CancelFunc{}}
	var network net.Error // that of an answer to a worker that has died: it broke no rule
	if err := w.run(); err != nil && s.ctx.Err() == nil && !errors.As(err, &network) {
		s.malformed.Add(1)
	}
	// The worker is gone: what it asked about will not happen.
	cancel()
	_ = conn.Close()
	w.seal()
	w.wg.Wait()
	s.mu.Lock()
	delete(s.conns, conn)
	delete(s.sessions, w)
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
	w.worker, w.seals = h.Worker, h.Seals
	if err := writeHello(w.conn, w.s.hello()); err != nil {
		return err
	}
	w.s.mu.Lock()
	w.s.sessions[w] = struct{}{}
	w.s.mu.Unlock()
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
	for _, k := range s.opt.Events {
		if !slices.Contains(h.Events, string(k)) {
			h.Events = append(h.Events, string(k))
		}
	}
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
		if w.s.opt.Heard != nil {
			w.s.opt.Heard(&ev)
		}
		w.s.engine.Observe(&ev)
		return nil
	case 'D':
		w.seal()
		return nil
	case 'I':
		return w.loaded(body)
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
	return fmt.Errorf("failpoint: found a line %q, expected Q, C, P, T, L, D or I", letter)
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
	return w.send(b)
}

// send writes whole lines.
func (w *session) send(b []byte) error {
	w.write.Lock()
	defer w.write.Unlock()
	if _, err := w.conn.Write(b); err != nil && w.ctx.Err() == nil {
		return fmt.Errorf("failpoint: %w", err)
	}
	return nil
}

// seal notes that the worker records no more.
func (w *session) seal() { w.sealOnce.Do(func() { close(w.sealed) }) }

// Seal tells every worker that can to end its recording in good order, and waits
// until each has, or is gone. The error names the workers that had not when ctx
// ended. It comes when nothing is in flight any more, and before the workers are
// ended.
func (s *Server) Seal(ctx context.Context) error {
	s.mu.Lock()
	var all []*session
	for w := range s.sessions {
		if w.seals {
			all = append(all, w)
		}
	}
	s.mu.Unlock()
	for _, w := range all {
		if w.send(frame('S', nil)) != nil {
			_ = w.conn.Close() // which ends the session
		}
	}
	var late []string
	for _, w := range all {
		select {
		case <-w.sealed:
			continue
		case <-ctx.Done():
		}
		select {
		case <-w.sealed: // both at once
		default:
			late = append(late, w.worker)
		}
	}
	if len(late) > 0 {
		slices.Sort(late)
		return fmt.Errorf("failpoint: %s did not end the recording: %w", strings.Join(late, ", "), ctx.Err())
	}
	return nil
}
