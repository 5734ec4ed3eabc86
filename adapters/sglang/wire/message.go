package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Bounds on what a message may say.
const (
	maxPages  = 1 << 20 // of one METADATA
	maxText   = 255     // bytes of an address, a session or an agent's name
	maxReason = 1 << 10 // bytes of a failure's reason that are kept
	maxDigits = 20      // of a number
)

// The statuses of a room, as SGLang numbers them (KVPoll).
var statusNames = [...]string{"Failed", "Bootstrapping", "WaitingForInput", "Transferring", "Success"}

// Message is what one ZeroMQ message says. A number that the message does not
// have is -1.
type Message struct {
	Direction Direction
	Signal    string // the kind: METADATA, ABORT_ACK/4, STATUS/Success, …

	HasRoom bool
	Room    uint64 // the handoff's key, bootstrap_room, if HasRoom

	Rank       int64   // the prefill rank that sent it, in acknowledgements and statuses
	Generation int64   // of the abort, counted by the decode rank
	Status     int64   // of a STATUS: 0 failed … 4 success
	Pages      []int32 // METADATA: decode's page numbers, granted for writing, in the prompt's order
	Aux        int64   // METADATA, AUX_DATA: decode's metadata slot
	Prefix     int64   // METADATA: how many tokens decode has already
	Session    string  // decode's transfer engine (Mooncake) or agent (NIXL)
	Reason     string  // of a failure, at most 1 KiB

	// ReplyIP and ReplyPort say where the answers are to go: decode's own PULL
	// socket. IPFrame and PortFrame are the frames that they stand in.
	ReplyIP            string
	ReplyPort          int
	IPFrame, PortFrame int
}

// Handoff is the name of the message's handoff in traces and plans, "room-7";
// nothing if it concerns none.
func (m *Message) Handoff() string {
	if !m.HasRoom {
		return ""
	}
	return "room-" + strconv.FormatUint(m.Room, 10)
}

// SigOf is the id of a message, the same wherever it is seen, since it is made
// of what no proxy changes: signal, room, and rank and generation where the
// message has them. It is empty for a message of no handoff.
func SigOf(m *Message) string {
	if !m.HasRoom {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d", m.Signal, m.Room)
	for _, n := range []int64{m.Rank, m.Generation} {
		if n >= 0 {
			fmt.Fprintf(&b, ":%d", n)
		}
	}
	return b.String()
}

// Decode reads a message by the table. It is false for one that has no row, or
// whose fields are not what the row says. It keeps and changes nothing of msg.
func Decode(b Backend, msg [][]byte) (Message, bool) {
	m, err := decode(b, msg)
	return m, err == nil
}

var (
	errNoRow      = errors.New("no row of the table")
	errOtherWay   = errors.New("goes the wrong way")
	errNotANumber = errors.New("not a number")
)

// fieldError says which field of a message is not what its row says.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

func decode(b Backend, msg [][]byte) (Message, error) {
	if len(msg) == 0 {
		return Message{}, errNoRow
	}
	k := key{b, "", len(msg)}
	if _, err := number(msg[0]); err != nil {
		k.tag = string(msg[0][:min(len(msg[0]), maxText)])
	}
	for _, l := range index()[k] {
		if l.fits(msg) {
			return l.read(msg)
		}
	}
	return Message{}, errNoRow
}

// fits reports whether the fixed frames are as the layout has them. A layout
// whose first free frame is a room is not for a message that has none there.
func (l layout) fits(msg [][]byte) bool {
	for i, w := range l.words {
		if text, fixed := strings.CutPrefix(w, "="); fixed && string(msg[i]) != text {
			return false
		}
	}
	return true
}

func (l layout) read(msg [][]byte) (Message, error) {
	m := Message{
		Direction: l.row.Direction, Signal: l.row.Signal,
		Rank: -1, Generation: -1, Status: -1, Aux: -1, Prefix: -1, IPFrame: -1, PortFrame: -1,
	}
	raw := map[string][]byte{}
	for i, w := range l.words {
		raw[w] = msg[i]
		switch w {
		case "ip":
			m.IPFrame = i
		case "port":
			m.PortFrame = i
		}
	}
	for _, read := range []func(*Message, map[string][]byte) error{readNumbers, readTexts, readReply, readPages, readStatus} {
		if err := read(&m, raw); err != nil {
			return Message{}, err
		}
	}
	return m, nil
}

// readNumbers takes in the fields that are decimal numbers. The ones that may
// be empty mean "none" then.
func readNumbers(m *Message, raw map[string][]byte) error {
	if f, ok := raw["room"]; ok {
		n, err := number(f)
		if err != nil {
			return &fieldError{"room", err}
		}
		m.Room, m.HasRoom = n, true
	}
	for _, f := range []struct {
		name     string
		into     *int64
		optional bool
	}{
		{"rank", &m.Rank, false},
		{"generation", &m.Generation, false},
		{"status", &m.Status, false},
		{"prefix", &m.Prefix, true},
	} {
		if b, ok := raw[f.name]; ok && (len(b) > 0 || !f.optional) {
			n, err := small(b)
			if err != nil {
				return &fieldError{f.name, err}
			}
			*f.into = n
		}
	}
	return nil
}

func readTexts(m *Message, raw map[string][]byte) error {
	for _, f := range []struct {
		name string
		into *string
	}{{"session", &m.Session}, {"ip", &m.ReplyIP}} {
		b, ok := raw[f.name]
		if !ok {
			continue
		}
		if !isText(b) {
			return &fieldError{f.name, errors.New("not a short line of ASCII")}
		}
		*f.into = string(b)
	}
	if b := raw["reason"]; len(b) > 0 {
		m.Reason = strings.ToValidUTF8(string(b[:min(len(b), maxReason)]), "?")
	}
	return nil
}

// readReply checks the address that answers go to, since it will be dialled.
func readReply(m *Message, raw map[string][]byte) error {
	b, ok := raw["port"]
	if !ok {
		return nil
	}
	n, err := small(b)
	if err == nil && (n < 1 || n > 65535) {
		err = fmt.Errorf("%d is none", n)
	}
	if err != nil {
		return &fieldError{"port", err}
	}
	if m.ReplyIP == "" {
		return &fieldError{"ip", errors.New("empty")}
	}
	m.ReplyPort = int(n)
	return nil
}

// readPages takes in what a METADATA grants. One without pages and slot, or one
// that says so, is for a rank that is to send nothing.
func readPages(m *Message, raw map[string][]byte) error {
	aux, hasAux := raw["aux"]
	pages, hasPages := raw["pages"]
	dummy := hasPages && len(pages) == 0 && len(aux) == 0
	if flag, ok := raw["dummy"]; ok && len(flag) > 0 {
		n, err := small(flag)
		if err != nil {
			return &fieldError{"dummy", err}
		}
		dummy = n != 0
	}
	if dummy {
		m.Signal += "/dummy"
		return nil
	}
	switch {
	case len(pages)%4 != 0:
		return &fieldError{"pages", fmt.Errorf("%d bytes are no whole numbers", len(pages))}
	case len(pages)/4 > maxPages:
		return &fieldError{"pages", fmt.Errorf("%d are more than %d", len(pages)/4, maxPages)}
	}
	for ; len(pages) > 0; pages = pages[4:] {
		m.Pages = append(m.Pages, int32(binary.LittleEndian.Uint32(pages)))
	}
	if hasAux {
		n, err := small(aux)
		if err != nil {
			return &fieldError{"aux", err}
		}
		m.Aux = n
	}
	return nil
}

func readStatus(m *Message, _ map[string][]byte) error {
	switch {
	case m.Status < 0:
	case m.Status < int64(len(statusNames)):
		m.Signal += "/" + statusNames[m.Status]
	default:
		m.Signal += "/" + strconv.FormatInt(m.Status, 10)
	}
	return nil
}

// number reads a decimal number without sign.
func number(b []byte) (uint64, error) {
	if len(b) == 0 || len(b) > maxDigits {
		return 0, errNotANumber
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, errNotANumber
		}
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0, errNotANumber
	}
	return n, nil
}

// small reads a number that fits an int64.
func small(b []byte) (int64, error) {
	n, err := number(b)
	if err != nil || n > 1<<62 {
		return 0, errNotANumber
	}
	return int64(n), nil
}

func isText(b []byte) bool {
	if len(b) > maxText {
		return false
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// rewritten is msg with another place for the answers. It shares no frame that
// it changes.
func (m *Message) rewritten(msg [][]byte, addr string) ([][]byte, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	out := append(make([][]byte, 0, len(msg)), msg...)
	out[m.IPFrame], out[m.PortFrame] = []byte(host), []byte(port)
	return out, nil
}
