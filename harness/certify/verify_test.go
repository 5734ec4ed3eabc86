package certify

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/harness"
	"conform/traces"
)

func TestCertificateHolds(t *testing.T) {
	in := fixture(t)
	path := certificate(t, in)
	rep, err := Verify(t.Context(), path, in.check())
	require.NoError(t, err)
	require.Equal(t, 2, rep.Attempts)
	require.Equal(t, 1, rep.Required)
	require.Equal(t, 1, rep.Planted)
	require.Positive(t, rep.Faults)
	require.Equal(t, []uint64{made.seed}, rep.Quarter.Seeds)
	require.Equal(t, []Signer{{Name: "vendor", KeyID: KeyID(public(key(1))), trusted: rep.Signers[0].trusted}}, rep.Signers)
	require.NotNil(t, rep.Subject.Hardware)
	require.Len(t, rep.Subject.Limits, 2)
	var b bytes.Buffer
	require.NoError(t, rep.Text(&b))
	require.Contains(t, b.String(), "It claims that")
	require.Contains(t, b.String(), "that the traces were recorded on the stack that they name")
}

// The same input gives the same bytes, in any order.
func TestCertificateIsDeterministic(t *testing.T) {
	in := fixture(t)
	in.Keys = []ed25519.PrivateKey{key(1), key(2)}
	a, err := os.ReadFile(certificate(t, in))
	require.NoError(t, err)
	other := in.copied(t)
	slices.Reverse(other.Runs)
	other.Keys = []ed25519.PrivateKey{key(2), key(1), key(2)}
	b, err := os.ReadFile(certificate(t, other))
	require.NoError(t, err)
	require.True(t, bytes.Equal(a, b))
}

// part is a member of a certificate, for tests that take one apart.
type part struct {
	name string
	text []byte
}

func takeApart(tb testing.TB, path string) []part {
	tb.Helper()
	b, err := os.ReadFile(path)
	require.NoError(tb, err)
	a := &archive{bytes.NewReader(b), 1 << 40}
	var parts []part
	for {
		name, size, err := a.next()
		if err != nil {
			return parts
		}
		var text bytes.Buffer
		require.NoError(tb, a.body(&text, name, size))
		parts = append(parts, part{name, text.Bytes()})
	}
}

func putTogether(tb testing.TB, parts []part) string {
	tb.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		require.NoError(tb, writeMember(&b, p.name, int64(len(p.text)), bytes.NewReader(p.text)))
	}
	require.NoError(tb, writeEnd(&b))
	path := filepath.Join(tb.TempDir(), "c.cert")
	require.NoError(tb, os.WriteFile(path, b.Bytes(), 0o644))
	return path
}

func find(parts []part, name string) int {
	return slices.IndexFunc(parts, func(p part) bool { return strings.HasSuffix(p.name, name) })
}

// redigest makes the list fit the members again, without a new signature.
func redigest(parts []part) {
	var list memberList
	list.Format = format
	for _, p := range parts[find(parts, "test-result.dsse.json")+1:] {
		list.Members = append(list.Members, textMember(p.name, p.text))
	}
	parts[0].text = line(list)
}

func refused(tb testing.TB, path string, c Check) *Refusal {
	tb.Helper()
	_, err := Verify(tb.Context(), path, c)
	require.Error(tb, err)
	r, ok := errors.AsType[*Refusal](err)
	require.True(tb, ok, "%v", err)
	return r
}

func TestTamperingIsRefused(t *testing.T) {
	in := fixture(t)
	whole := takeApart(t, certificate(t, in))
	require.Equal(t, "c.cert", filepath.Base(putTogether(t, whole)))
	_, err := Verify(t.Context(), putTogether(t, whole), in.check())
	require.NoError(t, err, "taking apart and putting together changes nothing")

	other := fixture(t)
	other.Keys = []ed25519.PrivateKey{key(2)}
	stranger := takeApart(t, certificate(t, other))

	for name, c := range map[string]struct {
		code   Code
		member string
		change func(parts []part) []part
	}{
		"a trace was edited": {CodeDigest, "harness.jsonl.zst", func(p []part) []part {
			p[find(p, "harness.jsonl.zst")].text[9] ^= 1
			return p
		}},
		"a trace was edited and digested again": {CodeStatement, listMember, func(p []part) []part {
			p[find(p, "harness.jsonl.zst")].text[9] ^= 1
			redigest(p)
			return p
		}},
		"the manifest of an attempt was edited and digested again": {CodeStatement, listMember, func(p []part) []part {
			i := find(p, "1/manifest.json")
			if i < 0 {
				i = find(p, "manifest.json")
			}
			p[i].text = bytes.Replace(p[i].text, []byte("free-at-cancel"), nil, 1)
			p[i].text = append(p[i].text, ' ')
			redigest(p)
			return p
		}},
		"an attempt was dropped": {CodeMember, "runs/0002/attempts.json", func(p []part) []part {
			return slices.DeleteFunc(p, func(m part) bool { return strings.HasPrefix(m.name, "runs/0002") })
		}},
		"an attempt was dropped and the rest digested again": {CodeStatement, listMember, func(p []part) []part {
			p = slices.DeleteFunc(p, func(m part) bool { return strings.HasPrefix(m.name, "runs/0002") })
			redigest(p)
			return p
		}},
		"a line of the journal was dropped": {CodeDigest, journalMember, func(p []part) []part {
			i := find(p, journalMember)
			p[i].text = p[i].text[bytes.IndexByte(p[i].text, '\n')+1:]
			return p
		}},
		"two members changed places": {CodeMember, journalMember, func(p []part) []part {
			i := find(p, journalMember)
			p[i], p[i+1] = p[i+1], p[i]
			return p
		}},
		"a member was added": {CodeMember, "runs/0003/attempts.json", func(p []part) []part {
			i := find(p, subjectMember)
			return slices.Insert(p, i, part{"runs/0003/attempts.json", []byte("{}")})
		}},
		"a statement of another certificate": {CodeSignature, conformanceMember, func(p []part) []part {
			i := find(p, conformanceMember)
			p[i] = stranger[i]
			return p
		}},
		"a statement in the place of the other": {CodeContent, testResultMember, func(p []part) []part {
			p[find(p, testResultMember)].text = p[find(p, conformanceMember)].text
			return p
		}},
		"the front of another certificate": {CodeTrust, "", func(p []part) []part {
			n := find(p, testResultMember) + 1
			return append(slices.Clone(stranger[:n]), p[n:]...)
		}},
		"a key of another": {CodeSignature, conformanceMember, func(p []part) []part {
			p[1] = stranger[1]
			return p
		}},
		"no signature": {CodeMalformed, conformanceMember, func(p []part) []part {
			i := find(p, conformanceMember)
			j := bytes.Index(p[i].text, []byte(`"signatures"`))
			p[i].text = append(p[i].text[:j:j], []byte(`"signatures":[]}`+"\n")...)
			return p
		}},
		"spaces in a statement": {CodeMalformed, conformanceMember, func(p []part) []part {
			i := find(p, conformanceMember)
			p[i].text = append(p[i].text, ' ')
			return p
		}},
	} {
		t.Run(name, func(t *testing.T) {
			parts := slices.Clone(whole)
			for i := range parts {
				parts[i].text = bytes.Clone(parts[i].text)
			}
			r := refused(t, putTogether(t, c.change(parts)), in.check())
			require.Equal(t, c.code, r.Code, "%v", r)
			require.True(t, strings.HasSuffix(r.Member, c.member), "%q: %v", r.Member, r)
			require.NotEmpty(t, r.Text)
		})
	}
}

// Whoever holds the key can sign what he likes; what does not follow from the traces
// is refused all the same.
func TestSignedLiesAreRefused(t *testing.T) {
	in := fixture(t)
	whole := takeApart(t, certificate(t, in))
	for name, c := range map[string]struct {
		code   Code
		member string
		change func(*record, []part) []part
	}{
		"other results": {CodeContent, resultsMember, func(_ *record, p []part) []part {
			i := find(p, resultsMember)
			p[i].text = bytes.Replace(p[i].text, []byte(`"verdict": "fail"`), []byte(`"verdict": "pass"`), 1)
			return p
		}},
		"a shorter journal": {CodeContent, journalMember, func(_ *record, p []part) []part {
			i := find(p, journalMember)
			p[i].text = p[i].text[bytes.IndexByte(p[i].text, '\n')+1:]
			return p
		}},
		"another subject": {CodeContent, subjectMember, func(_ *record, p []part) []part {
			i := find(p, subjectMember)
			p[i].text = bytes.Replace(p[i].text, []byte("reference 0"), []byte("reference 9"), 1)
			return p
		}},
		"other seeds": {CodeContent, quarterMember, func(_ *record, p []part) []part {
			i := find(p, quarterMember)
			p[i].text = bytes.Replace(p[i].text, []byte(`"seeds":[`), []byte(`"seeds":[7,`), 1)
			return p
		}},
		"an easier profile": {CodeProfile, profileMember, func(_ *record, p []part) []part {
			i := find(p, profileMember)
			p[i].text = bytes.Replace(p[i].text, []byte("retries: 1"), []byte("retries: 9"), 1)
			return p
		}},
		"an attempt left out": {CodeContent, journalMember, func(_ *record, p []part) []part {
			return slices.DeleteFunc(p, func(m part) bool { return strings.HasPrefix(m.name, "runs/0002") })
		}},
		"a log": {CodeMember, "log", func(_ *record, p []part) []part {
			i := find(p, subjectMember)
			return slices.Insert(p, i, part{"runs/0002/x/log", []byte("x")})
		}},
		"a further member": {CodeMember, "zzz", func(_ *record, p []part) []part { return append(p, part{"zzz", nil}) }},
		"a file that is a folder": {CodeMalformed, "runs/0009/a/b", func(_ *record, p []part) []part {
			i := find(p, subjectMember)
			return slices.Insert(p, i, part{"runs/0009/a", nil}, part{"runs/0009/a/b", nil})
		}},
		"a file in the place of a run": {CodeMalformed, "runs", func(_ *record, p []part) []part {
			return slices.Insert(p, find(p, subjectMember), part{"runs/0009", nil})
		}},
		"a file in the place of the events": {CodeMember, "baseline.push.9/events", func(_ *record, p []part) []part {
			i := find(p, "attempts.json")
			return slices.Insert(p, i+1, part{"runs/0001/baseline.push.9/events", nil})
		}},
		"another trace": {CodeContent, "", func(_ *record, p []part) []part {
			p[find(p, "harness.jsonl.zst")].text = []byte("no trace")
			return p
		}},
		"another statement": {CodeContent, conformanceMember, func(r *record, p []part) []part {
			r.expires = r.expires.AddDate(1, 0, 0)
			return p
		}},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := openRuns(in.Runs)
			require.NoError(t, err)
			r, err := assess(t.Context(), runs, in.Profile, in.Quarters, DefaultLimits())
			require.NoError(t, err)
			parts := slices.Clone(whole)
			for i := range parts {
				parts[i].text = bytes.Clone(parts[i].text)
			}
			parts = c.change(r, parts)
			redigest(parts)
			front, err := r.front(t.Context(), parts[0].text, in.Keys)
			require.NoError(t, err)
			for i, m := range front {
				parts[i] = part{m.Name, m.text}
			}
			got := refused(t, putTogether(t, parts), in.check())
			require.Equal(t, c.code, got.Code, "%v", got)
			require.True(t, strings.HasSuffix(got.Member, c.member), "%v", got)
		})
	}
}

func TestTrustAndTimes(t *testing.T) {
	in := fixture(t)
	in.Keys = []ed25519.PrivateKey{key(1), key(2)}
	path := certificate(t, in)
	both := in.check()
	both.Trust.Threshold = 2
	_, err := Verify(t.Context(), path, both)
	require.NoError(t, err)
	one := in.check(key(2))
	rep, err := Verify(t.Context(), path, one)
	require.NoError(t, err)
	names := []string{rep.Signers[0].Name, rep.Signers[1].Name}
	require.ElementsMatch(t, []string{"", "vendor"}, names)

	require.Equal(t, CodeTrust, refused(t, path, in.check(key(3))).Code)
	three := in.check(key(1), key(3))
	three.Trust.Threshold = 2
	require.Equal(t, CodeTrust, refused(t, path, three).Code)
	old := in.check(key(1))
	old.Trust.Keys[0].Until = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Equal(t, CodeTrust, refused(t, path, old).Code)

	c := in.check()
	c.At = time.Now().AddDate(0, 0, 29)
	_, err = Verify(t.Context(), path, c)
	require.NoError(t, err)
	c.At = time.Now().AddDate(0, 0, 31)
	require.Equal(t, CodeExpired, refused(t, path, c).Code)
	c.At = time.Now().AddDate(0, 0, -1)
	require.Equal(t, CodeExpired, refused(t, path, c).Code)

	c = in.check()
	c.Quarters = Quarters{}
	require.Equal(t, CodeContent, refused(t, path, c).Code)
	c = in.check()
	c.Profile = nil
	require.Equal(t, CodeProfile, refused(t, path, c).Code)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Verify(ctx, path, in.check())
	require.ErrorIs(t, err, context.Canceled)
}

// A programme signs beside the vendor, after it has checked everything.
func TestCountersign(t *testing.T) {
	in := fixture(t)
	path := certificate(t, in)
	out := filepath.Join(t.TempDir(), "both.cert")
	_, err := Countersign(t.Context(), path, in.check(), []ed25519.PrivateKey{key(2), key(1)}, out)
	require.NoError(t, err)
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	both := in
	both.Keys = []ed25519.PrivateKey{key(1), key(2)}
	want, err := os.ReadFile(certificate(t, both))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))

	_, err = Countersign(t.Context(), path, in.check(key(3)), []ed25519.PrivateKey{key(2)}, filepath.Join(t.TempDir(), "none.cert"))
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal, "what does not hold is not signed")
	var many []ed25519.PrivateKey
	for i := range byte(maxSigners) {
		many = append(many, key(100+i))
	}
	_, err = Countersign(t.Context(), path, in.check(), many, filepath.Join(t.TempDir(), "none.cert"))
	require.ErrorIs(t, err, ErrKey)
}

// What is larger than the limits is refused, and nothing stays behind.
func TestLimits(t *testing.T) {
	in := fixture(t)
	path := certificate(t, in)
	for name, lim := range map[string]func(*Limits){
		"total":    func(l *Limits) { l.TotalBytes = 50_000 },
		"member":   func(l *Limits) { l.MemberBytes = 20_000 },
		"members":  func(l *Limits) { l.Members = 3 },
		"attempts": func(l *Limits) { l.Attempts = 1 },
	} {
		c := in.check()
		c.TempDir = t.TempDir()
		c.Limits = DefaultLimits()
		lim(&c.Limits)
		require.Equal(t, CodeBounds, refused(t, path, c).Code, name)
		left, err := os.ReadDir(c.TempDir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	// A trace above the limits is not judged, and so does not give the same results.
	c := in.check()
	c.Limits = DefaultLimits()
	c.Limits.Trace.Events = 100
	require.Equal(t, CodeContent, refused(t, path, c).Code)
}

// A header can speak of more than a plain tar holds, or of nothing.
func TestHeadersThatCannotBe(t *testing.T) {
	good, err := header("x", 8)
	require.NoError(t, err)
	for _, size := range []string{"112233445566", "77777777777\x00", "0000000008\x00 ", "-0000000001\x00", "           \x00"} {
		h := bytes.Clone(good)
		copy(h[124:136], size)
		_, _, err := (&archive{bytes.NewReader(h), 1 << 20}).next()
		_, ok := errors.AsType[*Refusal](err)
		require.True(t, ok, "%q: %v", size, err)
	}
	name, size, err := (&archive{bytes.NewReader(good), 1 << 20}).next()
	require.NoError(t, err)
	require.Equal(t, "x", name)
	require.Equal(t, int64(8), size)
	_, err = header("x", maxMember+1)
	require.Error(t, err)
}

// Names of members that would lie elsewhere are no names.
func TestNamesStayInside(t *testing.T) {
	for _, bad := range []string{"", "/etc/x", "../x", "runs/../../x", "runs//x", "runs/./x", "runs/.x", "a\x00b", `a\b`, "C:x", "runs/", strings.Repeat("a", 101), "a/b/c/d/e/f/g"} {
		require.False(t, goodName(bad), "%q", bad)
		_, err := header(bad, 1)
		require.Error(t, err)
	}
	require.True(t, goodName("runs/0001/a.push.1/events/prefill-0#1.jsonl.zst"))
}

func TestWhatIsMissingForAProfile(t *testing.T) {
	in := fixture(t)
	lacks := func(in Input) *ShortfallError {
		t.Helper()
		_, err := Certify(t.Context(), in, filepath.Join(t.TempDir(), "c.cert"))
		s, ok := errors.AsType[*ShortfallError](err)
		require.True(t, ok, "%v", err)
		return s
	}
	without := in
	without.Runs = in.Runs[:1]
	require.Contains(t, lacks(without).Lacks[0], "planted defect free-at-cancel was not found")
	without.Runs = in.Runs[1:]
	require.Contains(t, lacks(without).Lacks[0], "there is no attempt")

	other := in
	other.Quarters = Quarters{}
	require.Contains(t, lacks(other).Lacks[0], "no value is known for the quarter")
	other.Quarters = Quarters{QuarterOf(time.Now()): strings.Repeat("7", 64)}
	require.Contains(t, lacks(other).Lacks[0], "there is no attempt", "other seeds")

	wide := in
	wide.Profile = profile(t, strings.Replace(smallProfile, "SIG-2]", "SIG-2, REQ-1]", 1))
	require.Equal(t, []string{"rule REQ-1 was exercised in no required attempt"}, lacks(wide).Lacks)

	manifest := func(change func(*traces.Manifest)) Input {
		in := in.copied(t)
		dirs, err := filepath.Glob(filepath.Join(in.Runs[0], "*", "manifest.json"))
		require.NoError(t, err)
		m, err := traces.ReadManifest(filepath.Dir(dirs[0]))
		require.NoError(t, err)
		change(&m)
		require.NoError(t, traces.WriteManifest(filepath.Dir(dirs[0]), m))
		return in
	}
	got := lacks(manifest(func(m *traces.Manifest) { m.Env = []string{"UCX_TLS=tcp"} }))
	require.Contains(t, got.Lacks[0], "was of another subject")
	got = lacks(manifest(func(m *traces.Manifest) { m.Plan = "" }))
	require.Contains(t, strings.Join(got.Lacks, "; "), "under another plan than the scenario's")
	got = lacks(manifest(func(m *traces.Manifest) { m.End = time.Time{} }))
	require.Contains(t, strings.Join(got.Lacks, "; "), "aborted")
	require.False(t, got.Failed)
	got = lacks(manifest(func(m *traces.Manifest) { m.Start = m.Start.AddDate(0, -6, 0) }))
	require.NotEmpty(t, got.Lacks)
	// A failing attempt without a planted defect, beside one that passes.
	bad := in.copied(t)
	bad.Runs = append(bad.Runs, honest(t, in.Runs[1]))
	got = lacks(bad)
	require.Contains(t, strings.Join(got.Lacks, "; "), "is fail: BLK-2")
	require.True(t, got.Failed)
}

// honest is a copy of a run of a defect whose manifest does not say so.
func honest(t *testing.T, run string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "honest")
	require.NoError(t, os.CopyFS(to, os.DirFS(run)))
	files, err := filepath.Glob(filepath.Join(to, "*", "manifest.json"))
	require.NoError(t, err)
	m, err := traces.ReadManifest(filepath.Dir(files[0]))
	require.NoError(t, err)
	m.Defect = ""
	require.NoError(t, traces.WriteManifest(filepath.Dir(files[0]), m))
	later(t, to, 1)
	return to
}

// later makes a copy of a run one of its own, by its start.
func later(tb testing.TB, run string, by time.Duration) {
	tb.Helper()
	r, err := openRun(run)
	require.NoError(tb, err)
	r.attempts.Start = r.attempts.Start.Add(by)
	require.NoError(tb, os.WriteFile(filepath.Join(run, harness.AttemptsFile), line(r.attempts), 0o644))
}

// Attempts that were begun and are gone count as such, and too many of them spoil a
// certificate.
func TestMissingAttemptsAreInTheJournal(t *testing.T) {
	in := fixture(t).copied(t)
	in.Runs = append(in.Runs, gone(t, "baseline.push.1"))
	path := certificate(t, in)
	rep, err := Verify(t.Context(), path, in.check())
	require.NoError(t, err)
	require.Equal(t, 3, rep.Attempts)
	require.Equal(t, 1, rep.NoResult)
	parts := takeApart(t, path)
	require.Contains(t, string(parts[find(parts, journalMember)].text), `"attempt":"baseline.push.1","outcome":"missing"`)

	in.Runs = append(in.Runs, gone(t, "baseline.push.2"))
	_, err = Certify(t.Context(), in, filepath.Join(t.TempDir(), "c.cert"))
	require.ErrorContains(t, err, "2 attempts came to no result; the profile allows 1")
}

// A run that was stopped in the middle is in the certificate as it is, and judged to be
// the same wherever it lies.
func TestInterruptedAttemptIsInTheCertificate(t *testing.T) {
	in := fixture(t)
	in.Profile = profile(t, strings.Replace(smallProfile, "retries: 1", "retries: 2", 1))
	stopped := filepath.Join(t.TempDir(), "stopped")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := harness.Run(ctx, harness.Config{Scenarios: []string{"worker-killed"}, OutDir: stopped, Jobs: 1, Progress: func(p harness.Progress) {
		if p.Phase == "starting" {
			cancel()
		}
	}})
	require.NoError(t, err)
	dirs, err := filepath.Glob(filepath.Join(stopped, "*", "events"))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dirs[0]))
	require.NoError(t, os.WriteFile(dirs[0], nil, 0o600), "nothing can be read here")
	in.Runs = append(slices.Clone(in.Runs), stopped)
	_, err = Certify(t.Context(), in, filepath.Join(t.TempDir(), "c.cert"))
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.NoError(t, os.Remove(dirs[0]))
	path := certificate(t, in)
	rep, err := Verify(t.Context(), path, in.check())
	require.NoError(t, err)
	require.Equal(t, 2, rep.NoResult)
	parts := takeApart(t, path)
	journal := string(parts[find(parts, journalMember)].text)
	require.NotContains(t, journal, stopped)
	require.Contains(t, journal, `"attempt":"worker-killed.pull.1","outcome":"missing"`)
}

// gone is a run of which nothing is left but what it set out to do.
func gone(t *testing.T, attempt string) string {
	t.Helper()
	dir := t.TempDir()
	b, err := json.Marshal(harness.Attempts{Tool: "conform", Start: time.Now().UTC(), Attempts: []string{attempt}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, harness.AttemptsFile), b, 0o644))
	return dir
}

func TestFoldersThatAreNoRuns(t *testing.T) {
	in := fixture(t)
	in.Runs = []string{t.TempDir()}
	_, err := Certify(t.Context(), in, filepath.Join(t.TempDir(), "c.cert"))
	require.ErrorIs(t, err, ErrRun)
	twice := fixture(t)
	twice.Runs = append(slices.Clone(twice.Runs), twice.copied(t).Runs[0])
	_, err = Certify(t.Context(), twice, filepath.Join(t.TempDir(), "c.cert"))
	require.ErrorContains(t, err, "is a copy of")
	twice.Runs[2] = twice.Runs[0]
	_, err = Certify(t.Context(), twice, filepath.Join(t.TempDir(), "c.cert"))
	require.NoError(t, err, "named twice, it counts once")
	extra := fixture(t).copied(t)
	stray := filepath.Join(extra.Runs[0], "stray")
	require.NoError(t, os.CopyFS(stray, os.DirFS(filepath.Join(extra.Runs[0], "cancel-during-transfer.push."+seedText()))))
	_, err = Certify(t.Context(), extra, filepath.Join(t.TempDir(), "c.cert"))
	require.ErrorContains(t, err, "stray is an attempt that attempts.json does not list")
}

func seedText() string {
	b, _ := json.Marshal(made.seed)
	return string(b)
}

// corruptions changes a certificate at random, so many times, and fails where one is
// accepted, crashes, or takes longer than a check of the whole takes.
func corruptions(t *testing.T, n int, seed uint64) {
	in := fixture(t)
	whole, err := os.ReadFile(certificate(t, in))
	require.NoError(t, err)
	c, temp := in.check(), t.TempDir()
	r := rand.New(rand.NewPCG(seed, 7))
	for i := range n {
		bad := corrupt(r, whole)
		if bytes.Equal(bad, whole) {
			continue
		}
		dir, err := os.MkdirTemp(temp, "")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = verify(ctx, bytes.NewReader(bad), dir, withDefaults(c))
		cancel()
		require.NoError(t, os.RemoveAll(dir))
		_, ok := errors.AsType[*Refusal](err)
		require.True(t, ok, "corruption %d of seed %d: %v", i, seed, err)
	}
}

func withDefaults(c Check) Check {
	c.Limits, c.At = DefaultLimits(), time.Now()
	return c
}

// corrupt flips bits, cuts, repeats, moves or overwrites.
func corrupt(r *rand.Rand, whole []byte) []byte {
	b := bytes.Clone(whole)
	at, n := r.IntN(len(b)), 1+r.IntN(2000)
	if r.IntN(3) == 0 { // headers and statements are a small part of the file
		at = r.IntN(min(len(b), 20_000))
	}
	end := min(at+n, len(b))
	switch r.IntN(7) {
	case 0, 1:
		b[at] ^= 1 << r.IntN(8)
	case 2:
		b[at] = byte(r.IntN(256))
	case 3:
		b = b[:at]
	case 4:
		b = slices.Delete(b, at, end)
	case 5:
		b = slices.Insert(b, r.IntN(len(b)), b[at:end]...)
	default:
		copy(b[r.IntN(len(b)):], whole[at:end])
	}
	return b
}

func TestRandomCorruptionsAreRefused(t *testing.T) { corruptions(t, 300, 1) }
