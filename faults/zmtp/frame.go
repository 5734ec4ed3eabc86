package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
)

// Limits bound what a peer can make this side keep. Zero fields mean the defaults.
type Limits struct {
	FrameBytes   int // default 16 MiB
	Frames       int // of one message; default 1024
	MessageBytes int // over all frames of one message; default 64 MiB
}

func (l Limits) withDefaults() Limits {
	if l.FrameBytes <= 0 {
		l.FrameBytes = 16 << 20
	}
	if l.Frames <= 0 {
		l.Frames = 1024
	}
	if l.MessageBytes <= 0 {
		l.MessageBytes = 64 << 20
	}
	return l
}

// Frame is one frame, its size and LONG flag aside.
type Frame struct {
	More    bool
	Command bool
	Body    []byte
}

// AppendFrame appends f as it goes over the wire.
func AppendFrame(dst []byte, f Frame) []byte {
	var flags byte
	if f.More {
		flags |= flagMore
	}
	if f.Command {
		flags |= flagCommand
	}
	if len(f.Body) > 255 {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(f.Body)))
	} else {
		dst = append(dst, flags, byte(len(f.Body)))
	}
	return append(dst, f.Body...)
}

// AppendMessage appends the frames of msg, all but the last with MORE.
func AppendMessage(dst []byte, msg [][]byte) []byte {
	for i, body := range msg {
		dst = AppendFrame(dst, Frame{More: i < len(msg)-1, Body: body})
	}
	return dst
}

// Item is what stands between two boundaries of the stream: a whole message, or
// a command.
type Item struct {
	Message [][]byte // nil for a command
	Command []byte   // the body of a command frame, nil for a message
}

// Append appends the item as it goes over the wire.
func (it Item) Append(dst []byte) []byte {
	if it.Message == nil {
		return AppendFrame(dst, Frame{Command: true, Body: it.Command})
	}
	return AppendMessage(dst, it.Message)
}

// Bytes is the size of the item's bodies.
func (it Item) Bytes() int {
	n := len(it.Command)
	for _, f := range it.Message {
		n += len(f)
	}
	return n
}

// Reader reads the frames that follow the greeting. It is for one goroutine.
type Reader struct {
	r       *bufio.Reader
	lim     Limits
	partial [][]byte // frames of a message whose last has not come
	bytes   int      // of partial
}

// NewReader reads from r, within lim.
func NewReader(r io.Reader, lim Limits) *Reader {
	return &Reader{r: bufio.NewReader(r), lim: lim.withDefaults()}
}

// Next reads the next message or command. A command that stands between the
// frames of a message comes before it. The error is io.EOF at a boundary,
// io.ErrUnexpectedEOF within a message, a *[ProtocolError], a *[LimitError], or
// what the underlying reader says.
func (r *Reader) Next() (Item, error) {
	for {
		f, err := r.ReadFrame()
		if err != nil {
			if errors.Is(err, io.EOF) && len(r.partial) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return Item{}, err
		}
		if f.Command {
			return Item{Command: f.Body}, nil
		}
		r.bytes += len(f.Body)
		switch {
		case len(r.partial) == r.lim.Frames:
			return Item{}, &LimitError{"frames of a message", uint64(len(r.partial)) + 1, r.lim.Frames}
		case r.bytes > r.lim.MessageBytes:
			return Item{}, &LimitError{"bytes of a message", uint64(r.bytes), r.lim.MessageBytes}
		}
		r.partial = append(r.partial, f.Body)
		if !f.More {
			msg := r.partial
			r.partial, r.bytes = nil, 0
			return Item{Message: msg}, nil
		}
	}
}

// ReadFrame reads one frame. Errors are those of [Reader.Next]. The body is
// never nil.
func (r *Reader) ReadFrame() (Frame, error) {
	flags, err := r.r.ReadByte()
	if err != nil {
		return Frame{}, err
	}
	f := Frame{More: flags&flagMore != 0, Command: flags&flagCommand != 0}
	switch {
	case flags&^(flagMore|flagLong|flagCommand) != 0:
		return f, &ProtocolError{"a frame with reserved flags", "MORE, LONG and COMMAND alone"}
	case f.Command && f.More:
		return f, &ProtocolError{"a command with MORE", "commands of one frame"}
	}
	size, err := r.readSize(flags&flagLong != 0)
	if err != nil {
		return f, torn(err)
	}
	if size > uint64(r.lim.FrameBytes) {
		return f, &LimitError{"bytes of a frame", size, r.lim.FrameBytes}
	}
	f.Body, err = readBody(r.r, int(size))
	return f, torn(err)
}

func (r *Reader) readSize(long bool) (uint64, error) {
	if !long {
		b, err := r.r.ReadByte()
		return uint64(b), err
	}
	var b [8]byte
	_, err := io.ReadFull(r.r, b[:])
	return binary.BigEndian.Uint64(b[:]), err
}

// readBody takes memory as the bytes arrive: a peer that announces 16 MiB and
// sends nothing costs nothing.
func readBody(r io.Reader, size int) ([]byte, error) {
	const trusted = 64 << 10
	if size <= trusted {
		b := make([]byte, size)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, r, int64(size))
	return b.Bytes(), err
}

func torn(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
