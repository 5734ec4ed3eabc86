package engines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// toolbox is a PATH with only what a test puts there.
func toolbox(t *testing.T, programs map[string]string) machine {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	env := map[string]string{"PATH": dir}
	return machine{getenv: func(name string) string { return env[name] }, environ: []string{"PATH=" + dir}, platform: "linux-x86_64"}
}

// python is a stand-in for an interpreter of a minor version.
func python(minor, implementation string, venv bool, glibc string) string {
	return fmt.Sprintf(`echo '{"minor":%q,"version":%q,"implementation":%q,"libc":"glibc","libc_version":%q,"executable":"/x","venv":%t}'`,
		minor, minor+".4", implementation, glibc, venv)
}

func toyRecipe(t *testing.T, needs string) Recipe {
	t.Helper()
	text := goodBase
	if needs != "" {
		text = "# needs: " + needs + "\n" + text
	}
	c, err := (&Catalog{}).Add(locks(map[string]string{"b.lock": text, "e.lock": goodEngine}))
	require.NoError(t, err)
	r, err := c.Find("toy@1.2", CPU)
	require.NoError(t, err)
	return r
}

func TestAllThatIsMissingIsNamedAtOnce(t *testing.T) {
	m := toolbox(t, nil)
	_, err := m.ready(t.Context(), toyRecipe(t, "gcc libibverbs.so.1 unheard"))
	var missing *MissingError
	require.ErrorAs(t, err, &missing)
	require.Len(t, missing.Missing, 4)
	require.ErrorContains(t, err, "lacks Python 3.11 (runs the engine), gcc (")
	require.ErrorContains(t, err, "apt-get install python3 python3-venv gcc libibverbs1; install unheard")
	require.NotContains(t, err.Error(), "\n")
}

func TestReady(t *testing.T) {
	m := toolbox(t, map[string]string{"python3": python("3.11", "CPython", true, "2.36"), "gcc": ""})
	m.libraries = []string{t.TempDir()}
	_, err := m.ready(t.Context(), toyRecipe(t, "gcc libx.so.1"))
	require.ErrorContains(t, err, "lacks libx.so.1")
	require.NoError(t, os.WriteFile(filepath.Join(m.libraries[0], "libx.so.1"), nil, 0o644))
	p, err := m.ready(t.Context(), toyRecipe(t, "gcc libx.so.1"))
	require.NoError(t, err)
	require.Equal(t, "3.11", p.Minor)
}

func TestTheRightPythonIsFound(t *testing.T) {
	recipe := toyRecipe(t, "")
	good := python("3.11", "CPython", true, "2.36")
	for name, c := range map[string]struct {
		programs map[string]string
		want     string // in the error; "" for none
	}{
		"behind another version":  {map[string]string{"python3": python("3.13", "CPython", true, "2.36"), "python3.11": good}, ""},
		"behind a dead launcher":  {map[string]string{"python3": "exit 1", "python3.11": good}, ""},
		"behind one without venv": {map[string]string{"python3": python("3.11", "CPython", false, "2.36"), "python3.11": good}, ""},
		"no venv":                 {map[string]string{"python3": python("3.11", "CPython", false, "2.36")}, "apt-get install python3.11-venv"},
		"other version":           {map[string]string{"python3": python("3.9", "CPython", true, "2.36")}, "found: python3 is CPython 3.9.4); name one with CONFORM_PYTHON"},
		"other implementation":    {map[string]string{"python3": python("3.11", "PyPy", true, "2.36")}, "found: python3 is PyPy 3.11.4"},
		"talks nonsense":          {map[string]string{"python3": "echo hello"}, "lacks Python 3.11"},
		"no path":                 {map[string]string{"python3": `echo '{"minor":"3.11","venv":true}'`}, "lacks Python 3.11"},
		"old glibc":               {map[string]string{"python3": python("3.11", "CPython", true, "2.31")}, "glibc 2.34"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := toolbox(t, c.programs).ready(t.Context(), recipe)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestANamedPythonIsTheOnlyOne(t *testing.T) {
	m := toolbox(t, map[string]string{"python3": python("3.11", "CPython", true, "2.36"), "mine": python("3.9", "CPython", true, "2.36")})
	path := m.getenv("PATH")
	m.getenv = func(name string) string { return map[string]string{"PATH": path, PythonVariable: "mine"}[name] }
	_, err := m.ready(t.Context(), toyRecipe(t, ""))
	require.ErrorContains(t, err, "mine is CPython 3.9.4")
}

func TestOtherPlatform(t *testing.T) {
	m := toolbox(t, nil)
	m.platform = "darwin-aarch64"
	_, err := m.ready(t.Context(), toyRecipe(t, ""))
	require.ErrorContains(t, err, "lacks the platform linux-x86_64 (the wheels are built for it; this is darwin-aarch64)")
}

func TestReadyEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := toolbox(t, nil).ready(ctx, toyRecipe(t, ""))
	require.ErrorIs(t, err, context.Canceled)
}

func TestCleanEnv(t *testing.T) {
	got := cleanEnv([]string{"PATH=/bin", "PYTHONPATH=/x", "PYTHONDONTWRITEBYTECODE=1", "PIP_INDEX_URL=mirror", "PIP_TARGET=/y"})
	require.Equal(t, []string{"PATH=/bin", "PIP_INDEX_URL=mirror", "PYTHONNOUSERSITE=1"}, got)
	e := &Environment{PythonPath: []string{"/e/site"}, Env: []string{"A=1=2", "PATH=/mine"}}
	require.Equal(t, []string{"PYTHONNOUSERSITE=1", "PYTHONPATH=/probe:/e/site", "A=1=2", "PATH=/mine"},
		e.Environ([]string{"PATH=/bin", "PYTHONPATH=/x"}, "/probe"))
}
