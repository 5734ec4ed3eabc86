package wire

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"

	"conform/faults"
)

// side is one decode worker's way to the prefill worker, and back.
type side struct {
	i      *Interposer
	decode string // its id in the options
	http   *faults.HTTPProxy
	ranks  map[string]*leg // by the prefill rank's address; of i.mu
	ends   map[string]*leg // by the decode rank's address; of i.mu
}

func (i *Interposer) newSide(decode string) (*side, error) {
	s := &side{i: i, decode: decode, ranks: map[string]*leg{}, ends: map[string]*leg{}}
	var err error
	s.http, err = faults.NewHTTPProxy(faults.HTTPProxyOptions{
		Upstream: i.opt.Bootstrap, Engine: i.opt.Engine, Decode: s.request, Answer: s.answer,
	})
	if err != nil {
		return nil, fmt.Errorf("wire: bootstrap proxy: %w", err)
	}
	return s, nil
}

// leg is one ZMTP proxy: before one prefill rank, or before one decode rank.
type leg struct {
	side    *side
	to      Direction
	rank    int64 // of prefill; -1 before a decode rank, where the messages say it
	proxy   *faults.ZMTPProxy
	refused atomic.Int64 // messages that were not understood
}

var errTooManyLegs = fmt.Errorf("more than %d sockets", maxLegs)

// toRank is the address that stands for a prefill rank.
func (s *side) toRank(upstream string, rank int64) (string, error) {
	return s.legTo(s.ranks, upstream, ToPrefill, rank)
}

// toDecode is the address that stands for a decode rank's socket. It is the
// same for every prefill rank, since prefill tells decode ranks apart by it.
func (s *side) toDecode(upstream string) (string, error) {
	return s.legTo(s.ends, upstream, ToDecode, -1)
}

func (s *side) legTo(known map[string]*leg, upstream string, to Direction, rank int64) (string, error) {
	i := s.i
	i.mu.Lock()
	defer i.mu.Unlock()
	if l, ok := known[upstream]; ok {
		if to == ToPrefill {
			l.rank = rank // a new worker may have taken over the port
		}
		return l.proxy.Addr(), nil
	}
	switch {
	case i.closed:
		return "", errors.New("the interposer is closed")
	case len(i.legs) >= maxLegs:
		return "", errTooManyLegs
	}
	from, at := s.decode, i.opt.Prefill
	if to == ToDecode {
		from, at = at, from
	}
	l := &leg{side: s, to: to, rank: rank}
	opt := faults.ZMTPProxyOptions{
		Listen: net.JoinHostPort(loopback, "0"), Upstream: upstream, From: from, To: at,
		Decode: l.decode, Engine: i.opt.Engine,
	}
	if to == ToPrefill {
		opt.Rewrite = l.rewrite
	}
	var err error
	if l.proxy, err = faults.NewZMTPProxy(opt); err != nil {
		return "", fmt.Errorf("wire: %w", err)
	}
	known[upstream] = l
	i.legs = append(i.legs, l)
	return l.proxy.Addr(), nil
}

// decode makes a message a point of the fault engine.
func (l *leg) decode(msg [][]byte) (faults.Point, bool) {
	i := l.side.i
	m, err := decode(i.opt.Backend, msg)
	if err == nil && m.Direction != l.to {
		err = errOtherWay
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		l.refused.Add(1)
		i.unknown.Note(Unknown{Where: string(l.to), Tag: tagOf(msg), Frames: len(msg), Why: err.Error()})
		return faults.Point{}, false
	}
	i.seen[m.Signal]++
	rank := m.Rank
	if l.to == ToPrefill {
		rank = l.rank
	}
	p := faults.Point{
		Name: m.Signal, Handoff: m.Handoff(), Sig: i.opt.Sig(&m, rank), N: rank,
		From: i.ids[l.side.decode], To: i.ids[i.opt.Prefill],
	}
	if m.HasRoom {
		p.Req = i.rooms[m.Room]
	}
	if l.to == ToDecode {
		p.From, p.To = p.To, p.From
	}
	return p, true
}

// rewrite leads the answers to a message through the interposer too. A message
// for which that cannot be done goes out as it is, which is on record.
func (l *leg) rewrite(msg [][]byte) [][]byte {
	i := l.side.i
	m, err := decode(i.opt.Backend, msg)
	if err != nil || m.PortFrame < 0 {
		return nil
	}
	addr, err := l.side.toDecode(net.JoinHostPort(m.ReplyIP, strconv.Itoa(m.ReplyPort)))
	if err == nil {
		var out [][]byte
		if out, err = m.rewritten(msg, addr); err == nil {
			return out
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unknown.Note(Unknown{Where: string(l.to), Tag: tagOf(msg), Frames: len(msg), Why: "its answers are not interposed: " + err.Error()})
	return nil
}
