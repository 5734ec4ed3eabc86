package zmtp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// GreetingBytes is the size of a greeting.
const GreetingBytes = 64

// SignatureBytes is how much of a greeting tells ZMTP from other protocols.
const SignatureBytes = 10

// Greeting is what each side opens with.
type Greeting struct {
	Major, Minor byte
	Mechanism    string // "NULL", "PLAIN", "CURVE"
	AsServer     bool
}

// AppendGreeting appends g as it goes over the wire.
func AppendGreeting(dst []byte, g Greeting) []byte {
	var b [GreetingBytes]byte
	b[0], b[9] = 0xFF, 0x7F
	b[8] = 1 // what libzmq writes, so that its oldest peers see an identity of size 0
	b[10], b[11] = g.Major, g.Minor
	copy(b[12:32], g.Mechanism)
	if g.AsServer {
		b[32] = 1
	}
	return append(dst, b[:]...)
}

// IsSignature reports whether b, the first bytes of a connection (up to
// [SignatureBytes] of them are looked at), can be the start of a greeting.
func IsSignature(b []byte) bool {
	return (len(b) < 1 || b[0] == 0xFF) && (len(b) < SignatureBytes || b[9] == 0x7F)
}

// ParseGreeting reads a greeting; b has at least [GreetingBytes] bytes. The
// error is a *[ProtocolError].
func ParseGreeting(b []byte) (Greeting, error) {
	if len(b) < GreetingBytes {
		return Greeting{}, &ProtocolError{fmt.Sprintf("%d bytes", len(b)), "a greeting of 64 bytes"}
	}
	if !IsSignature(b) {
		return Greeting{}, &ProtocolError{fmt.Sprintf("% x", b[:SignatureBytes]), "the signature of ZMTP"}
	}
	g := Greeting{
		Major: b[10], Minor: b[11],
		Mechanism: string(bytes.TrimRight(b[12:32], "\x00")),
		AsServer:  b[32] == 1,
	}
	if g.Major < 3 {
		return g, &ProtocolError{fmt.Sprintf("ZMTP %d.%d", g.Major, g.Minor), "ZMTP 3.0 or newer"}
	}
	return g, nil
}

// command is the body of a command frame taken apart.
func splitCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, &ProtocolError{"a command without its name", "a length and a name"}
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

func appendCommand(dst []byte, name string, data []byte) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return AppendFrame(dst, Frame{Command: true, Body: append(body, data...)})
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

func parseProperties(b []byte) (map[string]string, error) {
	bad := &ProtocolError{"a READY whose properties do not add up", "names and values with their lengths"}
	props := map[string]string{}
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n+4 {
			return nil, bad
		}
		name := string(b[1 : 1+n])
		size := binary.BigEndian.Uint32(b[1+n:])
		b = b[1+n+4:]
		if uint64(len(b)) < uint64(size) {
			return nil, bad
		}
		// Property names are case-insensitive in ZMTP.
		props[string(bytes.ToLower([]byte(name)))] = string(b[:size])
		b = b[size:]
	}
	return props, nil
}

// handshake opens a connection as a socket of one type and accepts a peer of
// another. It returns the reader that goes on where the handshake ended.
func handshake(conn net.Conn, own, peer string, lim Limits, within time.Duration) (*Reader, error) {
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, fmt.Errorf("zmtp: handshake: %w", err)
	}
	hello := AppendGreeting(nil, Greeting{Major: 3, Minor: 1, Mechanism: "NULL"})
	if _, err := conn.Write(hello); err != nil {
		return nil, fmt.Errorf("zmtp: greeting: %w", err)
	}
	var raw [GreetingBytes]byte
	if _, err := io.ReadFull(conn, raw[:]); err != nil {
		return nil, fmt.Errorf("zmtp: greeting: %w", err)
	}
	g, err := ParseGreeting(raw[:])
	if err != nil {
		return nil, err
	}
	if g.Mechanism != "NULL" {
		return nil, &ProtocolError{fmt.Sprintf("mechanism %q", g.Mechanism), "NULL"}
	}
	ready := appendCommand(nil, "READY", appendProperty(nil, "Socket-Type", own))
	if _, err := conn.Write(ready); err != nil {
		return nil, fmt.Errorf("zmtp: READY: %w", err)
	}
	r := NewReader(conn, lim)
	if err := readReady(r, peer); err != nil {
		return nil, err
	}
	return r, conn.SetDeadline(time.Time{})
}

func readReady(r *Reader, peer string) error {
	f, err := r.ReadFrame()
	if err != nil {
		return fmt.Errorf("zmtp: READY: %w", err)
	}
	if !f.Command {
		return &ProtocolError{"a message", "READY first"}
	}
	name, data, err := splitCommand(f.Body)
	if err != nil {
		return err
	}
	if name != "READY" {
		return &ProtocolError{fmt.Sprintf("command %.32q", name), "READY"}
	}
	props, err := parseProperties(data)
	if err != nil {
		return err
	}
	if got := props["socket-type"]; got != peer {
		return &ProtocolError{fmt.Sprintf("a %.16q socket", got), "a " + peer + " socket"}
	}
	return nil
}

// pong is the answer to a command, nil for one that asks for none. A PING
// carries a time to live of two bytes and a context of up to 16, which the PONG
// gives back.
func pong(command []byte) ([]byte, error) {
	name, data, err := splitCommand(command)
	if err != nil {
		return nil, err
	}
	switch name {
	case "PING":
		if len(data) < 2 || len(data) > 2+16 {
			return nil, &ProtocolError{"a PING of a wrong size", "a time to live and a context of up to 16 bytes"}
		}
		return appendCommand(nil, "PONG", data[2:]), nil
	case "ERROR":
		return nil, &ProtocolError{fmt.Sprintf("ERROR %.64q", data), "no error"}
	}
	return nil, nil
}
