package certify

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The members that are not of a run.
const (
	listMember    = "certificate.json"
	journalMember = "journal.jsonl"
	profileMember = "profile.yaml"
	quarterMember = "quarter.json"
	resultsMember = "results.json"
	subjectMember = "subject.json"
	keysFolder    = "keys/"
	format        = "conform-certificate/1"
)

// memberList is certificate.json.
type memberList struct {
	Format  string   `json:"format"`
	Members []member `json:"members"` // by name
}

// member is one file of a certificate.
type member struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`

	path string // on the disk; "" for text
	text []byte
}

// Input is what a certificate is made from.
type Input struct {
	Runs     []string // folders that conform run made
	Profile  Profile
	Quarters Quarters
	Keys     []ed25519.PrivateKey // all of them sign
	Limits   Limits               // zero: the default
}

// ShortfallError says why no certificate can be made: what the runs lack for the
// profile, each in words.
type ShortfallError struct {
	Lacks []string `json:"missing"`
	// Failed is set where some of it is a failure of what was tested, rather than
	// something that has not been run.
	Failed bool `json:"failed"`
}

func (r *record) shortfall() *ShortfallError {
	if len(r.short) == 0 {
		return nil
	}
	return &ShortfallError{r.short, r.failed}
}

func (e *ShortfallError) Error() string {
	return fmt.Sprintf("%d things are missing for a certificate, the first: %s", len(e.Lacks), e.Lacks[0])
}

// Certify judges the runs again, and writes a certificate to path if they have all
// that the profile asks for; else the error is a [*ShortfallError]. The same input
// gives the same bytes, on any machine and in any order of runs and keys. A file at
// path is replaced only by a whole certificate.
func Certify(ctx context.Context, in Input, path string) (*Report, error) {
	if in.Limits == (Limits{}) {
		in.Limits = DefaultLimits()
	}
	runs, err := openRuns(in.Runs)
	if err != nil {
		return nil, err
	}
	r, err := assess(ctx, runs, in.Profile, in.Quarters, in.Limits)
	if err != nil {
		return nil, err
	}
	if short := r.shortfall(); short != nil {
		return nil, short
	}
	members, err := r.members()
	if err != nil {
		return nil, err
	}
	list := line(memberList{format, members})
	if len(list) > maxListBytes || len(members) > in.Limits.Members {
		return nil, refuse(CodeBounds, listMember, "%d members are more than a certificate may have", len(members))
	}
	front, err := r.front(ctx, list, in.Keys)
	if err != nil {
		return nil, err
	}
	err = writeFile(path, func(w io.Writer) error {
		if err := writeMembers(w, append(front, members...)); err != nil {
			return err
		}
		return writeEnd(w)
	})
	if err != nil {
		return nil, err
	}
	rep := r.report()
	for _, k := range sortedKeys(in.Keys) {
		rep.Signers = append(rep.Signers, Signer{Name: "this key", KeyID: KeyID(k.Public().(ed25519.PublicKey))})
	}
	return rep, nil
}

// Preview judges runs as [Certify] does and tells the build's digest, the quarter's
// seeds, and what is missing (nil: nothing), without making anything.
func Preview(ctx context.Context, in Input) (*Report, *ShortfallError, error) {
	runs, err := openRuns(in.Runs)
	if err != nil {
		return nil, nil, err
	}
	r, err := assess(ctx, runs, in.Profile, in.Quarters, DefaultLimits())
	if err != nil {
		return nil, nil, err
	}
	return r.report(), r.shortfall(), nil
}

// derived are the members that follow from the runs, the profile and the quarter.
func (r *record) derived() map[string][]byte {
	var journal []byte
	for _, a := range r.journal {
		journal = append(journal, line(a)...)
	}
	return map[string][]byte{
		journalMember: journal, profileMember: r.profile.text, quarterMember: line(r.quarter),
		resultsMember: indented(r.results), subjectMember: indented(r.subject),
	}
}

// members are all members that the list names, in their order, with their digests.
func (r *record) members() ([]member, error) {
	var all []member
	for name, text := range r.derived() {
		all = append(all, textMember(name, text))
	}
	for _, run := range r.runs {
		files, err := run.members()
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			n, sum, err := hashFile(f.path)
			if err != nil {
				return nil, err
			}
			all = append(all, member{Name: f.name, Bytes: n, SHA256: sum, path: f.path})
		}
	}
	slices.SortFunc(all, func(a, b member) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func textMember(name string, text []byte) member {
	return member{Name: name, Bytes: int64(len(text)), SHA256: digestOf(text), text: text}
}

// front is what comes before the members of the list: the list itself, the signers'
// keys, and the signed statements.
func (r *record) front(ctx context.Context, list []byte, keys []ed25519.PrivateKey) ([]member, error) {
	if len(keys) == 0 || len(keys) > maxSigners {
		return nil, fmt.Errorf("%w: %d keys; a certificate has 1 to %d signers", ErrKey, len(keys), maxSigners)
	}
	keys = sortedKeys(keys)
	all := []member{textMember(listMember, list)}
	for _, k := range keys {
		pub := k.Public().(ed25519.PublicKey)
		all = append(all, textMember(keysFolder+KeyID(pub)+publicSuffix, publicPEM(pub)))
	}
	statements, err := r.statements(list)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{conformanceMember, testResultMember} {
		env, err := sign(ctx, statements[name], keys)
		if err != nil {
			return nil, err
		}
		all = append(all, textMember(name, env))
	}
	return all, nil
}

// sortedKeys are the keys in the order of their ids, each once.
func sortedKeys(keys []ed25519.PrivateKey) []ed25519.PrivateKey {
	id := func(k ed25519.PrivateKey) string { return KeyID(k.Public().(ed25519.PublicKey)) }
	out := slices.SortedFunc(slices.Values(keys), func(a, b ed25519.PrivateKey) int { return strings.Compare(id(a), id(b)) })
	return slices.CompactFunc(out, func(a, b ed25519.PrivateKey) bool { return a.Equal(b) })
}

// writeFile writes a certificate beside path and puts it there when it is whole.
func writeFile(path string, content func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	err = errors.Join(content(w), w.Flush(), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

func writeMembers(w io.Writer, members []member) error {
	for _, m := range members {
		if err := m.write(w); err != nil {
			return err
		}
	}
	return nil
}

// write writes the member, whose content must still be the one of its digest.
func (m *member) write(w io.Writer) error {
	if m.path == "" {
		return writeMember(w, m.Name, m.Bytes, bytes.NewReader(m.text))
	}
	f, err := os.Open(m.path)
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = writeMember(w, m.Name, m.Bytes, io.TeeReader(f, sum))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != m.SHA256 {
		return fmt.Errorf("%s was changed while it was read", m.path)
	}
	return nil
}

func hashFile(path string) (int64, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return n, hex.EncodeToString(sum.Sum(nil)), errors.Join(err, f.Close())
}

// indented is a value as JSON for people to read.
func indented(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("certify: plain data: " + err.Error())
	}
	return append(b, '\n')
}
