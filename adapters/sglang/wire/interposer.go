package wire

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"conform/adapters/engines/unknown"
	"conform/faults"
)

const (
	loopback = "127.0.0.1"
	maxLegs  = 1024    // ZMTP proxies of one interposer
	maxRooms = 1 << 16 // rooms whose request is remembered; the oldest goes first
)

// Options say between whom an interposer stands.
type Options struct {
	Backend   Backend
	Engine    *faults.Engine
	Bootstrap string // host:port of the prefill worker's bootstrap server
	Prefill   string // the prefill worker's id
	// Decodes are the ids of the decode workers that it will speak to, at least
	// one. Each gets a bootstrap address of its own, which is how the interposer
	// knows whose a message is.
	Decodes []string
	// Sig gives a message its id. prefillRank is the rank that it comes from or
	// goes to, as prefill numbers itself. It is [SigOf] by default.
	Sig func(m *Message, prefillRank int64) string
}

// Interposer stands between one prefill worker and its decode workers: an HTTP
// proxy before the prefill's bootstrap server for each decode worker, and ZMTP
// proxies both ways, which it makes as it learns of the sockets. Its methods
// may be called from any goroutine.
//
// A decode worker is led through it by being told [Interposer.Bootstrap] as the
// place of the bootstrap server. The prefill worker needs to be told nothing.
type Interposer struct {
	opt   Options
	sides map[string]*side // by the id of Options.Decodes

	mu      sync.Mutex
	closed  bool
	ids     map[string]string // id of the options -> id now
	legs    []*leg
	rooms   map[uint64]string
	order   []uint64 // of rooms, oldest first
	seen    map[string]int
	unknown unknown.Book
	sizes   sizes
}

// Open starts an interposer. It must be closed, after the engine.
func Open(opt Options) (*Interposer, error) {
	if opt.Engine == nil || opt.Bootstrap == "" || len(opt.Decodes) == 0 {
		return nil, errors.New("wire: an interposer needs an engine, a bootstrap server and a decode worker")
	}
	if opt.Backend != Mooncake && opt.Backend != NIXL {
		return nil, fmt.Errorf("wire: no frames are known of backend %q", opt.Backend)
	}
	if opt.Sig == nil {
		opt.Sig = func(m *Message, _ int64) string { return SigOf(m) }
	}
	i := &Interposer{
		opt: opt, sides: map[string]*side{}, ids: map[string]string{opt.Prefill: opt.Prefill},
		rooms: map[uint64]string{}, seen: map[string]int{}, sizes: sizes{1, 1},
	}
	for _, id := range opt.Decodes {
		if _, twice := i.ids[id]; twice {
			return nil, errors.Join(fmt.Errorf("wire: worker %q is named twice", id), i.Close())
		}
		s, err := i.newSide(id)
		if err != nil {
			return nil, errors.Join(err, i.Close())
		}
		i.sides[id], i.ids[id] = s, id
	}
	return i, nil
}

// Bootstrap is the host:port that this decode worker is to take for the
// prefill's bootstrap server; empty for a worker that the options do not name.
func (i *Interposer) Bootstrap(decode string) string {
	if s, ok := i.sides[decode]; ok {
		return s.http.Addr()
	}
	return ""
}

// SetBootstrap says where the prefill's bootstrap server is now, after a restart.
func (i *Interposer) SetBootstrap(addr string) {
	for _, s := range i.sides {
		s.http.SetUpstream(addr)
	}
}

// Rename says that a worker of the options, which was named there so, now has
// another id: a restart is a new worker. Points that pass from now on carry it.
// It is false for a worker that the options do not name.
func (i *Interposer) Rename(worker, id string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, known := i.ids[worker]
	if known {
		i.ids[worker] = id
	}
	return known
}

// Name says which request a room belongs to, so that points of that room carry
// it. The last 65 536 are remembered; a room that is named again is renamed.
func (i *Interposer) Name(room uint64, req string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.rooms[room]; !known {
		if len(i.order) == maxRooms {
			delete(i.rooms, i.order[0])
			i.order = i.order[1:]
		}
		i.order = append(i.order, room)
	}
	i.rooms[room] = req
}

// Seen counts the messages that came by and were understood, by kind, whatever
// then became of them.
func (i *Interposer) Seen() map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	seen := make(map[string]int, len(i.seen))
	for signal, n := range i.seen {
		seen[signal] = n
	}
	return seen
}

// Close ends every connection and waits for the interposer's goroutines.
func (i *Interposer) Close() error {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	var errs []error
	for _, s := range i.sides {
		errs = append(errs, s.http.Close())
	}
	i.mu.Lock()
	legs := slices.Clone(i.legs) // closed: there will be no more
	i.mu.Unlock()
	for _, l := range legs {
		errs = append(errs, l.proxy.Close())
	}
	return errors.Join(errs...)
}
