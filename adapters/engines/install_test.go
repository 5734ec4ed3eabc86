package engines

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test binary is also a process that installs, to be killed.
const installerVariable = "CONFORM_TEST_INSTALLER"

func TestMain(m *testing.M) {
	if os.Getenv(installerVariable) != "" {
		os.Exit(installer())
	}
	os.Exit(m.Run())
}

// installer installs toy@1.2, and says each step before it does it.
func installer() int {
	s, err := Open(os.Getenv)
	if err == nil {
		_, err = s.Install(context.Background(), "toy@1.2", CPU, Options{
			Progress: func(p Progress) {
				if !p.Done {
					fmt.Println(p.Part, p.Step)
				}
			},
			Waiting: func(string) { fmt.Println("waiting") },
		})
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println("installed")
	return 0
}

// wheel is a package for pip, with some modules.
func wheel(t *testing.T, dir, name, version string, modules map[string]string) (file string, hash string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	var record strings.Builder
	add := func(path, text string) {
		w, err := z.Create(path)
		require.NoError(t, err)
		_, err = io.WriteString(w, text)
		require.NoError(t, err)
		record.WriteString(path + ",,\n")
	}
	for path, text := range modules {
		add(path, text)
	}
	add(info+"METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version))
	add(info+"WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	add(info+"entry_points.txt", fmt.Sprintf("[console_scripts]\n%s = %s:main\n", name, name))
	add(info+"RECORD", record.String())
	require.NoError(t, z.Close())
	file = filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", name, version))
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
	return file, fmt.Sprintf("%x", sha256.Sum256(b.Bytes()))
}

// world is a store, a folder of lock files, and a folder that is pip's only index.
type world struct {
	index, locks, root string
	hash               map[string]string // by package
}

// newWorld has toy@1.2 and toy@1.3 on the base tiny. Their check imports them.
func newWorld(t *testing.T) *world {
	t.Helper()
	needTool(t, "python3")
	w := &world{index: t.TempDir(), locks: t.TempDir(), root: filepath.Join(t.TempDir(), "engines"), hash: map[string]string{}}
	_, w.hash["alpha"] = wheel(t, w.index, "alpha", "1.0", map[string]string{"alpha/__init__.py": "x = 1\ndef main(): print('alpha')\n", "alpha/template.py": "{{ no python }}\n"})
	_, w.hash["toy"] = wheel(t, w.index, "toy", "1.2", map[string]string{"toy.py": "import alpha, os\nassert os.environ['TOY'] == '1'\n"})
	_, w.hash["toy3"] = wheel(t, w.index, "toy", "1.3", map[string]string{"toy.py": "import alpha\n"})
	w.writeLocks(t)
	for name, value := range map[string]string{
		"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": w.index, "PIP_INDEX_URL": "", "PIP_CONFIG_FILE": os.DevNull,
		RootVariable: w.root, LocksVariable: w.locks, PythonVariable: "",
	} {
		t.Setenv(name, value)
	}
	return w
}

func (w *world) writeLocks(t *testing.T) {
	t.Helper()
	header := "# device: cpu\n# platform: " + thisMachine().platform + "\n# python: 3.10 3.11 3.12 3.13\n# disk: 1 MB\n"
	for name, text := range map[string]string{
		"base.lock":  "# kind: base\n# name: tiny\n# import: alpha\n" + header + "alpha==1.0 --hash=sha256:" + w.hash["alpha"] + "\n",
		"toy.lock":   "# kind: engine\n# name: toy\n# version: 1.2\n# base: tiny\n# import: toy\n# env: TOY=1\n" + header + "toy==1.2 --hash=sha256:" + w.hash["toy"] + "\n",
		"toy13.lock": "# kind: engine\n# name: toy\n# version: 1.3\n# base: tiny\n# import: toy\n" + header + "toy==1.3 --hash=sha256:" + w.hash["toy3"] + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(w.locks, name), []byte(text), 0o644))
	}
}

func (w *world) open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(os.Getenv)
	require.NoError(t, err)
	return s
}

func (w *world) state(t *testing.T, spec string) Listing {
	t.Helper()
	all, err := w.open(t).List()
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(l Listing) bool { return l.Spec == spec })
	require.GreaterOrEqual(t, i, 0)
	return all[i]
}

// usable runs a program in an environment.
func usable(t *testing.T, e *Environment) {
	t.Helper()
	cmd := exec.Command(e.Python, "-c", "import toy, alpha; print(alpha.__file__, alpha.__cached__)")
	cmd.Env = e.Environ(os.Environ())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), staged)
	_, err = os.Stat(strings.Fields(string(out))[1])
	require.NoError(t, err, "its bytecode is there")
	script := filepath.Join(filepath.Dir(e.Python), "alpha")
	out, err = exec.Command(script).CombinedOutput()
	require.NoError(t, err, "scripts name the final folder")
	require.Equal(t, "alpha\n", string(out))
}

func TestInstallFindRemove(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	_, err := s.Find(t.Context(), "toy@1.2", CPU)
	var none *NotInstalledError
	require.ErrorAs(t, err, &none)
	require.Equal(t, "toy@1.2 is not installed for cpu; install it with: conform engine install toy@1.2", err.Error())
	require.Equal(t, Available, w.state(t, "toy@1.2").State)
	_, err = s.Remove(t.Context(), "toy@1.2", CPU, nil)
	require.ErrorAs(t, err, &none)
	require.NoDirExists(t, w.root, "asking makes nothing")

	e, err := s.Install(t.Context(), "toy@1.2", CPU, Options{})
	require.NoError(t, err)
	usable(t, e)
	require.Equal(t, "1.0", e.Packages["alpha"])
	require.Len(t, e.Digest, 64)
	require.Positive(t, e.SizeBytes)
	again, err := Find(t.Context(), "toy@1.2", CPU)
	require.NoError(t, err)
	require.Equal(t, e, again)
	require.Equal(t, Installed, w.state(t, "toy@1.2").State)
	require.Equal(t, Available, w.state(t, "toy@1.3").State)

	other, err := s.Install(t.Context(), "toy@1.3", CPU, Options{Progress: func(p Progress) {
		require.Equal(t, "toy@1.3", p.Part, "the base is shared")
	}})
	require.NoError(t, err)
	require.Equal(t, e.Python, other.Python)
	_, err = s.Install(t.Context(), "toy@1.2", CPU, Options{Progress: func(Progress) { t.Error("nothing is done twice") }})
	require.NoError(t, err)

	freed, err := s.Remove(t.Context(), "toy@1.2", CPU, nil)
	require.NoError(t, err)
	require.Positive(t, freed)
	require.FileExists(t, other.Python, "the other version stands on the base")
	freed, err = s.Remove(t.Context(), "toy@1.3", CPU, nil)
	require.NoError(t, err)
	require.Greater(t, freed, other.SizeBytes, "the last version takes the base along")
	require.NoFileExists(t, other.Python)
	_, err = s.Remove(t.Context(), "toy@9", CPU, nil)
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
}

// Killed before and in each of its steps, the next call goes on and ends well.
func TestInstallGoesOnAfterAKillInAnyStep(t *testing.T) {
	w := newWorld(t)
	steps := []string{
		"tiny environment", "tiny packages", "tiny stand-ins for CUDA", "tiny bytecode", "tiny imports",
		"toy@1.2 packages", "toy@1.2 bytecode", "toy@1.2 imports",
	}
	var said []string
	for _, step := range steps {
		said = append(said, killAt(t, step)...)
		require.Equal(t, Partial, w.state(t, "toy@1.2").State, step)
	}
	e, err := w.open(t).Install(t.Context(), "toy@1.2", CPU, Options{})
	require.NoError(t, err)
	usable(t, e)
	begun := 0
	for _, line := range said {
		if line == "tiny packages" {
			begun++
		}
	}
	require.Positive(t, begun)
	left, err := filepath.Glob(filepath.Join(w.root, "*", "*"+staged))
	require.NoError(t, err)
	require.Empty(t, left)
	trash, err := folders(filepath.Join(w.root, "trash"))
	require.NoError(t, err)
	require.Empty(t, trash)
}

// killAt runs an installer and kills it as soon as it says that a step begins. It
// returns what it said.
func killAt(t *testing.T, step string) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), installerVariable+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if lines.Text() == step {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	require.Contains(t, said, step, "the step is done again, or for the first time")
	return said
}

func TestTwoInstallersAtOnce(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	outs := make([]string, 3)
	for i := range outs {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), installerVariable+"=1")
		wg.Go(func() {
			out, err := cmd.CombinedOutput()
			outs[i] = fmt.Sprintf("%s%v", out, err)
		})
	}
	wg.Wait()
	all := strings.Join(outs, "\n")
	for _, out := range outs {
		require.Contains(t, out, "installed\n", all)
	}
	require.Equal(t, 1, strings.Count(all, "toy@1.2 imports"), "one of them did it: %s", all)
	e, err := w.open(t).Find(t.Context(), "toy@1.2", CPU)
	require.NoError(t, err)
	usable(t, e)
}

func TestWhoWaitsIsToldForWhom(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	held, err := s.lock(t.Context(), "engine install other@1", func(string) {})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Install(ctx, "toy@1.2", CPU, Options{Waiting: func(holder string) {
		require.Equal(t, fmt.Sprintf("process %d (engine install other@1)", os.Getpid()), holder)
		cancel()
	}})
	require.ErrorIs(t, err, context.Canceled)
	held.unlock()
	again, err := s.lock(t.Context(), "x", func(string) { t.Error("nobody holds it") })
	require.NoError(t, err)
	again.unlock()
}

func TestAnInterruptedInstallationGoesOn(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := w.open(t).Install(ctx, "toy@1.2", CPU, Options{Progress: func(p Progress) {
		if p.Step == stepBytecode {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, Partial, w.state(t, "toy@1.2").State)
	e, err := w.open(t).Install(t.Context(), "toy@1.2", CPU, Options{Progress: func(p Progress) {
		require.NotEqual(t, stepVenv, p.Step)
	}})
	require.NoError(t, err)
	usable(t, e)
}

func TestAPartialInstallationIsRemoved(t *testing.T) {
	w := newWorld(t)
	killAt(t, "tiny bytecode")
	freed, err := w.open(t).Remove(t.Context(), "toy@1.2", CPU, nil)
	require.NoError(t, err)
	require.Positive(t, freed)
	require.Equal(t, Available, w.state(t, "toy@1.2").State)
}

func TestInstallFailures(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, w *world)
		want  string
	}{
		"another file": {func(t *testing.T, w *world) {
			wheel(t, w.index, "alpha", "1.0", map[string]string{"alpha/__init__.py": "evil = 1\n"})
		}, "install packages: the index has another file for alpha==1.0 than the one that the lock names; log: "},
		"not there": {func(t *testing.T, w *world) {
			require.NoError(t, os.Remove(filepath.Join(w.index, "alpha-1.0-py3-none-any.whl")))
		}, "install packages: the package index does not have alpha==1.0 for this platform and Python; log: "},
		"no network": {func(t *testing.T, _ *world) {
			t.Setenv("PIP_NO_INDEX", "")
			t.Setenv("PIP_FIND_LINKS", "")
			t.Setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
			t.Setenv("PIP_RETRIES", "0")
		}, "install packages: the package index cannot be reached (NewConnectionError): check the network"},
		"does not import": {func(t *testing.T, w *world) {
			_, w.hash["toy"] = wheel(t, w.index, "toy", "1.2", map[string]string{"toy.py": "import nowhere\n"})
			w.writeLocks(t)
		}, "import toy: ModuleNotFoundError: No module named 'nowhere'; log: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.spoil(t, w)
			_, err := w.open(t).Install(t.Context(), "toy@1.2", CPU, Options{})
			var failed *StepError
			require.ErrorAs(t, err, &failed)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			log, err := os.ReadFile(failed.Log)
			require.NoError(t, err)
			require.Contains(t, string(log), "== ", "each command with its output")
			require.Equal(t, Partial, w.state(t, "toy@1.2").State)
		})
	}
}

func TestAFailureIsMended(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.index, "toy-1.2-py3-none-any.whl")
	require.NoError(t, os.Rename(file, file+".away"))
	_, err := w.open(t).Install(t.Context(), "toy@1.2", CPU, Options{})
	require.Error(t, err)
	require.NoError(t, os.Rename(file+".away", file))
	e, err := w.open(t).Install(t.Context(), "toy@1.2", CPU, Options{})
	require.NoError(t, err)
	usable(t, e)
}

func TestDiskIsCheckedFirst(t *testing.T) {
	w := newWorld(t)
	lock := filepath.Join(w.locks, "base.lock")
	data, err := os.ReadFile(lock)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(lock, bytes.Replace(data, []byte("disk: 1 MB"), []byte("disk: 4000000000 MB"), 1), 0o644))
	_, err = w.open(t).Install(t.Context(), "toy@1.2", CPU, Options{})
	var full *DiskError
	require.ErrorAs(t, err, &full)
	require.Contains(t, err.Error(), " free, and the installation needs 4000000.0 GB")
	require.NoDirExists(t, filepath.Join(w.root, "bases"), "nothing is begun")
}

func TestAFolderThatCannotBeWritten(t *testing.T) {
	newWorld(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	t.Setenv(RootVariable, filepath.Join(file, "engines"))
	s, err := Open(os.Getenv)
	require.NoError(t, err)
	_, err = s.Install(t.Context(), "toy@1.2", CPU, Options{})
	var failed *StepError
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "write in "+filepath.Join(file, "engines")+": ")
}

func TestBrokenEnvironmentsAreSeenAndMended(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	e, err := s.Install(t.Context(), "toy@1.2", CPU, Options{})
	require.NoError(t, err)
	for name, spoil := range map[string]func() error{
		"its Python is gone": func() error { return os.Remove(e.Python) },
		"its base is gone":   func() error { return os.RemoveAll(filepath.Join(w.root, "bases")) },
		"record is no JSON": func() error {
			return os.WriteFile(filepath.Join(filepath.Dir(e.PythonPath[0]), recordName), []byte("{"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, spoil())
			_, err = s.Find(t.Context(), "toy@1.2", CPU)
			var none *NotInstalledError
			require.ErrorAs(t, err, &none)
			require.NotEmpty(t, none.Reason)
			require.Equal(t, Broken, w.state(t, "toy@1.2").State)
			e, err = s.Install(t.Context(), "toy@1.2", CPU, Options{})
			require.NoError(t, err)
			usable(t, e)
		})
	}
}

func TestAChangedLockReplacesTheOldEnvironment(t *testing.T) {
	w := newWorld(t)
	old, err := w.open(t).Install(t.Context(), "toy@1.2", CPU, Options{})
	require.NoError(t, err)
	_, w.hash["toy"] = wheel(t, w.index, "toy", "1.2", map[string]string{"toy.py": "rebuilt = 1\n"})
	w.writeLocks(t)
	all, err := w.open(t).List()
	require.NoError(t, err)
	var states []string
	for _, l := range all {
		if l.Spec == "toy@1.2" {
			states = append(states, l.State)
		}
	}
	require.Equal(t, []string{Available, Outdated}, states)
	fresh, err := w.open(t).Install(t.Context(), "toy@1.2", CPU, Options{})
	require.NoError(t, err)
	require.NotEqual(t, old.Digest, fresh.Digest)
	require.NoDirExists(t, old.PythonPath[0])
	require.Equal(t, old.Python, fresh.Python, "the base is the same")
}

func TestOpen(t *testing.T) {
	env := map[string]string{RootVariable: "/x/y"}
	get := func(name string) string { return env[name] }
	s, err := Open(get)
	require.NoError(t, err)
	require.Equal(t, "/x/y", s.Root)
	env[LocksVariable] = filepath.Join(t.TempDir(), "nowhere")
	_, err = Open(get)
	require.ErrorContains(t, err, LocksVariable)
	delete(env, RootVariable)
	delete(env, LocksVariable)
	s, err = Open(get)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(s.Root, filepath.Join("conform", "engines")))
}

func TestChildrenEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &tail{keep: 1 << 10}
	pids := make(chan int, 1)
	go func() {
		for {
			var pid int
			if n, _ := fmt.Sscanf(out.text(), "%d\n", &pid); n == 1 {
				pids <- pid
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	err := child{args: []string{"/bin/sh", "-c", "sleep 1000 & echo $!; wait"}, log: out}.run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	pid := <-pids
	require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, time.Millisecond, "the child's own child is ended too")
	require.ErrorIs(t, child{args: []string{"/bin/true"}}.run(ctx), context.Canceled, "none is started after that")
	require.Error(t, child{args: []string{"/nonexistent"}}.run(t.Context()))
}

// gone reports whether a process has ended, whether or not it was waited for.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestJournalForgetsALineThatWasCutShort(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir)
	require.NoError(t, err)
	require.NoError(t, j.finish("one"))
	require.NoError(t, j.finish("two"))
	j.close()
	path := filepath.Join(dir, "journal")
	require.NoError(t, os.Truncate(path, int64(len("one\ntw"))))
	j, err = openJournal(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"one": true}, j.done)
	require.NoError(t, j.finish("three"))
	j.close()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "one\nthree\n", string(data))
	require.Error(t, j.finish("four"), "a closed journal")
}

func TestPipReasons(t *testing.T) {
	for output, want := range map[string]string{
		"WARNING: Retrying (Retry(total=0)) after connection broken by 'NameResolutionError(...)': /x\nERROR: No matching distribution found for a==1": "cannot be reached (NameResolutionError)",
		"ERROR: No matching distribution found for torch==2.14.1\n":                                                                                    "does not have torch==2.14.1",
		"ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n":                                                    "the disk is full",
		"ERROR: HTTP error 503 while getting x\n":                                                                                                      "HTTP status 503",
		"ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x/y'\nCheck it.\n":                                       "no permission to write /x/y",
		"pip._vendor.urllib3.exceptions.ReadTimeoutError: timed out":                                                                                   "cannot be reached (ReadTimeoutError)",
		"something\nelse\n": "else",
	} {
		require.Contains(t, pipReason(output), want)
	}
}

func TestMegabytes(t *testing.T) {
	require.Equal(t, "0 MB", Megabytes(3))
	require.Equal(t, "3410 MB", Megabytes(3_410_400_000))
	require.Equal(t, "16.0 GB", Megabytes(16e9))
}

// TestRealInstall downloads about 1.1 GB. It runs where CONFORM_TEST_ENGINES names
// engines, such as "sglang@0.5.23 sglang@0.5.20".
func TestRealInstall(t *testing.T) {
	specs := strings.Fields(os.Getenv("CONFORM_TEST_ENGINES"))
	if len(specs) == 0 {
		t.Skip("CONFORM_TEST_ENGINES names no engines")
	}
	t.Setenv(RootVariable, t.TempDir())
	s, err := Open(os.Getenv)
	require.NoError(t, err)
	for _, spec := range specs {
		begun := time.Now()
		e, err := s.Install(t.Context(), spec, CPU, Options{})
		require.NoError(t, err)
		t.Logf("%s: %.0f s on %d cores, %s, base %s", spec, time.Since(begun).Seconds(), runtime.NumCPU(), Megabytes(e.SizeBytes), Megabytes(e.BaseBytes))
		cmd := exec.Command(e.Python, "-c", "import sglang, mooncake.engine, torch; print(sglang.__version__, torch.cuda.is_available())")
		cmd.Env = e.Environ(os.Environ())
		out, err := cmd.Output()
		require.NoError(t, err)
		require.Equal(t, e.Version+" False", lastLine(string(out)))
	}
}
