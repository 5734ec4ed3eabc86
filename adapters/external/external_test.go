package external

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// writer runs a program that records a pair by one of our writers.
type writer func(t *testing.T, args ...string)

func unpacked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, Writers()))
	return dir
}

func inC(t *testing.T) writer {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no cc: the C header can't be tried")
	}
	bin := filepath.Join(t.TempDir(), "pair")
	out, err := exec.Command(cc, "-std=gnu99", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", unpacked(t), "-o", bin, "testdata/pair.c").CombinedOutput()
	require.NoError(t, err, string(out))
	return func(t *testing.T, args ...string) {
		out, err := exec.CommandContext(t.Context(), bin, args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func inPython(t *testing.T) writer {
	python, err := exec.LookPath("python3")
	if err == nil {
		err = exec.Command(python, "-c", "import sys; sys.exit(sys.version_info < (3, 10))").Run()
	}
	if err != nil {
		t.Skip("no python3 of 3.10 or later: the Python module can't be tried")
	}
	front := unpacked(t)
	return func(t *testing.T, args ...string) {
		cmd := exec.CommandContext(t.Context(), python, append([]string{"-W", "error::SyntaxWarning", "testdata/pair.py"}, args...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+front, "PYTHONDONTWRITEBYTECODE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// recorded is the trace that a writer leaves.
func recorded(t *testing.T, w writer, args ...string) *spec.Trace {
	t.Helper()
	dir := t.TempDir()
	events := filepath.Join(dir, "events")
	require.NoError(t, os.Mkdir(events, 0o755))
	require.NoError(t, traces.WriteManifest(dir, traces.Manifest{Tool: "test"}))
	w(t, append([]string{events}, args...)...)
	tr, err := traces.Read(dir, nil)
	require.NoError(t, err)
	return tr
}

func TestWriters(t *testing.T) {
	for name, program := range map[string]func(*testing.T) writer{"C": inC, "Python": inPython} {
		t.Run(name, func(t *testing.T) {
			w := program(t)
			t.Run("whole", func(t *testing.T) {
				tr := recorded(t, w)
				require.Empty(t, tr.Losses)
				require.Len(t, tr.Events, 2*3+4*20*9)
				for _, e := range tr.Events {
					require.NotEqual(t, spec.KindNote, e.K, e.Text)
				}
				result, err := check.Judge(t.Context(), tr, check.Options{})
				require.NoError(t, err)
				require.Equal(t, spec.Pass, result.Verdict, "%v", result.Ranked())
				for _, p := range Examine(tr) {
					require.Contains(t, []Grade{Met, Absent}, p.Grade, "%s: %s", p.Name, p.Found)
				}
			})
			t.Run("lost", func(t *testing.T) {
				tr := recorded(t, w, "lost")
				require.Len(t, tr.Losses, 1)
				require.Equal(t, "decode-0", tr.Losses[0].Src)
				i := graded(t, tr, "nothing was lost", Broken)
				require.Equal(t, 1, i.Wrong)
				for _, e := range tr.Events {
					if e.K == spec.KindLost {
						require.EqualValues(t, 3, e.Count)
					}
				}
			})
			t.Run("torn", func(t *testing.T) {
				tr := recorded(t, w, "torn")
				require.Len(t, tr.Losses, 1)
				graded(t, tr, "sources are sealed", Weak)
			})
		})
	}
}

func graded(t *testing.T, tr *spec.Trace, name string, want Grade) Point {
	t.Helper()
	for _, p := range Examine(tr) {
		if p.Name == name {
			require.Equal(t, want, p.Grade, "%s: %s", name, p.Found)
			return p
		}
	}
	t.Fatalf("no point %q", name)
	return Point{}
}

// Each point is missed by some writer.
func TestExamineFindsEachMistake(t *testing.T) {
	tr := true
	source := func(src string, role spec.Role, clock string) spec.Event {
		return spec.Event{K: spec.KindSource, Src: src, Worker: src, Role: role, Host: "h", Clock: clock, Th: "main"}
	}
	good := func() []spec.Event {
		return []spec.Event{
			source("p", spec.RolePrefill, "c"), source("d", spec.RoleDecode, "c"),
			{K: spec.KindGrant, Src: "d", Th: "main", T: 1, T2: 1, Handoff: "h1"},
			{K: spec.KindEmit, Src: "d", Th: "main", T: 2, T2: 2, Sig: "s", Signal: "METADATA", Handoff: "h1", Asks: "STATUS"},
			{K: spec.KindObserve, Src: "p", Th: "main", T: 3, T2: 3, Sig: "s", Signal: "METADATA", Handoff: "h1"},
			{K: spec.KindBegin, Src: "p", Th: "main", T: 4, T2: 4, Access: "a", Handoff: "h1"},
			{K: spec.KindEnd, Src: "p", Th: "main", T: 5, T2: 5, Access: "a", OK: &tr},
			{K: spec.KindEmit, Src: "p", Th: "main", T: 6, T2: 6, Sig: "e", Signal: "STATUS", Handoff: "h1", Claims: spec.ClaimsCompleted},
			{K: spec.KindObserve, Src: "d", Th: "main", T: 7, T2: 7, Sig: "e", Signal: "STATUS", Handoff: "h1"},
			{K: spec.KindSubmit, Src: "d", Th: "main", T: 8, T2: 8, Req: "r"},
			{K: spec.KindAnswer, Src: "d", Th: "main", T: 9, T2: 9, Req: "r"},
			{K: spec.KindSeal, Src: "p", Th: "main", T: 10, T2: 10},
			{K: spec.KindSeal, Src: "d", Th: "main", T: 10, T2: 10},
		}
	}
	for _, p := range Examine(&spec.Trace{Events: good()}) {
		require.Equal(t, Met, p.Grade, "%s: %s", p.Name, p.Found)
		require.NotEmpty(t, p.Advice)
	}
	missed := map[string]bool{}
	for name, mistake := range map[string]func(tr *spec.Trace){
		"nothing was lost":                         func(tr *spec.Trace) { tr.Losses = []spec.Loss{{Src: "d", Why: "a gap"}} },
		"sources are sealed":                       func(tr *spec.Trace) { tr.Events = tr.Events[:12] },
		"a machine has one clock":                  func(tr *spec.Trace) { tr.Events[1].Clock = "other" },
		"a thread's times do not run backwards":    func(tr *spec.Trace) { tr.Events[5].T, tr.Events[5].T2 = 1, 2 },
		"accesses that began have an end":          func(tr *spec.Trace) { tr.Events[6].Access = "b" },
		"what is observed was emitted":             func(tr *spec.Trace) { tr.Events[4].Sig = "unknown" },
		"what was emitted is observed":             func(tr *spec.Trace) { tr.Events[8].K = spec.KindNote },
		"some signal says that accesses are over":  func(tr *spec.Trace) { tr.Events[7].Claims = spec.ClaimsReceived },
		"acknowledgements are asked for":           func(tr *spec.Trace) { tr.Events[3].Asks = "" },
		"both stages name a handoff alike":         func(tr *spec.Trace) { tr.Events[2].Handoff = "other" },
		"requests that are submitted are answered": func(tr *spec.Trace) { tr.Events[10].Req = "other" },
	} {
		trace := &spec.Trace{Events: good()}
		mistake(trace)
		for _, p := range Examine(trace) {
			if p.Name == name {
				require.NotEqual(t, Met, p.Grade, name)
				missed[name] = true
			}
		}
	}
	require.Len(t, missed, len(Examine(&spec.Trace{})))
}

func TestWritersAreTwoFiles(t *testing.T) {
	names, err := fs.Glob(Writers(), "*")
	require.NoError(t, err)
	require.Equal(t, []string{"conform_trace.h", "conform_trace.py"}, names)
}
