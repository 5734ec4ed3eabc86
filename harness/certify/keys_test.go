package certify

import (
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeysAreWrittenOnceAndReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "K")
	id, err := GenerateKey(path)
	require.NoError(t, err)
	priv, err := ReadPrivateKey(path)
	require.NoError(t, err)
	require.Equal(t, id, KeyID(public(priv)))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	trust, err := ReadTrust(path + ".pub")
	require.NoError(t, err)
	require.Equal(t, Trust{1, []TrustedKey{{Name: "K", Key: public(priv)}}}, trust)

	_, err = GenerateKey(path)
	require.ErrorIs(t, err, os.ErrExist)
	again, err := ReadPrivateKey(path)
	require.NoError(t, err)
	require.True(t, again.Equal(priv), "the old key is still there")
	require.NoError(t, os.Remove(path))
	_, err = GenerateKey(path)
	require.ErrorIs(t, err, os.ErrExist, "the public key is there")
	require.NoFileExists(t, path)

	_, err = ReadPrivateKey(path + ".pub")
	require.ErrorIs(t, err, ErrKey)
	for _, text := range []string{"", "x", string(pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: []byte("x")})), strings.Repeat("x", 5000)} {
		bad := filepath.Join(t.TempDir(), "bad")
		require.NoError(t, os.WriteFile(bad, []byte(text), 0o600))
		_, err = ReadPrivateKey(bad)
		require.Error(t, err)
		_, err = ReadTrust(bad)
		require.Error(t, err)
	}
}

func TestRoots(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "roots.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	entry := func(name string, k ed25519.PrivateKey, more string) string {
		return fmt.Sprintf("  - name: %s\n%s    key: |\n      %s\n", name, more, strings.ReplaceAll(strings.TrimSpace(string(publicPEM(public(k)))), "\n", "\n      "))
	}
	trust, err := ReadTrust(write("threshold: 2\nkeys:\n" + entry("Vendor", key(1), "    from: 2026-01-01\n    until: 2026-12-31\n") + entry("Programme", key(2), "")))
	require.NoError(t, err)
	require.Equal(t, 2, trust.Threshold)
	require.Equal(t, "Vendor", trust.Keys[0].Name)
	day := func(s string) time.Time { d, err := time.Parse(time.DateTime, s); require.NoError(t, err); return d }
	require.True(t, trust.Keys[0].holds(day("2026-12-31 23:59:59")))
	require.False(t, trust.Keys[0].holds(day("2027-01-01 00:00:00")))
	require.False(t, trust.Keys[0].holds(day("2025-12-31 23:59:59")))
	require.True(t, trust.Keys[1].holds(day("2099-01-01 00:00:00")))

	for name, text := range map[string]string{
		"more than keys": "threshold: 2\nkeys:\n" + entry("A", key(1), ""),
		"one key twice":  "keys:\n" + entry("A", key(1), "") + entry("B", key(1), ""),
		"no keys":        "threshold: 1\n",
		"unknown field":  "treshold: 1\nkeys:\n" + entry("A", key(1), ""),
		"no day":         "keys:\n" + entry("A", key(1), "    from: soon\n"),
		"no key":         "keys:\n  - name: A\n    key: x\n",
		"negative":       "threshold: -1\nkeys:\n" + entry("A", key(1), ""),
	} {
		_, err := ReadTrust(write(text))
		require.ErrorIs(t, err, ErrTrust, name)
	}
}

func TestProfiles(t *testing.T) {
	require.NotEmpty(t, Profiles())
	for _, p := range Profiles() {
		got, err := FindProfile(p.Name)
		require.NoError(t, err)
		require.Equal(t, p, got)
		require.NotEmpty(t, p.Title)
	}
	_, err := FindProfile("no-such")
	require.ErrorIs(t, err, ErrProfile)
	_, err = FindProfile(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, c := range [][2]string{
		{"name: small", "name: ../x"},
		{"adapter: reference", "adapter: none"},
		{"seeds: 1", "seeds: 0"},
		{"seeds: 1", "seeds: 101"},
		{"valid_days: 30", "valid_days: 0"},
		{"retries: 1", "retries: -1"},
		{"retries: 1", "retires: 1"},
		{"id: cancel-during-transfer", "id: none"},
		{"modes: [push]", "modes: [nixl]"},
		{"modes: [push]", "modes: []"},
		{"BLK-2, SIG-1", "BLK-9, SIG-1"},
		{"mode: push", "mode: pull"},
		{"rule: BLK-2", "rule: x"},
		{"seeds: 1", "--- {}\nseeds: 1"},
	} {
		require.Contains(t, smallProfile, c[0])
		_, err := ParseProfile([]byte(strings.Replace(smallProfile, c[0], c[1], 1)))
		require.ErrorIs(t, err, ErrProfile, c[1])
	}
}

func TestQuartersAndSeeds(t *testing.T) {
	require.NotEmpty(t, BuiltinQuarters())
	for day, want := range map[string]string{"2026-01-01": "2026Q1", "2026-03-31": "2026Q1", "2026-04-01": "2026Q2", "2026-09-30": "2026Q3", "2026-12-31": "2026Q4"} {
		d, err := time.Parse(time.DateOnly, day)
		require.NoError(t, err)
		require.Equal(t, want, QuarterOf(d))
	}
	for _, bad := range []string{"2026Q5: " + testValue, "2026Q1: 00", "x", "- 2026Q1"} {
		_, err := parseQuarters([]byte(bad))
		require.ErrorIs(t, err, ErrQuarter, bad)
	}
	a := Seeds(testValue, "build", 3)
	require.Equal(t, a[:2], Seeds(testValue, "build", 2))
	require.NotEqual(t, a, Seeds(testValue, "other", 3))
	require.NotEqual(t, a, Seeds(strings.Repeat("0", 64), "build", 3))
	for _, s := range a {
		require.Less(t, s, uint64(1)<<seedBits)
	}
	require.NotEqual(t, a[0], a[1])
	// Other tools derive the same: the hash is part of the format.
	require.Equal(t, uint64(3880882394584815), Seeds("v", "b", 1)[0])
}
