package traces

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"conform/spec"
)

// Stream gives the events of the file at path to each, one by one, without ever
// holding the whole trace. Sources and threads are numbered from 0 in the order of
// their first events. An event and all that it holds is valid until each returns.
//
// It is for traces in which nothing is wrong and nothing unusual. It is false
// where each was, where the trace has a loss, where it is no single file, where it
// is against TRACE.md, or where it cannot tell: [Read] then says what there is. That an
// access ends once is left to the caller, who knows which have not.
// Memory is bounded by the lines in flight, and 8 to 16 bytes for each access and
// each signal, by which it knows that they are unique. Two goroutines work beside
// the caller's and are gone when it returns.
func Stream(ctx context.Context, path string, each func(e *spec.Event, source, thread int32) bool) (bool, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil //nolint:nilerr // Read says what is wrong
	}
	f, err := os.Open(path)
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	defer func() { _ = f.Close() }() // only read from
	plain, done, err := openLines(f, strings.HasSuffix(path, suffixZstd))
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	defer done()
	whole := flow(ctx, plain, each)
	return whole, ctx.Err()
}

const (
	// chunkBytes is about how many bytes of lines are passed on at a time.
	chunkBytes = 64 << 10
	// batches is how many chunks are in flight.
	batches = 6
)

// batch is a chunk of whole lines and the events in it.
type batch struct {
	text   []byte
	events []spec.Event
	places []eventPlace
	parser *fastParser
	broken bool // reading ended here, before the end of the trace
}

type eventPlace struct{ source, thread int32 }

// flow passes batches from one goroutine that reads chunks to one that parses and
// checks them, and to each.
func flow(ctx context.Context, in io.Reader, each func(*spec.Event, int32, int32) bool) bool {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	free, chunks, parsed := make(chan *batch, batches), make(chan *batch, batches), make(chan *batch, batches)
	for range batches {
		p := newFastParser()
		p.borrow = true
		free <- &batch{parser: p}
	}
	wg.Go(func() {
		defer close(chunks)
		cutLines(ctx, in, free, chunks)
	})
	wg.Go(func() {
		defer close(parsed)
		c := newStreamCheck()
		for b := range chunks {
			broken := !c.parse(b) || b.broken
			b.broken = broken
			parsed <- b // from here on it is the receiver's
			if broken {
				return
			}
		}
	})
	for b := range parsed {
		for i := range b.events {
			if !each(&b.events[i], b.places[i].source, b.places[i].thread) {
				return false
			}
		}
		if b.broken {
			return false
		}
		free <- b
	}
	return ctx.Err() == nil
}

// cutLines cuts a stream into chunks of whole lines.
func cutLines(ctx context.Context, in io.Reader, free <-chan *batch, chunks chan<- *batch) {
	var rest []byte
	for {
		var b *batch
		select {
		case b = <-free:
		case <-ctx.Done():
			return
		}
		var err error
		rest, err = b.fill(in, rest)
		b.broken = err != nil && !errors.Is(err, io.EOF)
		select {
		case chunks <- b:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

var errLongLine = errors.New("a line that is too long for a chunk")

// fill reads whole lines into the batch, after what is left of a line before, and
// returns what is left after them.
func (b *batch) fill(in io.Reader, before []byte) (rest []byte, err error) {
	b.text = append(b.text[:0], before...)
	for {
		if cap(b.text)-len(b.text) < chunkBytes/2 {
			b.text = append(make([]byte, 0, max(2*chunkBytes, 2*len(b.text))), b.text...)
		}
		n, err := in.Read(b.text[len(b.text):cap(b.text)])
		b.text = b.text[:len(b.text)+n]
		switch {
		case errors.Is(err, io.EOF):
			return nil, err // the last line may lack its line feed
		case err != nil:
			return nil, err
		case len(b.text) < chunkBytes:
			continue
		}
		if last := bytes.LastIndexByte(b.text, '\n'); last >= 0 {
			rest, b.text = b.text[last+1:], b.text[:last+1]
			return bytes.Clone(rest), nil
		}
		if len(b.text) > MaxLineBytes {
			return nil, errLongLine
		}
	}
}

// streamCheck is what reader checks, for lines of which none is to be wrong.
type streamCheck struct {
	sources  map[string]*streamSource
	last     *streamSource
	threads  int32
	workers  map[string]map[string]*streamPool
	accesses idSet
	sigs     idSet
}

type streamSource struct {
	reader  source
	id      int32
	pools   map[string]*streamPool // of its worker
	threads []streamThread
	// run is a run of the source's lines that its digest has yet to take in.
	run []byte
}

type streamThread struct {
	name string
	id   int32
	last int64
}

type streamPool struct {
	count int64
	by    *streamSource // that mutates it
}

// maxStreamThreads bounds the threads of one source.
const maxStreamThreads = 256

func newStreamCheck() *streamCheck {
	return &streamCheck{
		sources: map[string]*streamSource{}, workers: map[string]map[string]*streamPool{},
		accesses: newIDSet(), sigs: newIDSet(),
	}
}

// parse fills the events of a batch, up to the first line that is not as usual.
func (c *streamCheck) parse(b *batch) bool {
	b.events, b.places = b.events[:0], b.places[:0]
	b.parser.ranges, b.parser.texts = b.parser.ranges[:0], b.parser.texts[:0]
	ok := true
	for text := b.text; len(text) > 0 && ok; {
		end := bytes.IndexByte(text, '\n')
		line := text
		if end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		ok = c.line(b, line, end >= 0)
	}
	for _, s := range c.sources {
		s.digest()
	}
	return ok
}

func (c *streamCheck) line(b *batch, line []byte, ended bool) bool {
	if len(b.events) < cap(b.events) {
		b.events = b.events[:len(b.events)+1]
		b.events[len(b.events)-1] = spec.Event{}
	} else {
		b.events = append(b.events, spec.Event{})
	}
	e := &b.events[len(b.events)-1]
	place, ok := c.event(b, e, line, ended)
	if !ok {
		b.events = b.events[:len(b.events)-1]
		return false
	}
	b.places = append(b.places, place)
	return true
}

func (c *streamCheck) event(b *batch, e *spec.Event, line []byte, ended bool) (eventPlace, bool) {
	if len(line) > MaxLineBytes {
		return eventPlace{}, false
	}
	if !b.parser.event(line, e) {
		parsed, err := spec.ParseEvent(line)
		if err != nil {
			return eventPlace{}, false
		}
		*e = parsed
	}
	s := c.source(e)
	if s == nil || e.Seq != s.reader.next || e.K == spec.KindLost && e.Count > 0 {
		return eventPlace{}, false
	}
	s.reader.next++
	th := c.thread(s, e)
	if th == nil || !c.kind(s, e) {
		return eventPlace{}, false
	}
	s.reader.lines++
	s.take(line, ended)
	return eventPlace{s.id, th.id}, true
}

// source finds the source of a line that may be its next.
func (c *streamCheck) source(e *spec.Event) *streamSource {
	s := c.last
	if s == nil || s.reader.name != e.Src {
		s = c.sources[e.Src]
	}
	switch {
	case s == nil && e.K == spec.KindSource:
		s = &streamSource{reader: source{name: strings.Clone(e.Src), worker: strings.Clone(e.Worker), sum: sha256.New()}, id: int32(len(c.sources))}
		c.sources[s.reader.name] = s
		s.pools = c.workers[s.reader.worker]
		if s.pools == nil {
			s.pools = map[string]*streamPool{}
			c.workers[s.reader.worker] = s.pools
		}
	case s == nil || e.K == spec.KindSource || s.reader.sealed:
		return nil
	}
	c.last = s
	return s
}

// thread finds the thread of a line, nil where its time goes back or there are too
// many.
func (c *streamCheck) thread(s *streamSource, e *spec.Event) *streamThread {
	for i := range s.threads {
		t := &s.threads[i]
		if t.name == e.Th {
			if e.T < t.last {
				return nil
			}
			t.last = e.T
			return t
		}
	}
	if len(s.threads) == maxStreamThreads {
		return nil
	}
	s.threads = append(s.threads, streamThread{strings.Clone(e.Th), c.threads, e.T})
	c.threads++
	return &s.threads[len(s.threads)-1]
}

// kind checks what one kind asks for beside its own fields.
func (c *streamCheck) kind(s *streamSource, e *spec.Event) bool {
	switch e.K {
	case spec.KindPool:
		if s.pools[e.Pool] != nil {
			return false
		}
		s.pools[strings.Clone(e.Pool)] = &streamPool{count: e.Count}
	case spec.KindBegin:
		p := c.workers[e.Target][e.Pool]
		return p != nil && e.Blocks.Max() < p.count && c.accesses.add(e.Access)
	case spec.KindEmit:
		return c.sigs.add(e.Sig)
	case spec.KindSeal:
		s.digest()
		s.reader.sealed = true
		return e.Events == s.reader.lines && e.Sum == hex.EncodeToString(s.reader.sum.Sum(nil))
	}
	if !e.K.Mutates() {
		return true
	}
	p := s.pools[e.Pool]
	if p == nil || p.by != nil && p.by != s || e.Blocks.Max() >= p.count {
		return false
	}
	p.by = s
	return true
}

// take puts a line into the source's digest, together with the lines beside it in
// memory.
func (s *streamSource) take(line []byte, ended bool) {
	if n := len(s.run); n > 0 && cap(s.run)-n >= len(line) && len(line) > 0 && &s.run[:n+1][n] == &line[0] {
		s.run = s.run[:n+len(line)]
	} else {
		s.digest()
		s.run = line
	}
	if ended {
		s.run = s.run[:len(s.run)+1] // the line feed that follows it
		return
	}
	s.digest()
	s.reader.sum.Write([]byte{'\n'})
}

func (s *streamSource) digest() {
	if len(s.run) > 0 {
		s.reader.sum.Write(s.run)
		s.run = nil
	}
}
