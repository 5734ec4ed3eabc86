package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"conform/adapters/engines/unknown"
	"conform/faults"
)

const (
	maxLegs  = 256     // ZMTP proxies of one interposer
	maxKnown = 1 << 14 // requests whose transfer_id is remembered; the oldest goes first
)

// Options say between whom an interposer stands.
type Options struct {
	Connector Connector
	Engine    *faults.Engine
	Side      string   // host:port of prefill's side channel, or bootstrap server
	Prefill   string   // the prefill worker's id
	Decodes   []string // the ids of the decode workers that it will speak to, at least one
}

// Interposer stands between one prefill worker and its decode workers. Its methods may be
// called from any goroutine.
type Interposer struct {
	opt     Options
	sides   map[string]*side // by the id of Options.Decodes
	unknown unknown.Book

	mu     sync.Mutex
	closed bool
	ids    map[string]string // id of the options → id now
	legs   []*leg
	known  map[string]string // by decode's request, its transfer_id
	order  []string          // of known, oldest first
	seen   map[string]int
}

// side is one decode worker's way to the prefill worker.
type side struct {
	i      *Interposer
	decode string            // its id in the options
	http   *faults.HTTPProxy // Mooncake
	first  *leg              // NIXL
	ranks  map[string]*leg   // Mooncake: by the prefill rank's address; of i.mu
}

// leg is one ZMTP proxy before one socket of prefill.
type leg struct {
	side    *side
	proxy   *faults.ZMTPProxy
	refused atomic.Int64 // messages that were not understood
}

// Open starts an interposer. It must be closed, after the engine.
func Open(opt Options) (*Interposer, error) {
	if opt.Engine == nil || opt.Side == "" || len(opt.Decodes) == 0 {
		return nil, errors.New("wire: an interposer needs an engine, a place to ask at and a decode worker")
	}
	if opt.Connector != NIXL && opt.Connector != Mooncake {
		return nil, fmt.Errorf("wire: no messages are known of connector %q", opt.Connector)
	}
	i := &Interposer{
		opt: opt, sides: map[string]*side{}, ids: map[string]string{opt.Prefill: opt.Prefill},
		known: map[string]string{}, seen: map[string]int{},
	}
	for _, id := range opt.Decodes {
		if _, twice := i.ids[id]; twice {
			return nil, errors.Join(fmt.Errorf("wire: worker %q is named twice", id), i.Close())
		}
		s := &side{i: i, decode: id, ranks: map[string]*leg{}}
		i.sides[id], i.ids[id] = s, id
		if err := s.open(); err != nil {
			return nil, errors.Join(err, i.Close())
		}
	}
	return i, nil
}

func (s *side) open() (err error) {
	if s.i.opt.Connector == NIXL {
		s.first, err = s.legTo(s.i.opt.Side)
		return err
	}
	s.http, err = faults.NewHTTPProxy(faults.HTTPProxyOptions{
		Upstream: s.i.opt.Side, Engine: s.i.opt.Engine, Decode: s.request, Answer: s.answer,
	})
	if err != nil {
		return fmt.Errorf("wire: bootstrap proxy: %w", err)
	}
	return nil
}

// Side is the host:port that a decode worker is to take for the prefill's side channel,
// or bootstrap server; empty for a worker that the options do not name.
func (i *Interposer) Side(decode string) string {
	switch s := i.sides[decode]; {
	case s == nil:
		return ""
	case s.http != nil:
		return s.http.Addr()
	default:
		return s.first.proxy.Addr()
	}
}

// Rename says that a worker of the options, which was named there so, now has another id:
// a restart is a new worker. Points that pass from now on carry it.
func (i *Interposer) Rename(worker, id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.ids[worker]; known {
		i.ids[worker] = id
	}
}

// Seen counts the messages that came by and were understood, by kind, whatever then
// became of them.
func (i *Interposer) Seen() map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	seen := make(map[string]int, len(i.seen))
	for signal, n := range i.seen {
		seen[signal] = n
	}
	return seen
}

// Unknown lists what passed without being understood, in a fixed order. A run that has
// some was not seen whole.
func (i *Interposer) Unknown() []unknown.Kind {
	i.mu.Lock()
	defer i.mu.Unlock()
	foreign := 0
	for _, l := range i.legs {
		foreign += max(l.proxy.Unknown()-int(l.refused.Load()), 0)
	}
	if foreign == 0 {
		return i.unknown.List()
	}
	return i.unknown.List(unknown.Kind{Where: string(ToPrefill), Why: "a connection that is not ZMTP, or is encrypted", Count: foreign})
}

// Close ends every connection and waits for the interposer's goroutines.
func (i *Interposer) Close() error {
	i.mu.Lock()
	i.closed = true
	legs := slices.Clone(i.legs)
	i.mu.Unlock()
	var errs []error
	for _, s := range i.sides {
		if s.http != nil {
			errs = append(errs, s.http.Close())
		}
	}
	for _, l := range legs {
		errs = append(errs, l.proxy.Close())
	}
	return errors.Join(errs...)
}

// ends are who a message to prefill goes from and to.
func (s *side) ends() (from, to string) {
	return s.i.ids[s.decode], s.i.ids[s.i.opt.Prefill]
}

// request says between whom a request to the bootstrap server is.
func (s *side) request(*http.Request, []byte) faults.Point {
	s.i.mu.Lock()
	defer s.i.mu.Unlock()
	from, to := s.ends()
	return faults.Point{From: from, To: to}
}

// rankEntry is what the bootstrap server says of one data-parallel rank.
type rankEntry struct {
	Engine  string                       `json:"engine_id"`
	Workers map[string]map[string]string `json:"worker_addr"` // by tensor and pipeline rank
}

// answer puts a proxy in the place of each socket that GET /query names.
func (s *side) answer(r *http.Request, status int, _ http.Header, body []byte) []byte {
	if r.Method != http.MethodGet || r.URL.Path != "/query" || status != http.StatusOK {
		return nil
	}
	altered, err := s.reroute(body)
	if err != nil {
		s.i.unknown.Note(unknown.Kind{Where: "bootstrap", Tag: "GET /query", Why: "its sockets are not interposed: " + err.Error()})
		return nil
	}
	return altered
}

func (s *side) reroute(body []byte) ([]byte, error) {
	var entries map[string]rankEntry
	if err := json.Unmarshal(body, &entries); err != nil {
		return nil, errors.New("it is not what the table knows")
	}
	for _, entry := range entries {
		for _, ranks := range entry.Workers {
			for rank, addr := range ranks {
				upstream, isTCP := strings.CutPrefix(addr, "tcp://")
				if !isTCP {
					return nil, errors.New("a socket that is not tcp")
				}
				l, err := s.legTo(upstream)
				if err != nil {
					return nil, err
				}
				ranks[rank] = "tcp://" + l.proxy.Addr()
			}
		}
	}
	return json.Marshal(entries)
}

// legTo is the proxy that stands before a socket of prefill.
func (s *side) legTo(upstream string) (*leg, error) {
	i := s.i
	i.mu.Lock()
	defer i.mu.Unlock()
	if l, ok := s.ranks[upstream]; ok {
		return l, nil
	}
	switch {
	case i.closed:
		return nil, errors.New("the interposer is closed")
	case len(i.legs) >= maxLegs:
		return nil, fmt.Errorf("more than %d sockets", maxLegs)
	}
	l := &leg{side: s}
	var err error
	l.proxy, err = faults.NewZMTPProxy(faults.ZMTPProxyOptions{
		Upstream: upstream, From: s.decode, To: i.opt.Prefill, Decode: l.decode, Engine: i.opt.Engine,
	})
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	s.ranks[upstream] = l
	i.legs = append(i.legs, l)
	return l, nil
}

// decode makes a message a point of the fault engine. The decoder is not told the way
// that a message goes: the table tells it, since no message is both ways alike.
func (l *leg) decode(msg [][]byte) (faults.Point, bool) {
	s, i := l.side, l.side.i
	m, err := Decode(i.opt.Connector, ToPrefill, msg)
	if err != nil {
		back, otherErr := Decode(i.opt.Connector, ToDecode, msg)
		if otherErr != nil {
			l.refused.Add(1)
			i.unknown.Note(unknown.Kind{Where: string(i.opt.Connector), Tag: tagOf(msg), Frames: len(msg), Why: err.Error()})
			return faults.Point{}, false
		}
		m = back
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen[m.Signal]++
	p := faults.Point{Name: m.Signal, Sig: SigOf(m)}
	p.From, p.To = s.ends()
	if m.Direction == ToDecode {
		p.From, p.To = p.To, p.From
	}
	for n, req := range m.Requests {
		if n < len(m.Transfers) {
			i.remember(req, m.Transfers[n])
		}
	}
	if len(m.Requests) > 0 {
		p.Req, p.Handoff = ClientOf(m.Requests[0]), i.known[m.Requests[0]]
	}
	return p, true
}

// remember notes a request's transfer_id, for the answers, which do not name it.
func (i *Interposer) remember(req, transfer string) {
	if _, known := i.known[req]; !known {
		if len(i.order) == maxKnown {
			delete(i.known, i.order[0])
			i.order = i.order[1:]
		}
		i.order = append(i.order, req)
	}
	i.known[req] = transfer
}

// tagOf names a message's kind by the size of its first frame: it has no word there.
func tagOf(msg [][]byte) string {
	if len(msg) == 0 {
		return ""
	}
	return fmt.Sprintf("<%d bytes>", len(msg[0]))
}
