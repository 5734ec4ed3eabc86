package traces

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"conform/spec"
)

// ErrClosed is what Seal returns on a Writer that was closed without a seal.
var ErrClosed = errors.New("trace writer closed")

const (
	defaultFlush       = 50 * time.Millisecond
	defaultBufferBytes = 16 << 20
	// batchBytes of lines are worth a frame before its time.
	batchBytes = 256 << 10
	// maxSrcBytes bounds the name of a source, and lostBytes a line of kind lost:
	// in JSON a byte of the name takes at most 6.
	maxSrcBytes = 1 << 10
	lostBytes   = 6*maxSrcBytes + 1<<10
	mainThread  = "main"
)

// WriterOptions are what a Writer may be told; the zero value is usable.
type WriterOptions struct {
	// Clock stamps events; the default is that of Monotonic. It is called under
	// a lock and must not call the Writer.
	Clock Clock
	// Flush is the time between two writes to the file, 50 ms by default. Where
	// it is negative there is no timer and no goroutine: the caller of Record
	// writes each 256 KiB of lines, so that the same events give the same bytes.
	Flush time.Duration
	// BufferBytes bounds the lines that wait for the disk, 16 MiB by default.
	// What does not fit is lost and counted.
	BufferBytes int
	// Tap is given each line that was taken, with its line feed, in seq order,
	// before Record returns. The slice is the callee's to keep. Tap runs under the
	// Writer's lock: it must not block, and must not call the Writer.
	Tap func(line []byte)
}

func (o WriterOptions) orDefault() WriterOptions {
	if o.Clock == nil {
		o.Clock, _ = Monotonic()
	}
	if o.Flush == 0 {
		o.Flush = defaultFlush
	}
	if o.BufferBytes <= 0 {
		o.BufferBytes = defaultBufferBytes
	}
	return o
}

// Writer records the events of one source. Its methods may be called from any
// goroutine. It owns one goroutine, which Close or Seal ends.
type Writer struct {
	src  string
	name string // of the file, for errors
	opt  WriterOptions
	enc  *zstd.Encoder

	kick chan struct{} // asks the flusher for a write before its time
	stop chan struct{} // closed to end the flusher
	done chan struct{} // closed by the flusher

	// disk is held while a batch is written, before mu where both are.
	disk  sync.Mutex
	out   io.WriteCloser
	frame []byte // reused
	torn  bool   // the failed write left a part of a frame

	mu      sync.Mutex
	buf     []byte // lines that wait
	spare   []byte // reused
	seq     uint64 // of the next line
	last    map[string]int64
	lines   int64
	sum     hash.Hash
	pending uint64 // lost, not yet told by an event of kind lost
	lost    uint64 // lost in all
	err     error  // sticky
	state   state
}

type state int

const (
	open state = iota
	closed
	sealed
)

// Create starts the record of source src in dir/events, which it makes if need
// be. The file is named after src, with a digest where src is no file name. A
// file that exists is not touched; the error then is os.ErrExist.
func Create(dir, src string, opt WriterOptions) (*Writer, error) {
	if len(src) > maxSrcBytes {
		return nil, fmt.Errorf("create trace of %s: a name of at most %d bytes, not %d", quote(src), maxSrcBytes, len(src))
	}
	src = strings.ToValidUTF8(src, "\uFFFD")
	events := filepath.Join(dir, eventsDir)
	if err := os.MkdirAll(events, 0o755); err != nil {
		return nil, fmt.Errorf("create trace of %s: %w", quote(src), err)
	}
	path := filepath.Join(events, fileName(src))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create trace of %s: %w", quote(src), err)
	}
	w, err := newWriter(f, path, src, opt)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create trace of %s: %w", quote(src), err), f.Close())
	}
	return w, nil
}

// fileName makes a file name of a source: two sources never share one.
func fileName(src string) string {
	const most = 80
	plain := func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
			return c
		}
		return '_'
	}
	name := strings.Map(plain, src)
	name = strings.TrimLeft(name[:min(len(name), most)], ".")
	if name != src || name == "" {
		name += "-" + shortDigest(sha256.Sum256([]byte(src)))
	}
	return name + suffixZstd
}

func newWriter(out io.WriteCloser, name, src string, opt WriterOptions) (*Writer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("zstd encoder: %w", err)
	}
	w := &Writer{
		src: src, name: name, opt: opt.orDefault(), enc: enc, out: out,
		kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		last: map[string]int64{}, sum: sha256.New(),
	}
	if w.opt.Flush > 0 {
		go w.run()
	} else {
		close(w.done)
	}
	return w, nil
}

// Record completes an event and takes it into the trace. It fills Src, Seq and an
// empty Th; where T is 0, T and an earlier T2 are now. A T that is given is kept,
// unless it is before the last one of its thread, which it then is, for T never
// decreases within a thread. Stamp and seq are taken under one lock.
//
// Record does not fail and, but for the kinds source and pool, does not wait for
// the disk; those two are in the file when it returns. What cannot be kept is
// lost and counted: an event after a write error or after Close, one that finds
// the buffer full, one above MaxLineBytes. Its Seq in the returned event is then
// that of the next one. Hooks and Extra that are no JSON are left out.
func (w *Writer) Record(e spec.Event) spec.Event {
	w.mu.Lock()
	w.tellLost(w.opt.BufferBytes)
	taken := w.take(&e, w.opt.BufferBytes)
	full := len(w.buf) >= batchBytes
	w.mu.Unlock()

	declares := e.K == spec.KindSource || e.K == spec.KindPool
	switch {
	case !taken:
	case declares, full && w.opt.Flush < 0:
		w.flush()
	case full:
		select {
		case w.kick <- struct{}{}:
		default: // asked already
		}
	}
	return e
}

// take stamps an event and appends its line, if room bytes suffice.
func (w *Writer) take(e *spec.Event, room int) bool {
	w.stamp(e)
	if w.err != nil || w.state != open {
		w.lose(1)
		return false
	}
	cleanRaw(e)
	start := len(w.buf)
	w.buf = append(e.AppendJSON(w.buf), '\n')
	if line := len(w.buf) - start - 1; line > MaxLineBytes || len(w.buf) > room {
		w.buf = w.buf[:start]
		w.lose(1)
		return false
	}
	line := w.buf[start:]
	w.seq++
	w.last[e.Th] = e.T
	w.lines++
	w.sum.Write(line)
	if w.opt.Tap != nil {
		w.opt.Tap(bytes.Clone(line))
	}
	return true
}

func (w *Writer) stamp(e *spec.Event) {
	e.Src, e.Seq = w.src, w.seq
	if e.Th == "" {
		e.Th = mainThread
	}
	if e.T == 0 {
		e.T = w.opt.Clock()
	}
	if last, ok := w.last[e.Th]; ok {
		e.T = max(e.T, last)
	}
	e.T2 = max(e.T2, e.T)
}

func (w *Writer) lose(n uint64) {
	w.lost += n
	w.pending += n
}

// tellLost appends what was lost, if anything was and room bytes suffice.
func (w *Writer) tellLost(room int) {
	if w.pending == 0 || w.err != nil || w.state != open {
		return
	}
	if room-len(w.buf) < lostBytes {
		return
	}
	n := w.pending
	w.pending = 0
	w.take(&spec.Event{K: spec.KindLost, Count: int64(n)}, room)
}

// run is the flusher.
func (w *Writer) run() {
	defer close(w.done)
	tick := time.NewTicker(w.opt.Flush)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		case <-w.kick:
		}
		w.flush()
	}
}

// flush writes what waits, as one frame.
func (w *Writer) flush() {
	w.disk.Lock()
	defer w.disk.Unlock()
	w.mu.Lock()
	w.tellLost(w.opt.BufferBytes + lostBytes)
	batch := w.buf
	w.buf = w.spare[:0]
	dead := w.err != nil
	w.mu.Unlock()
	if len(batch) > 0 && !dead {
		if n, err := w.write(batch); err != nil {
			w.torn = n > 0
			w.fail(err, batch)
		}
	}
	w.mu.Lock()
	w.spare = batch[:0]
	w.mu.Unlock()
}

func (w *Writer) write(batch []byte) (int, error) {
	w.frame = w.enc.EncodeAll(batch, w.frame[:0])
	n, err := w.out.Write(w.frame)
	if err == nil && n < len(w.frame) {
		err = io.ErrShortWrite
	}
	return n, err
}

// fail makes the error sticky: a frame after a torn one could not be read. What
// was to be written, and what came meanwhile, is lost.
func (w *Writer) fail(err error, batch []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = fmt.Errorf("write trace %s: %w", w.name, err)
	w.lose(uint64(bytes.Count(batch, []byte{'\n'}) + bytes.Count(w.buf, []byte{'\n'})))
	w.buf = w.buf[:0]
}

// Err returns the first error of a write, nil if there was none. After it
// nothing more is recorded.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Lost returns how many events could not be kept so far.
func (w *Writer) Lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Close writes what waits and closes the file, without a seal: the source was
// stopped, it did not end in good order. It returns Err, or what closing gave.
// After Close or Seal it does nothing.
func (w *Writer) Close() error { return w.end(closed) }

// Seal ends the source in good order: the seal with the number of its lines and
// their SHA-256 is its last line. A trace that met a write error is closed
// without a seal, and the error returned.
func (w *Writer) Seal() error { return w.end(sealed) }

func (w *Writer) end(as state) error {
	w.mu.Lock()
	was := w.state
	if was == open {
		w.tellLost(w.opt.BufferBytes + lostBytes)
		if as == sealed && w.err == nil {
			e := spec.Event{K: spec.KindSeal, Events: w.lines, Sum: hex.EncodeToString(w.sum.Sum(nil))}
			w.take(&e, w.opt.BufferBytes+2*lostBytes)
		}
		w.state = as
	}
	w.mu.Unlock()
	if was != open {
		if as == sealed && was == closed {
			return errors.Join(ErrClosed, w.Err())
		}
		return w.Err()
	}
	close(w.stop)
	<-w.done
	w.flush()
	return w.shut()
}

// shut closes the file. Where the failed write left nothing behind, the file
// looks whole; a last try to say what is missing costs nothing.
func (w *Writer) shut() error {
	w.disk.Lock()
	defer w.disk.Unlock()
	if w.Err() != nil && !w.torn {
		e := spec.Event{K: spec.KindLost, Count: int64(w.Lost())}
		w.mu.Lock()
		w.stamp(&e)
		w.mu.Unlock()
		_, _ = w.write(append(e.AppendJSON(nil), '\n')) // the error that counts is Err
	}
	err := errors.Join(w.out.Close(), w.enc.Close())
	if werr := w.Err(); werr != nil {
		return werr
	}
	if err != nil {
		return fmt.Errorf("close trace %s: %w", w.name, err)
	}
	return nil
}
