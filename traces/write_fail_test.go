package traces

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// disk is a file that takes so many bytes and no more.
type disk struct {
	bytes.Buffer
	room     int
	closeErr error
	writes   int
}

var errFull = errors.New("no space left on device")

func (d *disk) Write(p []byte) (int, error) {
	d.writes++
	n := min(len(p), d.room)
	d.room -= n
	d.Buffer.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func (d *disk) Close() error { return d.closeErr }

func onDisk(t *testing.T, d *disk) *Writer {
	t.Helper()
	w, err := newWriter(d, "x.jsonl.zst", "P", WriterOptions{Clock: func() int64 { return 1 }, Flush: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

var testSource = spec.Event{K: spec.KindSource, Worker: "p0", Role: spec.RolePrefill, Host: "h", Clock: "m"}

// A full disk ends the record: the error stays, later events are counted, no
// seal is claimed, and a reader sees that something is missing.
func TestFullDisk(t *testing.T) {
	for _, end := range []func(*Writer) error{(*Writer).Close, (*Writer).Seal} {
		d := &disk{room: 1 << 20}
		w := onDisk(t, d)
		w.Record(testSource)
		w.Record(spec.Event{K: spec.KindNote, Text: "written by no one"})
		d.room = 20
		w.Record(spec.Event{K: spec.KindPool, Pool: "kv", Count: 1}) // writes at once
		require.ErrorIs(t, w.Err(), errFull)
		require.ErrorContains(t, w.Err(), "x.jsonl.zst")
		require.ErrorIs(t, w.Flush(), errFull)
		require.EqualValues(t, 2, w.Lost())
		w.Record(spec.Event{K: spec.KindNote})
		require.EqualValues(t, 3, w.Lost())

		d.room = 1 << 20 // too late: what follows a torn frame is not readable
		writes := d.writes
		require.ErrorIs(t, end(w), errFull)
		require.Equal(t, writes, d.writes)
		got, err := Read("-", &d.Buffer)
		require.NoError(t, err)
		require.Len(t, got.Events, 1)
		require.Len(t, got.Losses, 1)
		require.Contains(t, got.Losses[0].Why, "torn zstd frame")
	}
}

// Where the failed write left nothing, the file looks whole; the end says what
// is missing, if there is room by then.
func TestFullDiskAtTheEndOfAFrame(t *testing.T) {
	d := &disk{room: 1 << 20}
	w := onDisk(t, d)
	w.Record(testSource)
	w.Record(spec.Event{K: spec.KindNote})
	d.room = 0
	w.Record(spec.Event{K: spec.KindPool, Pool: "kv", Count: 1})
	w.Record(spec.Event{K: spec.KindNote})
	d.room = 1 << 20
	require.ErrorIs(t, w.Seal(), errFull)
	got, err := Read("-", &d.Buffer)
	require.NoError(t, err)
	require.Len(t, got.Events, 2)
	require.Equal(t, spec.KindLost, got.Events[1].K)
	require.EqualValues(t, 3, got.Events[1].Count)
	require.Len(t, got.Losses, 2, "the gap and the lost")
	require.EqualValues(t, 1, got.Losses[0].Next)
}

func TestCloseError(t *testing.T) {
	d := &disk{room: 1 << 20, closeErr: errFull}
	w := onDisk(t, d)
	w.Record(testSource)
	require.ErrorIs(t, w.Seal(), errFull)
}

// stuck blocks each write until it is let go.
type stuck struct {
	bytes.Buffer
	started, free chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	s.started <- struct{}{}
	<-s.free
	return s.Buffer.Write(p)
}

func (s *stuck) Close() error { return nil }

// A disk that hangs does not stop the process that records.
func TestStuckDiskDoesNotBlockRecord(t *testing.T) {
	s := &stuck{started: make(chan struct{}, 100), free: make(chan struct{})}
	w, err := newWriter(s, "x", "P", WriterOptions{Flush: time.Hour, BufferBytes: 30_000})
	require.NoError(t, err)
	w.Record(spec.Event{K: spec.KindNote}) // no declaration: they wait
	w.kick <- struct{}{}
	<-s.started
	for range 1000 {
		w.Record(spec.Event{K: spec.KindNote})
	}
	require.NotZero(t, w.Lost())
	close(s.free)
	require.NoError(t, w.Close())
	require.NotEmpty(t, s.Len())
}
