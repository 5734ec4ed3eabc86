package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// pipe is an output stream whose reader may go away. A closed pipe is no error:
// who reads the first line only has what was wanted, and the run goes on. Any
// other failure, such as a full disk, is kept: a result that could not be written
// must not look like one that was.
type pipe struct {
	w      io.Writer
	mu     sync.Mutex
	failed error
	gone   bool
}

// Write never fails; what went wrong is in err.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return len(b), nil
	}
	if _, err := p.w.Write(b); err != nil {
		p.gone = true
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.ErrClosedPipe) {
			p.failed = err
		}
	}
	return len(b), nil
}

// err is the failure that lost output, nil where there was none.
func (p *pipe) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		return nil
	}
	return &failure{
		status: statusHarness, found: fmt.Sprintf("cannot write the result: %v", p.failed),
		expected: "an output that can be written to",
	}
}
