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
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"conform/harness"
)

// Check is what a certificate is held against.
type Check struct {
	Trust    Trust
	Quarters Quarters  // the values that the verifier knows to have been published
	Profile  *Profile  // nil: the built-in one of the certificate's name
	At       time.Time // when it must hold; zero: now
	Limits   Limits    // zero: the default
	TempDir  string    // where it is unpacked, in a folder that is removed; "": the system's
}

// Verify checks a certificate from its bytes alone, offline. The error is a [*Refusal]
// where the certificate is not to be relied on; any other is that of the machine or of
// ctx. Memory is bounded by the limits, and files are written below a temporary folder
// only.
func Verify(ctx context.Context, path string, c Check) (_ *Report, err error) {
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	if c.At.IsZero() {
		c.At = time.Now()
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	dir, err := os.MkdirTemp(c.TempDir, "conform-verify-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return verify(ctx, bufio.NewReaderSize(f, 1<<20), dir, c)
}

// opened is the front of a certificate, all of whose signatures hold.
type opened struct {
	list      memberList
	text      []byte // of the list
	envelopes map[string]*envelope
	keys      map[string]ed25519.PublicKey
}

func verify(ctx context.Context, in io.Reader, dir string, c Check) (*Report, error) {
	a := &archive{in, c.Limits.TotalBytes}
	o, err := openFront(ctx, a, c.Limits)
	if err != nil {
		return nil, err
	}
	signers, err := o.trusted(c.Trust)
	if err != nil {
		return nil, err
	}
	texts, err := o.unpack(ctx, a, dir)
	if err != nil {
		return nil, err
	}
	p, q, err := o.terms(texts, c)
	if err != nil {
		return nil, err
	}
	r, err := o.again(ctx, dir, texts, p, q, c.Limits)
	if err != nil {
		return nil, err
	}
	rep := r.report()
	rep.Signers = signers
	for _, s := range signers {
		if k := s.trusted; k != nil && !k.holds(r.issued) {
			return nil, refuse(CodeTrust, "", "the key of %s was not valid on %s, when the last attempt ended", k.Name, r.issued.Format(time.DateOnly))
		}
	}
	if !c.At.Before(r.expires) {
		return nil, refuse(CodeExpired, "", "it expired on %s", r.expires.Format(time.DateOnly))
	}
	if c.At.Before(r.issued) {
		return nil, refuse(CodeExpired, "", "its last attempt ended on %s, which is still to come", r.issued.Format(time.RFC3339))
	}
	return rep, nil
}

// openFront reads the small members that come first and checks every signature.
func openFront(ctx context.Context, a *archive, lim Limits) (*opened, error) {
	o := &opened{envelopes: map[string]*envelope{}, keys: map[string]ed25519.PublicKey{}}
	name, text, err := a.text(maxListBytes)
	if err != nil {
		return nil, err
	}
	if err := o.readList(name, text, lim); err != nil {
		return nil, err
	}
	ids := []string{}
	for {
		if name, text, err = a.text(maxEnvelopeBytes); err != nil {
			return nil, err
		}
		id, ok := strings.CutPrefix(name, keysFolder)
		if !ok {
			break
		}
		pub, err := parsePublicKey(text)
		if err != nil || !bytes.Equal(publicPEM(pub), text) || id != KeyID(pub)+publicSuffix {
			return nil, refuse(CodeMalformed, name, "it is not the public key of its name")
		}
		id = KeyID(pub)
		ids = append(ids, id)
		if o.keys[id] = pub; len(ids) > maxSigners {
			return nil, refuse(CodeBounds, name, "more than %d keys", maxSigners)
		}
	}
	if err := o.readStatement(ctx, name, conformanceMember, text, ids); err != nil {
		return nil, err
	}
	if name, text, err = a.text(maxEnvelopeBytes); err != nil {
		return nil, err
	}
	return o, o.readStatement(ctx, name, testResultMember, text, ids)
}

// text is the next member, which is small and must be there.
func (a *archive) text(limit int64) (string, []byte, error) {
	name, size, err := a.next()
	if errors.Is(err, io.EOF) {
		return "", nil, refuse(CodeMember, "", "the file ends before its statements")
	} else if err != nil {
		return "", nil, err
	}
	if size > limit {
		return "", nil, refuse(CodeBounds, name, "it has %d bytes; at most %d are read", size, limit)
	}
	var b bytes.Buffer
	err = a.body(&b, name, size)
	return name, b.Bytes(), err
}

func (o *opened) readList(name string, text []byte, lim Limits) error {
	if name != listMember {
		return refuse(CodeMember, name, "a certificate begins with %s", listMember)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&o.list); err != nil {
		return refuse(CodeMalformed, name, "no list of members: %v", err)
	}
	if o.list.Format != format {
		return refuse(CodeVersion, name, "its format is %q; this program reads %q", o.list.Format, format)
	}
	if !bytes.Equal(line(o.list), text) {
		return refuse(CodeMalformed, name, "the list is written in one form only, and this is another")
	}
	if len(o.list.Members) > lim.Members {
		return refuse(CodeBounds, name, "%d members; at most %d are read", len(o.list.Members), lim.Members)
	}
	for i, m := range o.list.Members {
		ordered := i == 0 || o.list.Members[i-1].Name < m.Name
		if !goodName(m.Name) || !ordered || m.Bytes < 0 {
			return refuse(CodeMalformed, name, "it lists %q out of order, or it can't be", m.Name)
		}
		if m.Bytes > lim.MemberBytes {
			return refuse(CodeBounds, m.Name, "it has %d bytes; at most %d are read", m.Bytes, lim.MemberBytes)
		}
	}
	o.text = text
	return nil
}

func (o *opened) readStatement(ctx context.Context, name, want string, text []byte, ids []string) error {
	if name != want {
		return refuse(CodeMember, name, "%s must stand here", want)
	}
	e, err := openEnvelope(ctx, name, text, o.keys)
	if err != nil {
		return err
	}
	if !slices.Equal(e.signers, ids) {
		return refuse(CodeSignature, name, "it is not signed by each key that the certificate holds")
	}
	sum, err := e.signedList(name)
	if err != nil {
		return err
	}
	if sum != digestOf(o.text) {
		return refuse(CodeStatement, listMember, "it is not the list that was signed: members were changed, added or left out after signing")
	}
	o.envelopes[name] = e
	return nil
}

// trusted counts the signers whose keys are trusted.
func (o *opened) trusted(t Trust) ([]Signer, error) {
	var all []Signer
	n := 0
	for _, id := range o.envelopes[conformanceMember].signers {
		s := Signer{KeyID: id}
		for i, k := range t.Keys {
			if k.Key.Equal(o.keys[id]) {
				s.Name, s.trusted = k.Name, &t.Keys[i]
				n++
			}
		}
		all = append(all, s)
	}
	if n < max(t.Threshold, 1) {
		return nil, refuse(CodeTrust, "", "%d of its %d signatures are of trusted keys; it takes %d", n, len(all), max(t.Threshold, 1))
	}
	return all, nil
}

// unpack writes the runs below dir and returns the other members. Each must be the
// one that was signed, in the list's order.
func (o *opened) unpack(ctx context.Context, a *archive, dir string) (map[string][]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // each file in it was closed with its error
	texts := map[string][]byte{}
	for _, m := range o.list.Members {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, size, err := a.next()
		switch {
		case err == nil && !o.lists(name):
			return nil, refuse(CodeMember, name, "it was not signed")
		case errors.Is(err, io.EOF), err == nil && name != m.Name:
			return nil, refuse(CodeMember, m.Name, "it was signed, and is not there")
		case err != nil:
			return nil, err
		case size != m.Bytes:
			return nil, refuse(CodeDigest, name, "it has %d bytes, and %d were signed", size, m.Bytes)
		}
		if strings.HasPrefix(name, "runs/") {
			err = unpackFile(a, root, m)
		} else {
			texts[name], err = unpackText(a, m)
		}
		if err != nil {
			return nil, err
		}
	}
	if name, _, err := a.next(); err == nil {
		return nil, refuse(CodeMember, name, "it was not signed")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return texts, nil
}

// lists reports whether a member of that name was signed.
func (o *opened) lists(name string) bool {
	_, ok := slices.BinarySearchFunc(o.list.Members, name, func(m member, name string) int { return strings.Compare(m.Name, name) })
	return ok
}

func unpackText(a *archive, m member) ([]byte, error) {
	if m.Bytes > maxDerivedBytes {
		return nil, refuse(CodeBounds, m.Name, "it has %d bytes; at most %d are read", m.Bytes, int64(maxDerivedBytes))
	}
	var b bytes.Buffer
	if err := a.body(&b, m.Name, m.Bytes); err != nil {
		return nil, err
	}
	if digestOf(b.Bytes()) != m.SHA256 {
		return nil, refuse(CodeDigest, m.Name, "its content is not the one that was signed")
	}
	return b.Bytes(), nil
}

func unpackFile(a *archive, root *os.Root, m member) error {
	if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(m.Name)), 0o700); err != nil {
		return asRefusal(m.Name, err)
	}
	f, err := root.OpenFile(filepath.FromSlash(m.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return asRefusal(m.Name, err)
	}
	sum := sha256.New()
	err = a.body(io.MultiWriter(f, sum), m.Name, m.Bytes)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != m.SHA256 {
		return refuse(CodeDigest, m.Name, "its content is not the one that was signed")
	}
	return nil
}

// asRefusal blames the certificate for names that no folder can hold together, such
// as a file that is a folder too.
func asRefusal(name string, err error) error {
	if errors.Is(err, os.ErrExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) {
		return refuse(CodeMalformed, name, "it can't be unpacked beside the others")
	}
	return err
}

// terms are the profile and the quarter's values, which must be the verifier's own.
func (o *opened) terms(texts map[string][]byte, c Check) (Profile, Quarters, error) {
	text, ok := texts[profileMember]
	if !ok {
		return Profile{}, nil, refuse(CodeMember, profileMember, "it is missing")
	}
	p, err := ParseProfile(text)
	if err != nil {
		return p, nil, refuse(CodeProfile, profileMember, "%v", err)
	}
	if c.Profile != nil {
		if !bytes.Equal(c.Profile.text, text) {
			return p, nil, refuse(CodeProfile, profileMember, "it is not the profile %s that was asked for", c.Profile.Name)
		}
		return p, c.Quarters, nil
	}
	own, err := FindProfile(p.Name)
	if err != nil || !bytes.Equal(own.text, text) {
		return p, nil, refuse(CodeProfile, profileMember, "its profile %s is not one of this program's; name a file that you trust with --profile", p.Name)
	}
	return p, c.Quarters, nil
}

// again judges what was unpacked, and compares all that follows from it.
func (o *opened) again(ctx context.Context, dir string, texts map[string][]byte, p Profile, q Quarters, lim Limits) (*record, error) {
	runs, err := unpackedRuns(dir)
	if err != nil {
		return nil, err
	}
	r, err := assess(ctx, runs, p, q, lim)
	if err != nil {
		return nil, err
	}
	derived := r.derived()
	for _, name := range []string{subjectMember, quarterMember, journalMember, resultsMember, profileMember} {
		if !bytes.Equal(texts[name], derived[name]) {
			return nil, refuse(CodeContent, name, "%s", differs(name, texts[name], derived[name], r))
		}
		delete(texts, name)
	}
	for name := range texts {
		return nil, refuse(CodeMember, name, "a certificate has no such member")
	}
	if err := o.sameMembers(r); err != nil {
		return nil, err
	}
	if len(r.short) > 0 {
		return nil, refuse(CodeShortfall, "", "%s", strings.Join(r.short, "; "))
	}
	statements, err := r.statements(o.text)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{conformanceMember, testResultMember} {
		if !bytes.Equal(statements[name], o.envelopes[name].payload) {
			return nil, refuse(CodeContent, name, "it states something else than what follows from the traces")
		}
	}
	return r, nil
}

// differs says in words what a member that does not follow from the traces means.
func differs(name string, _, want []byte, r *record) string {
	switch name {
	case resultsMember:
		return "the traces, judged again, give other results than it states"
	case journalMember:
		return "it is not the journal of the attempts whose traces are here: some were left out, added or changed"
	case quarterMember:
		return "its value or seeds are not those of " + r.quarter.Name + " for this subject"
	case subjectMember:
		return "it is not the subject that the attempts were recorded on"
	}
	return "it does not follow from the traces"
}

// sameMembers makes sure that nothing was unpacked that was not looked at.
func (o *opened) sameMembers(r *record) error {
	used := map[string]bool{}
	for _, run := range r.runs {
		files, err := run.members()
		if err != nil {
			return asRefusal(run.prefix, err)
		}
		for _, f := range files {
			used[f.name] = true
		}
	}
	for _, m := range o.list.Members {
		if strings.HasPrefix(m.Name, "runs/") && !used[m.Name] {
			return refuse(CodeMember, m.Name, "a certificate has no such member")
		}
	}
	return nil
}

// unpackedRuns are the run folders below dir, which must be in the order that
// openRuns gives them.
func unpackedRuns(dir string) ([]runFolder, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "runs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		dirs = append(dirs, filepath.Join(dir, "runs", e.Name()))
	}
	runs, err := openRuns(dirs)
	if err != nil {
		return nil, asRefusal("runs", unpackedError(dir, err))
	}
	for i, r := range runs {
		if want := filepath.Base(runPrefix(i)); filepath.Base(r.dir) != want {
			return nil, refuse(CodeContent, "runs", "the runs are not numbered by their starts")
		}
	}
	return runs, nil
}

// unpackedError is a refusal for a run that can't be read, without the name of the
// temporary folder.
func unpackedError(dir string, err error) error {
	if errors.Is(err, ErrRun) {
		text := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
		return refuse(CodeContent, cmp.Or(strings.SplitN(text, ":", 2)[0], harness.AttemptsFile), "%s", text)
	}
	return err
}
