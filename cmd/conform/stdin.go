package main

import (
	"context"
	"io"
	"sync"
)

// stoppable is standard input whose reading ends with a context. A read of a terminal or
// of a pipe that nobody writes can't be called back: it is left to the end of the program.
type stoppable struct {
	ctx   context.Context
	r     io.Reader
	begin sync.Once
	pipe  *io.PipeReader
}

// Read begins to read with the first call: most commands take nothing in.
func (s *stoppable) Read(p []byte) (int, error) {
	s.begin.Do(func() {
		var w *io.PipeWriter
		s.pipe, w = io.Pipe()
		go func() {
			_, err := io.Copy(w, s.r)
			w.CloseWithError(err)
		}()
		context.AfterFunc(s.ctx, func() { w.CloseWithError(context.Cause(s.ctx)) })
	})
	return s.pipe.Read(p)
}
