package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

// sift gives a whole trace to a sieve.
func sift(tr *spec.Trace) (*Result, string) { return siftBy(tr, NewSieve(Options{})) }

func siftBy(tr *spec.Trace, s *Sieve) (*Result, string) {
	if len(tr.Losses) > 0 {
		return nil, "a loss"
	}
	sources, threads := map[string]int32{}, map[spec.Thread]int32{}
	number := func(n int, known bool, id int32) int32 {
		if known {
			return id
		}
		return int32(n)
	}
	for i := range tr.Events {
		e := tr.Events[i]
		id, known := sources[e.Src]
		src := number(len(sources), known, id)
		sources[e.Src] = src
		id, known = threads[e.Thread()]
		th := number(len(threads), known, id)
		threads[e.Thread()] = th
		texts := lent(&e)
		if !s.Add(&e, src, th) {
			return nil, s.GaveUp()
		}
		clear(texts)
	}
	res, _ := s.Result()
	return res, s.GaveUp()
}

// lent moves the texts of an event into a buffer, as the reader of a stream has
// them: once the buffer has other bytes, so have the texts. Its kinds are its own.
func lent(e *spec.Event) []byte {
	var buf []byte
	var texts []reflect.Value
	for _, f := range reflect.ValueOf(e).Elem().Fields() {
		if f.Kind() == reflect.String && f.Type() != reflect.TypeFor[spec.Kind]() && f.Len() > 0 {
			texts = append(texts, f)
			buf = append(buf, f.String()...)
		}
	}
	at := 0
	for _, f := range texts {
		f.SetString(unsafe.String(&buf[at], f.Len()))
		at += f.Len()
	}
	return buf
}

// sameAsJudge holds the sieve against Judge: what it tells is what Judge gives. It
// returns why it did not tell, if it did not.
func sameAsJudge(t require.TestingT, tr *spec.Trace, text fmt.Stringer) string {
	return judgedBy(t, tr, text, NewSieve(Options{}))
}

func judgedBy(t require.TestingT, tr *spec.Trace, text fmt.Stringer, s *Sieve) string {
	got, why := siftBy(tr, s)
	if got == nil {
		require.NotEmpty(t, why)
		return why
	}
	want, err := Judge(context.Background(), tr, Options{})
	require.NoError(t, err, "%s", text)
	require.Equal(t, want, got, "%s", text)
	return ""
}

type traceText struct{ tr *spec.Trace }

func (x traceText) String() string { return (&writer{tr: *x.tr}).String() }

// TestSieveCases holds the sieve against Judge on the judged sample and on the
// clauses of every rule.
func TestSieveCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.jsonl")
	require.NoError(t, err)
	clauses, err := filepath.Glob("../clauses/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, clauses)
	files = append(files, clauses...)
	why := map[string]int{}
	for _, file := range files {
		tr := parsedFile(t, file)
		why[sameAsJudge(t, tr, traceText{tr})]++
	}
	t.Logf("%d cases: %v", len(files), why)
	require.Greater(t, why[""], len(files)/20, "it tells of some")
}

// parsedFile reads a trace of one file without the checks of a reader.
func parsedFile(t *testing.T, file string) *spec.Trace {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	tr := &spec.Trace{}
	for i, line := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n") {
		e, err := spec.ParseEvent([]byte(line))
		require.NoError(t, err)
		e.Pos = spec.Position{File: file, Line: i + 1}
		tr.Events = append(tr.Events, e)
	}
	return tr
}

// TestSieveWild holds the sieve against Judge on whatever may come.
func TestSieveWild(t *testing.T) {
	why := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := wild(t)
		why[sameAsJudge(t, &w.tr, w)]++
		w = oneBlock(t)
		why[sameAsJudge(t, &w.tr, w)]++
		w = twoClocks(t)
		why[sameAsJudge(t, &w.tr, w)]++
	})
	t.Logf("%v", why)
}

// TestSieveLongTrace holds that the sieve tells of a long trace in which all is as
// it should be, on one clock and on two.
func TestSieveLongTrace(t *testing.T) {
	for _, clock := range []string{"m", "p"} {
		w := bigTrace(2000, 16, clock)
		require.Empty(t, sameAsJudge(t, &w.tr, traceText{&w.tr}))
	}
}
