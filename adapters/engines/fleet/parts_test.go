package fleet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines/launch"
	"conform/spec"
)

// toy is a probe of two trees.
var toy = Probe{
	fstest.MapFS{"core/__init__.py": {Data: []byte("x = 1\n")}},
	fstest.MapFS{"toy/__init__.py": {Data: []byte("import core  # long enough to be cut\n")}, "toy-1.dist-info/entry_points.txt": {Data: []byte("[x]\n")}},
}

func TestPorts(t *testing.T) {
	got, err := FreePorts(50)
	require.NoError(t, err)
	require.Len(t, got, 50)
	low, high := handedOut()
	for i, port := range got {
		require.False(t, port >= low && port <= high, "the system hands %d out by itself", port)
		require.NotContains(t, got[:i], port)
		ln, err := net.Listen("tcp", Local(port))
		require.NoError(t, err)
		require.NoError(t, ln.Close())
	}
	_, err = FreePorts(highestPort)
	require.ErrorIs(t, err, ErrNoPorts)
}

func TestAnswers(t *testing.T) {
	dir := t.TempDir()
	model := strings.Repeat("a", 64)
	a := OpenAnswers(dir, "0.5.23", "cpu", model)
	require.Nil(t, a.Get([]int32{1}, 1))
	a.Put([]int32{1}, []int32{5, 6, 7})
	a.Put([]int32{1}, []int32{5}) // shorter: nothing is forgotten
	require.Equal(t, []int32{5, 6}, a.Get([]int32{1}, 2))
	require.Nil(t, a.Get([]int32{1}, 4))
	require.Nil(t, a.Get([]int32{2}, 1))
	require.Equal(t, []int32{5, 6, 9}, append(a.Get([]int32{1}, 2), 9))
	require.Equal(t, []int32{5, 6, 7}, a.Get([]int32{1}, 3), "what a caller appends to is its own")
	require.Equal(t, []adapters.Prompt{{Tokens: []int32{1}, Output: 4}, {Tokens: []int32{2}, Output: 1}},
		a.Missing([]adapters.Prompt{{Tokens: []int32{1}, Output: 4}, {Tokens: []int32{1}, Output: 3}, {Tokens: []int32{2}, Output: 1}}))
	require.NoError(t, a.Save())
	require.Equal(t, []int32{5, 6, 7}, OpenAnswers(dir, "0.5.23", "cpu", model).Get([]int32{1}, 3))
	require.Nil(t, OpenAnswers(dir, "0.5.23", "cuda", model).Get([]int32{1}, 3), "another device computes otherwise")
	require.Nil(t, OpenAnswers(dir, "0.5.20", "cpu", model).Get([]int32{1}, 3))
	require.NotEqual(t, PromptKey([]int32{1, 2}), PromptKey([]int32{1, 3}))
}

func TestAnswersFileIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	model := strings.Repeat("a", 64)
	for name, text := range map[string]string{"torn": `{"a":[1,2`, "other": `[1]`, "null": `null`, "types": `{"a":"x"}`, "empty": ``} {
		a := OpenAnswers(dir, "v", "cpu", model)
		require.NoError(t, os.WriteFile(a.path, []byte(text), 0o600))
		a = OpenAnswers(dir, "v", "cpu", model)
		require.Empty(t, a.known, name)
		a.Put([]int32{1}, []int32{2})
		require.NoError(t, a.Save(), name)
		require.Len(t, OpenAnswers(dir, "v", "cpu", model).known, 1, name)
	}
	a := OpenAnswers(dir, "v", "cpu", model)
	require.NoError(t, os.Truncate(a.path, maxAnswerFile+1))
	require.Empty(t, OpenAnswers(dir, "v", "cpu", model).known, "too large")
	require.NoError(t, os.Remove(a.path))
	require.NoError(t, os.Mkdir(a.path, 0o700))
	a = OpenAnswers(dir, "v", "cpu", model)
	a.Put([]int32{1}, []int32{2})
	require.Error(t, a.Save())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file is left")
}

// Two runs at once keep each other's answers, and a file that is read is whole.
func TestAnswersOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	model := strings.Repeat("b", 64)
	one, two := OpenAnswers(dir, "v", "cpu", model), OpenAnswers(dir, "v", "cpu", model)
	one.Put([]int32{1}, []int32{1})
	two.Put([]int32{2}, []int32{2})
	require.NoError(t, one.Save())
	require.NoError(t, two.Save())
	require.Len(t, OpenAnswers(dir, "v", "cpu", model).known, 2)
	var wg sync.WaitGroup
	for i := range int32(4) {
		wg.Go(func() {
			a := OpenAnswers(dir, "v", "cpu", model)
			for j := range int32(20) {
				a.Put([]int32{i, j}, []int32{j})
				a.Get([]int32{i, j}, 1)
				if err := a.Save(); err != nil {
					t.Error(err)
				}
				if len(OpenAnswers(dir, "v", "cpu", model).known) < 2 {
					t.Error("a torn file")
				}
			}
		})
	}
	wg.Wait()
}

func TestUnpack(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	dir, err := toy.Unpack(cache)
	require.NoError(t, err)
	named, err := toy.Dir(cache)
	require.NoError(t, err)
	require.Equal(t, named, dir)
	for _, want := range []string{"core/__init__.py", "toy/__init__.py", "toy-1.dist-info/entry_points.txt"} {
		require.FileExists(t, filepath.Join(dir, want))
	}
	init := filepath.Join(dir, "toy", "__init__.py")
	before, err := os.Stat(init)
	require.NoError(t, err)
	_, err = toy.Unpack(cache)
	require.NoError(t, err)
	again, err := os.Stat(init)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, again), "what is whole is left alone")

	for name, damage := range map[string]func() error{
		"torn":    func() error { return os.Truncate(init, 10) },
		"missing": func() error { return os.RemoveAll(filepath.Dir(init)) },
		"a file":  func() error { return os.Remove(init) },
	} {
		require.NoError(t, damage(), name)
		_, err = toy.Unpack(cache)
		require.NoError(t, err, name)
		require.True(t, toy.held(dir), name)
	}
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing else is left")

	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	_, err = toy.Unpack(blocked)
	require.Error(t, err)
}

func TestUnpackAtOnce(t *testing.T) {
	cache := t.TempDir()
	dir, err := toy.Dir(cache)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "toy"), 0o755)) // of one that was interrupted
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := toy.Unpack(cache)
			if err != nil || got != dir {
				t.Errorf("unpacked into %q: %v", got, err)
			}
		})
	}
	wg.Wait()
	require.True(t, toy.held(dir))
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestModels(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	folder, sum, err := Model(cache, "")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(folder, "config.json"))
	again, sameSum, err := Model(cache, "")
	require.NoError(t, err)
	require.Equal(t, []string{folder, sum}, []string{again, sameSum})

	own := t.TempDir()
	_, _, err = Model(cache, own)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(own, "config.json"), []byte("{}"), 0o600))
	_, _, err = Model(cache, own)
	require.ErrorIs(t, err, ErrNoWeights)
	weights := filepath.Join(own, "a.safetensors")
	require.NoError(t, os.WriteFile(weights, []byte("w"), 0o600))
	_, first, err := Model(cache, own)
	require.NoError(t, err)
	require.Len(t, first, 64)
	require.NoError(t, os.WriteFile(weights, []byte("ww"), 0o600))
	_, second, err := Model(cache, own)
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte("{}"), 0o600))
	_, _, err = Model(cache, "")
	require.Error(t, err, "somebody has altered the built-in one")
	_, _, err = Model(filepath.Join(own, "config.json"), "")
	require.Error(t, err)
}

// A probe that has changed lies elsewhere, so that running workers keep theirs.
func TestProbesAreNamedByTheirContent(t *testing.T) {
	one, err := toy.Dir("c")
	require.NoError(t, err)
	other, err := Probe{toy[0], fstest.MapFS{"toy/__init__.py": {Data: []byte("x")}}}.Dir("c")
	require.NoError(t, err)
	require.NotEqual(t, one, other)
}

func TestMembers(t *testing.T) {
	f := New(nil, nil)
	p, d := f.Add("prefill-0", spec.RolePrefill, 2), f.Add("decode-0", spec.RoleDecode, 1)
	for name, want := range map[string]*Member{"prefill": p, "prefill-0": p, "decode": d, "decode-0": d} {
		got, err := f.Find(name)
		require.NoError(t, err)
		require.Same(t, want, got, name)
	}
	p.incarnation.Add(1)
	require.Equal(t, "prefill-0.1", p.Name())
	require.True(t, p.Called("prefill-0.1"))
	require.False(t, p.Called("prefill-0.2"))
	_, err := f.Find("prefill-1")
	require.ErrorContains(t, err, "prefill-1")
	require.Equal(t, []string{"w", "w.r1"}, []string{RankName("w", 0), RankName("w", 1)})
}

// launcher starts nothing: it says what it was asked for.
type launcher struct {
	launch.Launcher
	asked []launch.Spec
	err   error
}

func (l *launcher) Start(_ context.Context, s launch.Spec) (*launch.Process, error) {
	l.asked = append(l.asked, s)
	return nil, l.err
}

func TestProcessesThatAreNotThere(t *testing.T) {
	l := &launcher{err: launch.ErrClosed}
	var ended []adapters.Exit
	f := New(l, func(e adapters.Exit) { ended = append(ended, e) })
	m := f.Add("decode-0", spec.RoleDecode, 1)
	require.ErrorIs(t, f.Start(t.Context(), m, launch.Spec{Worker: "other"}), launch.ErrClosed)
	require.Equal(t, "decode-0", l.asked[0].Worker)
	l.asked[0].OnExit(launch.Exit{Worker: "decode-0", Code: 3, Log: "why"})
	require.Equal(t, []adapters.Exit{{Worker: "decode-0", Code: 3, Log: "why"}}, ended)
	require.Empty(t, f.Workers())
	for name, call := range map[string]func(context.Context, string) error{
		"pause": f.Pause, "resume": f.Resume, "kill": f.Kill,
		"next": func(ctx context.Context, name string) error { _, err := f.Next(ctx, name); return err },
	} {
		require.ErrorContains(t, call(t.Context(), "decode"), "not started", name)
		require.ErrorContains(t, call(t.Context(), "nobody"), "nobody", name)
	}
	again, err := f.Stop(t.Context())
	require.NoError(t, err)
	require.False(t, again)
	again, err = f.Stop(t.Context())
	require.NoError(t, err)
	require.True(t, again)
}

func TestProbedSaysWhy(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "events"), 0o700))
	both := []string{"decode-0", "decode-0.r1"}
	require.ErrorContains(t, Probed(dir, "decode-0", both...), "worker decode-0: it left no word why")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "events", "decode-0.jsonl"), nil, 0o600))
	require.ErrorContains(t, Probed(dir, "decode-0", both...), "worker decode-0.r1:")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "events", "decode-0.r1.jsonl"), nil, 0o600))
	require.NoError(t, Probed(dir, "decode-0", both...))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "probe-decode-0.error"), []byte("TypeError: no pool\n"), 0o600))
	require.ErrorContains(t, Probed(dir, "decode-0", both...), "TypeError: no pool", "it had made its source, and then failed")
}

func TestServed(t *testing.T) {
	dir := t.TempDir()
	require.Empty(t, Served(dir))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "hooks"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hooks", "decode-0.json"), []byte(`{"asked":1}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hooks", "torn.json"), []byte(`{"asked"`), 0o600))
	require.Equal(t, map[string]any{"decode-0": map[string]any{"asked": 1.0}}, Served(dir))
}

func TestIdleNeedsRecorders(t *testing.T) {
	_, _, err := new(Stillness).Idle(t.Context(), nil, 0, time.Second)
	require.ErrorContains(t, err, "failpoint server")
}

// Nobody is started where every answer is known, and one that comes short is no answer.
func TestTake(t *testing.T) {
	a := OpenAnswers(t.TempDir(), "v", "cpu", strings.Repeat("a", 64))
	a.Put([]int32{1}, []int32{2, 3})
	require.NoError(t, a.Take(t.Context(), []adapters.Prompt{{Tokens: []int32{1}, Output: 2}}, nil, nil))
	start := func(context.Context) (*launch.Process, error) { return nil, launch.ErrClosed }
	require.ErrorIs(t, a.Take(t.Context(), []adapters.Prompt{{Tokens: []int32{1}, Output: 3}}, start, nil), launch.ErrClosed)
	short := func(context.Context, adapters.Prompt) (adapters.Answer, error) {
		return adapters.Answer{Status: 200, Tokens: []int32{7}}, nil
	}
	require.ErrorContains(t, a.take(t.Context(), adapters.Prompt{Tokens: []int32{9}, Output: 2}, short), "1 tokens, expected 2")
	require.Nil(t, a.Get([]int32{9}, 1))
	require.NoError(t, a.take(t.Context(), adapters.Prompt{Tokens: []int32{9}, Output: 1}, short))
	require.Equal(t, []int32{7}, a.Get([]int32{9}, 1))
}
