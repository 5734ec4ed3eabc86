package failpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"conform/faults"
	"conform/spec"
)

const (
	protocol     = "conform-failpoint/1"
	maxLine      = 1 << 20
	helloWithin  = 10 * time.Second
	flushWithin  = time.Second
	maxQuestions = 4096 // open at once on one connection
)

// hello is the first line of each side.
type hello struct {
	Protocol string `json:"protocol"`

	// From the worker.
	Worker string `json:"worker,omitempty"`
	Seals  bool   `json:"seals,omitempty"` // it ends its recording when it is told to

	// From the harness: what the plan can have use for.
	Kinds     []string          `json:"kinds,omitempty"`
	Interests []faults.Interest `json:"interests,omitempty"`
	Events    []string          `json:"events,omitempty"`
}

type question struct {
	ID    uint64 `json:"id"`
	Point point  `json:"p,omitzero"`
}

type answer struct {
	ID     uint64        `json:"id"`
	Do     faults.Do     `json:"do,omitempty"`
	Copies int           `json:"copies,omitempty"`
	After  time.Duration `json:"after,omitempty"` // ns
}

// point is a faults.Point on the wire.
type point struct {
	Kind    string     `json:"kind,omitempty"`
	Name    string     `json:"name,omitempty"`
	From    string     `json:"from,omitempty"`
	To      string     `json:"to,omitempty"`
	Pool    string     `json:"pool,omitempty"`
	Sig     string     `json:"sig,omitempty"`
	Access  string     `json:"access,omitempty"`
	Handoff string     `json:"handoff,omitempty"`
	Req     string     `json:"req,omitempty"`
	Signal  string     `json:"signal,omitempty"`
	Why     string     `json:"why,omitempty"`
	Mode    string     `json:"mode,omitempty"`
	N       int64      `json:"n,omitempty"`
	Blocks  [][2]int64 `json:"blocks,omitempty"`
}

func toWire(p faults.Point) point {
	w := point{
		Kind: p.Kind, Name: p.Name, From: p.From, To: p.To, Pool: p.Pool, Sig: p.Sig, Access: p.Access,
		Handoff: p.Handoff, Req: p.Req, Signal: p.Signal, Why: p.Why, Mode: p.Mode, N: p.N,
	}
	for _, r := range p.Blocks {
		w.Blocks = append(w.Blocks, [2]int64{r.First, r.Last})
	}
	return w
}

func (w point) point() faults.Point {
	p := faults.Point{
		Kind: w.Kind, Name: w.Name, From: w.From, To: w.To, Pool: w.Pool, Sig: w.Sig, Access: w.Access,
		Handoff: w.Handoff, Req: w.Req, Signal: w.Signal, Why: w.Why, Mode: w.Mode, N: w.N,
	}
	for _, r := range w.Blocks {
		p.Blocks = append(p.Blocks, spec.BlockRange{First: r[0], Last: r[1]})
	}
	return p
}

// line puts a letter and a value on one line.
func line(letter byte, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("failpoint: %w", err)
	}
	return frame(letter, b), nil
}

func frame(letter byte, b []byte) []byte {
	out := make([]byte, 0, len(b)+2)
	out = append(out, letter)
	out = append(out, b...)
	return append(out, '\n')
}

// newScanner gives whole lines; what a dying peer left of its last one is no line.
func newScanner(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), maxLine)
	s.Split(func(data []byte, _ bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		return 0, nil, nil
	})
	return s
}

func readHello(s *bufio.Scanner) (hello, error) {
	var h hello
	if !s.Scan() {
		err := s.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return h, fmt.Errorf("failpoint: hello: %w", err)
	}
	if err := json.Unmarshal(s.Bytes(), &h); err != nil {
		return h, fmt.Errorf("failpoint: hello: %w", err)
	}
	if h.Protocol != protocol {
		return h, fmt.Errorf("failpoint: the other side speaks %.40q, not %q", h.Protocol, protocol)
	}
	return h, nil
}

func writeHello(w io.Writer, h hello) error {
	h.Protocol = protocol
	b, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("failpoint: hello: %w", err)
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("failpoint: hello: %w", err)
	}
	return nil
}
