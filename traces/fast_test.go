package traces

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

// sameAsSpec holds what fastParser promises for one line.
func sameAsSpec(t *testing.T, p *fastParser, line []byte) bool {
	t.Helper()
	var got spec.Event
	if !p.event(line, &got) {
		return false
	}
	want, err := spec.ParseEvent(line)
	require.NoError(t, err, "%s", line)
	require.Equal(t, want, got, "%s", line)
	return true
}

func seedLines(t testing.TB) [][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/cases/*.jsonl")
	require.NoError(t, err)
	var all [][]byte
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range bytes.Lines(b) {
			all = append(all, bytes.TrimSuffix(line, []byte{'\n'}))
		}
	}
	return all
}

func TestFastParserAgrees(t *testing.T) {
	p := newFastParser()
	taken, all := 0, seedLines(t)
	for _, line := range all {
		if sameAsSpec(t, p, line) {
			taken++
		}
	}
	require.Greater(t, taken, len(all)/2, "it is there to be used")
	require.True(t, sameAsSpec(t, p, []byte(
		`{ "k": "free", "src": "D", "t2": 9, "seq": 0, "t": -5, "pool": "kv", "blocks": [ 1, [2, 3] ], "why": "done"}`)))
}

func TestFastParserLeaves(t *testing.T) {
	p := newFastParser()
	for _, line := range []string{
		``, `{}`, `[]`, `{"k":"note"}`, `{"src":"D","seq":0,"t":0,"k":"note","text":"x"`,
		`{"src":"D","seq":0,"t":0,"k":"note","text":"x"} `,
		`{"src":"D","seq":0,"t":0,"k":"note","text":"x",}`,
		`{"src":"D","seq":0,"t":0,"k":"note","text":"x","text":"y"}`,
		`{"src":"D","seq":0,"t":0,"k":"note","text":"x","unknown":1}`,
		`{"src":"D","seq":0,"t":0,"k":"note","text":"\u0041"}`,
		`{"src":"D","seq":-1,"t":0,"k":"note","text":"x"}`,
		`{"src":"D","seq":00,"t":0,"k":"note","text":"x"}`,
		`{"src":"D","seq":0,"t":-0,"k":"note","text":"x"}`,
		`{"src":"D","seq":0,"t":1e3,"k":"note","text":"x"}`,
		`{"src":"D","seq":0,"t":12345678901234567890,"k":"note","text":"x"}`,
		`{"src":"D","seq":0,"t":2,"t2":1,"k":"note","text":"x"}`,
		`{"src":"D","seq":0,"t":0,"k":"note","text":null}`,
		`{"src":"D","seq":0,"t":0,"k":"end","access":"a","ok":tru}`,
		`{"src":"D","seq":0,"t":0,"k":"free","pool":"kv","blocks":[[2,1]]}`,
		`{"src":"D","seq":0,"t":0,"k":"free","pool":"kv","blocks":[1 2]}`,
		`{"src":"D","seq":0,"t":0,"k":"free","pool":"kv","blocks":[-1]}`,
		`{"src":"D","seq":0,"t":0,"k":"free","pool":"kv","blocks":[[1,2,3]]}`,
		`{"src":"D","seq":0,"t":0,"k":"free","pool":"kv","blocks":[1],"why":"no such word"}`,
		`{"src":"D","seq":0,"t":0,"k":"expire","why":"x"}`,
		`{"src":"D","seq":0,"t":0,"k":"clockcmp","clock":"m","lo":2,"hi":1}`,
	} {
		require.False(t, p.event([]byte(line), &spec.Event{}), line)
	}
}

// The table of words is bounded.
func TestFastParserForgets(t *testing.T) {
	p := newFastParser()
	for i := range 2 * maxWords {
		p.word([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		require.LessOrEqual(t, len(p.words), maxWords)
	}
}

func FuzzFastParser(f *testing.F) {
	for _, line := range seedLines(f) {
		f.Add(line)
	}
	p := newFastParser()
	f.Fuzz(func(t *testing.T, line []byte) { sameAsSpec(t, p, line) })
}
