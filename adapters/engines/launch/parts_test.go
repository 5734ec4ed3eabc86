package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/adapters/engines"
)

func TestParseStat(t *testing.T) {
	line := "12 (a) b (c)) S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0"
	m, ok := parseStat(12, []byte(line))
	require.True(t, ok)
	require.Equal(t, Member{PID: 12, Parent: 7, Session: 9, Name: "a) b (c)", started: 4711}, m)
	require.Equal(t, "12 (a) b (c))", m.String())
	for _, bad := range []string{"", "12 (a", ")(", "12 (a) S 7 8 9", strings.Replace(line, " 7 ", " x ", 1)} {
		_, ok := parseStat(12, []byte(bad))
		require.False(t, ok, bad)
	}
	rapid.Check(t, func(t *rapid.T) { parseStat(1, []byte(rapid.String().Draw(t, "line"))) })
}

func TestFamily(t *testing.T) {
	all := []Member{
		{PID: 1, Parent: 0, Session: 0},
		{PID: 2, Parent: 0, Session: 0},
		{PID: 10, Parent: 1, Session: 10},  // the guard
		{PID: 31, Parent: 20, Session: 31}, // a session of its own
		{PID: 20, Parent: 10, Session: 20}, // main
		{PID: 30, Parent: 20, Session: 20},
		{PID: 32, Parent: 31, Session: 31},
		{PID: 33, Parent: 1, Session: 20}, // without its parent, where nothing adopts it
		{PID: 40, Parent: 1, Session: 40}, // another's
	}
	pids := func(guard, main int) (out []int) {
		for _, m := range family(all, guard, main) {
			out = append(out, m.PID)
		}
		return out
	}
	require.Equal(t, []int{20, 30, 31, 32, 33}, pids(10, 20))
	require.Equal(t, []int{20, 30, 31, 32}, pids(10, 0), "a main process that has ended")
	require.Empty(t, pids(0, 0), "never the kernel's processes, and so everybody")
	require.Empty(t, pids(1, 20))
}

func TestScanner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	rapid.Check(t, func(t *rapid.T) {
		f, err := os.Create(path)
		require.NoError(t, err)
		defer f.Close()
		s := &scanner{path: path, texts: []string{"ready", "failed"}}
		defer s.close()
		all, found := "", -1
		for found < 0 && len(all) < 300 {
			part := rapid.StringMatching(`(re|ady|ready|fail|ed|x|\n){0,3}`).Draw(t, "part")
			all += part
			_, err := f.WriteString(part)
			require.NoError(t, err)
			found, err = s.next()
			require.NoError(t, err)
			ready, failed := strings.Index(all, "ready"), strings.Index(all, "failed")
			want := -1
			if ready >= 0 && (failed < 0 || ready < failed) {
				want = 0
			} else if failed >= 0 {
				want = 1
			}
			require.Equal(t, want, found, all)
			require.LessOrEqual(t, len(s.rest), max(len(part)+6, 6))
			if part == "" {
				all += "x" // so that it ends
				_, _ = f.WriteString("x")
			}
		}
	})
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	s := &scanner{path: path, texts: []string{""}}
	found, err := s.next()
	require.NoError(t, err)
	require.Zero(t, found, "no text at all is there at once")
	s.close()
	s = &scanner{path: filepath.Join(t.TempDir(), "absent"), texts: []string{""}}
	_, err = s.next()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.Empty(t, tail(path, 3))
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("long \xff line\n", 5000)+"a\nb\n\n"), 0o600))
	require.Equal(t, "a\nb", tail(path, 2))
	require.Equal(t, "long ? line\na\nb", tail(path, 3))
	require.Empty(t, tail(path, -1))
	require.True(t, strings.HasPrefix(tail(path, 1<<20), "long"))
}

func TestDescribe(t *testing.T) {
	env := &engines.Environment{Python: "/opt/my env/python", PythonVersion: "3.11.7"}
	s := Spec{Argv: []string{"--host", "127.0.0.1", "it's"}, Env: append(os.Environ(), "B=two words", "A=1", "A=2", "C=", "no-name=1")}
	want := `A=2 B='two words' C='' '/opt/my env/python' -u -P -m sglang.launch_server --host 127.0.0.1 'it'\''s'`
	require.Equal(t, want, Plain(env, "sglang.launch_server").Describe(s))
	f := &ForkServer{env: env, opt: ForkOptions{Module: "sglang.launch_server"}}
	require.Equal(t, want, f.Describe(s))
	for version, safe := range map[string]bool{"3.10.2": false, "3.11": true, "3.12.1": true, "": false, "2.7": false, "x": false} {
		require.Equal(t, safe, safePath(version), version)
	}
}

func TestQuotedWordsComeBack(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	words := []string{"a", "", "it's", "$HOME", "`x`", "a\nb", `\`, `"`, "*", "ä"}
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, quote(w))
	}
	out, err := exec.Command("sh", "-c", "printf '%s\\0' "+strings.Join(quoted, " ")).Output()
	require.NoError(t, err)
	require.Equal(t, words, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
}
