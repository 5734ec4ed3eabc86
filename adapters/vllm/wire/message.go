package wire

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Message is a control message, understood.
type Message struct {
	Direction Direction
	Signal    string
	// Requests are the decode worker's names of the requests that it speaks of, in
	// order; Transfers the transfer_id of each, which a PULL alone has.
	Requests  []string
	Transfers []string
}

const (
	maxBytes    = 1 << 20 // of a message that is looked into
	maxRequests = 1 << 12 // of one message
	maxDepth    = 32      // of maps and arrays in each other
	metaQuery   = "get_meta_msg"
)

var (
	errNoRow    = errors.New("no row of the table")
	errTooMuch  = fmt.Errorf("more than %d bytes, %d requests or %d levels", maxBytes, maxRequests, maxDepth)
	errNoField  = errors.New("a field that its row names is not there")
	errNotEmpty = errors.New("the first frame is not empty")
)

// Decode reads a message. An error says why it is not understood.
func Decode(c Connector, to Direction, msg [][]byte) (Message, error) {
	row := slices.IndexFunc(Rows(), func(r Row) bool { return r.Connector == c && r.Direction == to && slices.Contains(r.Frames, len(msg)) })
	if row < 0 {
		return Message{}, errNoRow
	}
	for _, frame := range msg {
		if len(frame) > maxBytes {
			return Message{}, errTooMuch
		}
	}
	m := Message{Direction: to}
	var err error
	switch {
	case c == NIXL && len(msg[0]) > 0:
		err = errNotEmpty
	case c == NIXL && to == ToPrefill:
		err = m.readQuery(msg[1])
	case c == NIXL:
		err = m.readMeta(msg[1])
	case to == ToPrefill:
		err = m.readPull(msg[0])
	default:
		err = m.readResult(msg[0])
	}
	return m, err
}

// readQuery reads (get_meta_msg, ranks…).
func (m *Message) readQuery(frame []byte) error {
	d := msgpack.NewDecoder(bytes.NewReader(frame))
	if n, err := d.DecodeArrayLen(); err != nil || n < 2 || n > 3 {
		return errNoRow
	}
	if word, err := d.DecodeBytes(); err != nil || string(word) != metaQuery {
		return errNoRow
	}
	m.Signal = "HANDSHAKE"
	return nil
}

func (m *Message) readMeta(frame []byte) error {
	found := false
	err := fields(frame, func(name string, d *msgpack.Decoder) (bool, error) {
		if name != "compatibility_hash" {
			return false, nil
		}
		_, err := d.DecodeString()
		found = err == nil
		return true, err
	})
	if err == nil && !found {
		err = errNoField
	}
	m.Signal = "HANDSHAKE_META"
	return err
}

func (m *Message) readPull(frame []byte) error {
	found := false
	err := fields(frame, func(name string, d *msgpack.Decoder) (bool, error) {
		if name != "req_blocks" {
			return false, nil
		}
		found = true
		return true, m.readBlocks(d)
	})
	if err == nil && !found {
		err = errNoField
	}
	m.Signal = "PULL"
	return err
}

// readBlocks reads request → (transfer_id, blocks).
func (m *Message) readBlocks(d *msgpack.Decoder) error {
	n, err := d.DecodeMapLen()
	if err != nil || n < 1 {
		return errNoField
	}
	if n > maxRequests {
		return errTooMuch
	}
	for range n {
		req, err := d.DecodeString()
		if err != nil {
			return err
		}
		if pair, err := d.DecodeArrayLen(); err != nil || pair != 2 {
			return errNoField
		}
		transfer, err := d.DecodeString()
		if err != nil {
			return err
		}
		if err := skip(d, 0); err != nil {
			return err
		}
		m.Requests, m.Transfers = append(m.Requests, req), append(m.Transfers, transfer)
	}
	return nil
}

func (m *Message) readResult(frame []byte) error {
	status := -1
	var ok, failed []string
	err := fields(frame, func(name string, d *msgpack.Decoder) (bool, error) {
		var err error
		switch name {
		case "status":
			status, err = d.DecodeInt()
		case "ok_reqs":
			ok, err = names(d)
		case "err_reqs":
			failed, err = names(d)
		default:
			return false, nil
		}
		return true, err
	})
	words := []string{"FINISH", "CONTINUE", "ERROR"}
	switch {
	case err != nil:
		return err
	case status < 0 || status >= len(words):
		return errNoField
	}
	m.Signal, m.Requests = words[status], append(ok, failed...)
	if len(ok) == 0 && len(failed) > 0 && status < 2 {
		m.Signal += "/failed"
	}
	return nil
}

// names reads a list of requests, or nil.
func names(d *msgpack.Decoder) ([]string, error) {
	n, err := d.DecodeArrayLen()
	switch {
	case err != nil:
		return nil, err
	case n > maxRequests:
		return nil, errTooMuch
	}
	var list []string
	for range n { // -1 is nil
		name, err := d.DecodeString()
		if err != nil {
			return nil, err
		}
		list = append(list, name)
	}
	return list, nil
}

// fields goes through a map whose keys are text: take reads a field's value and says
// true, or leaves it.
func fields(frame []byte, take func(name string, d *msgpack.Decoder) (bool, error)) error {
	d := msgpack.NewDecoder(bytes.NewReader(frame))
	n, err := d.DecodeMapLen()
	if err != nil || n < 0 {
		return errNoRow
	}
	for range n {
		name, err := d.DecodeString()
		if err != nil {
			return errNoRow
		}
		taken, err := take(name, d)
		if err == nil && !taken {
			err = skip(d, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// skip reads over a value. It does so itself for what has values in it, so that no
// message can nest them deeper than the stack is.
func skip(d *msgpack.Decoder, depth int) error {
	code, err := d.PeekCode()
	if err != nil {
		return err
	}
	n := 0
	switch {
	case depth > maxDepth:
		return errTooMuch
	case msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32:
		n, err = d.DecodeArrayLen()
	case msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32:
		n, err = d.DecodeMapLen()
		n *= 2
	default:
		return d.Skip()
	}
	for range n {
		if err == nil {
			err = skip(d, depth+1)
		}
		if err != nil {
			break
		}
	}
	return err
}

var clientName = regexp.MustCompile(`^(?:cmpl-|chatcmpl-)?(.+?)-0(?:-[0-9a-f]{8})?$`)

// ClientOf is a request as its client named it: vLLM puts words before and after.
func ClientOf(request string) string {
	if m := clientName.FindStringSubmatch(request); m != nil {
		return m[1]
	}
	return request
}

// SigOf is the id of a message, the same as the probes in the workers give it: it is made
// of the first request that the message names. It is "" for one that names none.
func SigOf(m Message) string {
	switch {
	case len(m.Requests) == 0:
		return ""
	case m.Direction == ToPrefill:
		return "PULL:" + m.Requests[0]
	}
	return "RESULT:" + m.Requests[0]
}
