package certify

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	blockSize = 512
	// What the header of a plain tar holds of a member: its name, its size.
	maxName   = 100
	maxMember = 1<<33 - 1
)

// memberName is what a member may be called. No part begins with a dot, so none is
// above or beside the folder that it is unpacked to.
var memberName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.#@+=-]*(/[A-Za-z0-9_][A-Za-z0-9_.#@+=-]*){0,5}$`)

func goodName(name string) bool { return len(name) <= maxName && memberName.MatchString(name) }

// header is the one header that a member of this name and size has.
func header(name string, size int64) ([]byte, error) {
	if !goodName(name) || size > maxMember {
		return nil, refuse(CodeMalformed, "", "no member can have the name %q and %d bytes", name, size)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR})
	if err != nil {
		return nil, fmt.Errorf("tar header of %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// writeMember writes one member, whose size must be that of r.
func writeMember(w io.Writer, name string, size int64, r io.Reader) error {
	h, err := header(name, size)
	if err != nil {
		return err
	}
	if _, err := w.Write(h); err != nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(r, size))
	if err == nil && n != size {
		err = fmt.Errorf("%s: it has %d bytes, and had %d before", name, n, size)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(make([]byte, padding(size)))
	return err
}

func writeEnd(w io.Writer) error {
	_, err := w.Write(make([]byte, 2*blockSize))
	return err
}

func padding(size int64) int64 { return -size & (blockSize - 1) }

// archive reads a certificate's members in their order. It accepts no byte that
// writeMember would not have written.
type archive struct {
	r     io.Reader
	limit int64 // bytes that may still come
}

// next is the name and size of the next member; io.EOF after the last one.
func (a *archive) next() (string, int64, error) {
	var h [blockSize]byte
	if err := a.full(h[:], "the header of a member"); err != nil {
		return "", 0, err
	}
	if h == [blockSize]byte{} {
		return "", 0, a.end()
	}
	name, _, _ := strings.Cut(string(h[:maxName]), "\x00")
	size, err := strconv.ParseInt(strings.Trim(string(h[124:136]), "\x00 "), 8, 64)
	if err != nil || size < 0 || size > maxMember || !goodName(name) {
		return "", 0, refuse(CodeMalformed, "", "no header of a member where one must be")
	}
	want, err := header(name, size)
	if err != nil {
		return "", 0, err
	}
	if !bytes.Equal(h[:], want) {
		return "", 0, refuse(CodeMalformed, name, "its header is not the one that a certificate has")
	}
	if a.limit -= size + padding(size) + blockSize; a.limit < 0 {
		return "", 0, refuse(CodeBounds, name, "the certificate is larger than the limit")
	}
	return name, size, nil
}

// body copies the member that next has named, and checks its padding.
func (a *archive) body(w io.Writer, name string, size int64) error {
	n, err := io.Copy(w, io.LimitReader(a.r, size))
	if err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	if n != size {
		return refuse(CodeMalformed, name, "the file ends in the middle of it")
	}
	pad := make([]byte, padding(size))
	if err := a.full(pad, "the end of "+name); err != nil {
		return err
	}
	if len(bytes.Trim(pad, "\x00")) > 0 {
		return refuse(CodeMalformed, name, "something is hidden behind its end")
	}
	return nil
}

// end takes the second of the two blocks that end a tar, and nothing more.
func (a *archive) end() error {
	var h [blockSize]byte
	if err := a.full(h[:], "the end"); err != nil {
		return err
	}
	if h != [blockSize]byte{} {
		return refuse(CodeMalformed, "", "something is hidden behind the last member")
	}
	if n, err := io.ReadFull(a.r, h[:1]); n > 0 {
		return refuse(CodeMalformed, "", "the file goes on after its end")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return io.EOF
}

func (a *archive) full(b []byte, what string) error {
	_, err := io.ReadFull(a.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse(CodeMalformed, "", "the file ends before %s", what)
	}
	return err
}
