package traces_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/traces"
)

func TestManifestRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	m := traces.Manifest{
		Tool: "conform", ToolVersion: "v0", Seed: 1<<64 - 1, Plan: "rules: []\n", Scenarios: []string{"baseline"},
		Mode: "push", Adapter: traces.ManifestAdapter{Name: "reference", Engine: "reference v0", Probe: "p"},
		Hooks: []traces.ManifestHook{{Name: "free", Asked: true, Bound: true, Fired: 3}}, Hosts: []string{"h"},
		Start: time.Unix(1, 2).UTC(), Config: map[string]string{"block_bytes": "64"},
		Files: []traces.FileSum{{Name: "events/P.jsonl", Bytes: 1, SHA256: "00"}},
	}
	require.NoError(t, traces.WriteManifest(dir, m))
	got, err := traces.ReadManifest(dir)
	require.NoError(t, err)
	require.Equal(t, traces.SpecVersion, got.SpecVersion)
	require.Equal(t, traces.SpecDigest(), got.SpecDigest)
	m.SpecVersion, m.SpecDigest = got.SpecVersion, got.SpecDigest
	require.Equal(t, m, got)

	m.End = time.Unix(9, 0).UTC()
	require.NoError(t, traces.WriteManifest(dir, m), "it may be written again")
	got, err = traces.ReadManifest(dir)
	require.NoError(t, err)
	require.Equal(t, m, got)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")
}

func TestWriteManifestFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Error(t, traces.WriteManifest(file, traces.Manifest{}))

	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "manifest.json"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json", "x"), nil, 0o600))
	require.Error(t, traces.WriteManifest(dir, traces.Manifest{}))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")
}

func TestSpecDigestIsStable(t *testing.T) {
	require.Len(t, traces.SpecDigest(), 64)
	require.Equal(t, traces.SpecDigest(), traces.SpecDigest())
}

func TestReadManifest(t *testing.T) {
	tests := []struct {
		name, text string
		line       int
		found      string // "" for none
		expected   string
	}{
		{"empty object", "{}", 0, "", ""},
		{"unknown fields", `{"future":{"x":[1]},"seed":3}`, 0, "", ""},
		{"our version", `{"spec_version":1}`, 0, "", ""},
		{"newer", `{"spec_version":2,"seed":"now a string"}`, 0, "version 2", "version 1"},
		{"version 0", `{"spec_version":0}`, 0, "spec_version 0", "from 1"},
		{"version of a wrong type", "{\n\"spec_version\":\"1\"}", 2, "spec_version", "int"},
		{"null", "null", 1, "null", "object"},
		{"a list", "[]", 1, "array", "a value of type"},
		{"empty file", "", 1, "no JSON", "object"},
		{"torn", "{\n\"seed\":", 2, "no JSON", "object"},
		{"a field of a wrong type", "{\n\n\"seed\":-1}", 3, "seed", "uint64"},
		{"a nested field of a wrong type", `{"files":[{"bytes":"1"}]}`, 1, "files.bytes", "int64"},
		{"no time", `{"start":"yesterday"}`, 0, "yesterday", "manifest"},
		{"large", strings.Repeat(" ", 16<<20) + "{}", 0, "larger", "bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(tt.text), 0o600))
			got, err := traces.ReadManifest(dir)
			if tt.found == "" {
				require.NoError(t, err)
				require.Equal(t, traces.SpecVersion, got.SpecVersion)
				return
			}
			var bad *traces.BadInput
			require.ErrorAs(t, err, &bad)
			require.Equal(t, "manifest.json", bad.File)
			require.Equal(t, tt.line, bad.Line)
			require.Contains(t, bad.Found, tt.found)
			require.Contains(t, bad.Expected, tt.expected)

			_, err = traces.Read(dir, nil)
			require.ErrorAs(t, err, &bad, "Read looks at the manifest first")
		})
	}
	_, err := traces.ReadManifest(t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestListedFiles(t *testing.T) {
	dir := writeRunDir(t, map[string]string{"D.jsonl": lines(srcD), "P.jsonl": lines(srcP)})
	sums, err := traces.HashFiles(dir)
	require.NoError(t, err)
	require.Len(t, sums, 2)
	require.Equal(t, "events/D.jsonl", sums[0].Name)
	require.EqualValues(t, len(lines(srcD)), sums[0].Bytes)
	require.Len(t, sums[0].SHA256, 64)

	list := func(files []traces.FileSum) error {
		require.NoError(t, traces.WriteManifest(dir, traces.Manifest{Files: files}))
		_, err := traces.Read(dir, nil)
		return err
	}
	other := traces.FileSum{Name: "report/events/x.html", SHA256: "not looked at"}
	require.NoError(t, list(append([]traces.FileSum{other}, sums...)))

	check := func(err error, file, found string) {
		t.Helper()
		var bad *traces.BadInput
		require.ErrorAs(t, err, &bad)
		require.Equal(t, file, bad.File)
		require.Contains(t, bad.Found, found)
	}
	check(list(sums[:1]), "P.jsonl", "does not list")
	missing := traces.FileSum{Name: "events/X.jsonl", SHA256: sums[0].SHA256}
	check(list(append([]traces.FileSum{missing}, sums...)), "X.jsonl", "no such file")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "events", "P.jsonl"), []byte(lines(srcP)+" "), 0o600))
	check(list(sums), "P.jsonl", "SHA-256")

	_, err = traces.HashFiles(t.TempDir())
	require.NoError(t, err, "no events yet")
}

func TestManifestJSONNames(t *testing.T) {
	b, err := json.Marshal(traces.Manifest{})
	require.NoError(t, err)
	require.JSONEq(t, `{"tool":"","tool_version":"","spec_version":0,"spec_digest":"","seed":0,"scenarios":null,"adapter":{"name":""}}`, string(b))
}
