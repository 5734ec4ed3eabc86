package faults

import (
	"context"
	"sync"
)

// owner owns the goroutines of a proxy: it starts them only while it is open,
// and its close waits for them.
type owner struct {
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newOwner() *owner {
	o := &owner{}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// enter counts the caller as one of the owner's until it calls the function
// that it gets; false when the owner is closed.
func (o *owner) enter() (leave func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, false
	}
	o.wg.Add(1)
	return o.wg.Done, true
}

// spawn starts f as one of the owner's.
func (o *owner) spawn(f func()) bool {
	leave, ok := o.enter()
	if ok {
		go func() {
			defer leave()
			f()
		}()
	}
	return ok
}

// shut refuses newcomers and ends ctx; wait waits for those who are there.
func (o *owner) shut() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.cancel()
}

func (o *owner) wait() { o.wg.Wait() }
