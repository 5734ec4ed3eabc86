package certify

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzVerify gives anything to what reads certificates: it refuses, and never panics.
func FuzzVerify(f *testing.F) {
	in := fixture(f)
	whole, err := os.ReadFile(certificate(f, in))
	require.NoError(f, err)
	c := withDefaults(in.check())
	f.Add(whole)
	f.Add(whole[:10_000])
	f.Add([]byte{})
	f.Add(make([]byte, 2*blockSize))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		sub, err := os.MkdirTemp(dir, "")
		require.NoError(t, err)
		defer os.RemoveAll(sub)
		_, err = verify(t.Context(), bytes.NewReader(b), sub, c)
		if bytes.Equal(b, whole) {
			require.NoError(t, err)
			return
		}
		_, ok := errors.AsType[*Refusal](err)
		require.True(t, ok, "%v", err)
	})
}

// FuzzSigned gives anything to what reads members whose signatures hold.
func FuzzSigned(f *testing.F) {
	in := fixture(f)
	parts := takeApart(f, certificate(f, in))
	for _, name := range []string{listMember, conformanceMember, "attempts.json", profileMember} {
		f.Add(parts[find(parts, name)].text)
	}
	keys := public(key(1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var refusal *Refusal
		if err := (&opened{}).readList(listMember, b, DefaultLimits()); err != nil {
			require.ErrorAs(t, err, &refusal)
		}
		e := &envelope{payload: b}
		if _, err := e.signedList(conformanceMember); err != nil {
			require.ErrorAs(t, err, &refusal)
		}
		if _, err := openEnvelope(t.Context(), conformanceMember, b, map[string]ed25519.PublicKey{KeyID(keys): keys}); err != nil {
			require.ErrorAs(t, err, &refusal)
		}
		if p, err := ParseProfile(b); err == nil {
			require.NotEmpty(t, p.Scenarios)
		}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(dir+"/attempts.json", b, 0o600))
		if _, err := openRun(dir); err != nil {
			require.ErrorIs(t, err, ErrRun)
		}
	})
}
