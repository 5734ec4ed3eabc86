package main

import (
	"context"
	"io"

	"conform/spec"
	"conform/traces"
)

// readTrace reads the trace at path, or standard input for "-", and ends with ctx. To
// open or read a pipe that nobody writes can't be called back: that is left to the end
// of the program. The error is one for the user.
func readTrace(ctx context.Context, path string, stdin io.Reader) (*spec.Trace, error) {
	type outcome struct {
		trace *spec.Trace
		err   error
		panic any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.panic = recover() // for the caller's goroutine, where it becomes one line
			done <- o
		}()
		o.trace, o.err = traces.Read(path, stdin)
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case o := <-done:
		if o.panic != nil {
			panic(o.panic)
		}
		if o.err != nil {
			return nil, unreadableTrace(path, o.err)
		}
		return o.trace, nil
	}
}
