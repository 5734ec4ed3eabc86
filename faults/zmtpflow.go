package faults

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"conform/faults/zmtp"
	"conform/spec"
)

// flow is one direction of a link.
type flow struct {
	proxy    *ZMTPProxy
	link     *link
	other    *flow
	src, dst net.Conn
	from, to string

	ctx    context.Context // ends when nothing more can be delivered
	cancel context.CancelFunc

	write sync.Mutex // of dst, so that messages stay whole

	pending   sync.WaitGroup // messages on their way
	held      atomic.Int64
	heldBytes atomic.Int64
}

// run carries everything from src to dst until one of them is gone.
func (f *flow) run() {
	err := f.carry()
	var limit *zmtp.LimitError
	var protocol *zmtp.ProtocolError
	if errors.As(err, &limit) || errors.As(err, &protocol) {
		text := "proxy from " + f.from + " to " + f.to + ": " + err.Error()
		f.proxy.opt.Engine.record(spec.Event{K: spec.KindNote, Text: text})
	}
	// ZeroMQ does not half-close: src is gone, nothing can be delivered to it.
	// What it had sent is still on its way to dst.
	f.other.cancel()
	f.pending.Wait()
	_ = f.dst.Close()
	_ = f.src.Close()
}

func (f *flow) carry() error {
	framed, rest, err := f.greet()
	if err != nil {
		return err
	}
	if !framed {
		f.proxy.unknown.Add(1)
		_, err := io.Copy(f.dst, f.src)
		return err
	}
	r := zmtp.NewReader(rest, f.proxy.opt.Limits)
	for {
		it, err := r.Next()
		if err != nil {
			return err
		}
		if it.Message == nil {
			if err := f.deliver(it); err != nil {
				return err
			}
			continue
		}
		if err := f.message(it); err != nil {
			return err
		}
	}
}

// greet passes the greeting on as its bytes come, and says whether frames that
// can be read follow it.
func (f *flow) greet() (framed bool, rest io.Reader, err error) {
	greeting := make([]byte, 0, zmtp.GreetingBytes)
	for len(greeting) < zmtp.GreetingBytes {
		piece := greeting[len(greeting):cap(greeting)]
		n, err := f.src.Read(piece)
		if n > 0 {
			if _, err := f.dst.Write(piece[:n]); err != nil {
				return false, nil, err
			}
			greeting = greeting[:len(greeting)+n]
		}
		if err != nil {
			return false, nil, err
		}
		if !zmtp.IsSignature(greeting) {
			return false, nil, nil
		}
	}
	g, err := zmtp.ParseGreeting(greeting)
	if err != nil {
		return false, nil, nil //nolint:nilerr // an older ZMTP passes as it is
	}
	return g.Mechanism == "NULL" || g.Mechanism == "PLAIN", f.src, nil
}

// deliver writes one item whole.
func (f *flow) deliver(it zmtp.Item) error {
	wire := it.Append(make([]byte, 0, it.Bytes()+9*(len(it.Message)+1)))
	f.write.Lock()
	defer f.write.Unlock()
	if err := f.ctx.Err(); err != nil {
		return err
	}
	_, err := f.dst.Write(wire)
	return err
}

// message does with one message what the engine decides. The error says that
// dst is gone.
func (f *flow) message(it zmtp.Item) error {
	p, known := f.proxy.opt.Decode(it.Message)
	if !known {
		f.proxy.unknown.Add(1)
		return f.deliver(it)
	}
	p.Kind = KindSignal
	p.From, p.To = cmp.Or(p.From, f.from), cmp.Or(p.To, f.to)
	d := f.proxy.opt.Engine.Decide(p)
	ordered := d.rule != nil && d.rule.Ordered
	if !d.Blocks() || ordered || len(d.process) > 0 || !f.room(it) {
		return f.pass(d, it)
	}
	f.later(it, func() { _ = f.pass(d, it) })
	return nil
}

// room reports whether one more message may be held while others pass.
func (f *flow) room(it zmtp.Item) bool {
	return f.held.Load() < maxHeld && f.heldBytes.Load()+int64(it.Bytes()) <= maxHeldBytes
}

// later lets a message wait while others pass.
func (f *flow) later(it zmtp.Item, do func()) {
	size := int64(it.Bytes())
	f.held.Add(1)
	f.heldBytes.Add(size)
	f.pending.Go(func() {
		defer f.held.Add(-1)
		defer f.heldBytes.Add(-size)
		do()
	})
}

// pass waits as decided, and delivers what is to be delivered.
func (f *flow) pass(d *Decision, it zmtp.Item) error {
	action := d.Wait(f.ctx)
	switch action.Do {
	case Drop, Fail:
		if d.cut != nil {
			f.link.cutAfter(f.proxy.own, d.cut)
		}
		return nil
	case Forward, Duplicate:
	}
	if err := f.send(d, it, 1); err != nil || action.Do == Forward {
		return err
	}
	if d.hold == nil && action.After == 0 {
		return f.send(d, it, action.Copies)
	}
	f.later(it, func() {
		if d.awaitCopy(f.ctx) {
			_ = f.send(d, it, action.Copies)
		}
	})
	return nil
}

// send delivers a message so many times, and tells the engine.
func (f *flow) send(d *Decision, it zmtp.Item, times int) error {
	if rewrite := f.proxy.opt.Rewrite; rewrite != nil {
		if msg := rewrite(it.Message); len(msg) > 0 {
			it.Message = msg
		}
	}
	for range times {
		if err := f.deliver(it); err != nil {
			return err
		}
		f.proxy.opt.Engine.Passed(d.point)
	}
	return nil
}
