package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stubborn is a program that does not stop when it is asked to.
func stubborn() {
	ctx, stop := interruptible(context.Background(), os.Stderr)
	defer stop()
	os.Stderr.WriteString("ready\n")
	<-ctx.Done()
	select {}
}

// process starts a program of TestMain and returns the lines of its standard
// error as they come.
func process(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	r, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already where the test went well
		_ = cmd.Wait()
	})
	return bufio.NewReader(r)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	require.NoError(t, err)
	return s
}

func TestSecondInterruptAborts(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd := exec.CommandContext(t.Context(), "stubborn")
		errs := process(t, cmd)
		require.Equal(t, "ready\n", line(t, errs))
		require.NoError(t, cmd.Process.Signal(sig))
		require.Contains(t, line(t, errs), "once more aborts at once")
		require.NoError(t, cmd.Process.Signal(sig))
		require.Contains(t, line(t, errs), "conform: aborted")
		_ = cmd.Wait() // the status says more
		require.Equal(t, statusHarness, cmd.ProcessState.ExitCode())
	}
}

// A reader that goes away is no reason to die by SIGPIPE, or to change the status.
func TestReaderGoesAway(t *testing.T) {
	for _, args := range [][]string{{"list", "rules"}, {"check", "--format", "json", casesDir + "/aux_pool_pass.jsonl"}} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "conform", args...)
		cmd.Stdout, cmd.Stderr = w, w
		require.NoError(t, r.Close())
		require.NoError(t, cmd.Run(), "%v", args)
		require.NoError(t, w.Close())
	}
}

// A port that somebody else has is told of before anything is started or written.
func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "out")
	c := newCall(realBackend())
	require.Equal(t, statusUsage, c.main(t.Context(), []string{"run", "--port", port, "--out", out}))
	require.Contains(t, c.errs.String(), port)
	require.Equal(t, 1, strings.Count(c.errs.String(), "\n"), c.errs.String())
	require.NoFileExists(t, out)
}

// Ctrl-C in the middle of a run: the workers end, the traces stay and can be
// judged, and what had been judged is reported.
func TestInterruptedRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	// A path of its own tells this run's workers from all others.
	bin := filepath.Join(dir, "conform")
	program, err := exec.LookPath("conform")
	require.NoError(t, err)
	content, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(bin, content, 0o755))

	cmd := exec.CommandContext(t.Context(), bin, "run", "--mode", "push", "--seeds", "1-50", "--jobs", "1", "--out", "out")
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout = &out
	errs := process(t, cmd)
	require.Contains(t, line(t, errs), "[1/") // one scenario has ended, many are to come
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, errs)
	require.NoError(t, err)
	_ = cmd.Wait() // the status says more
	require.Equal(t, 2, cmd.ProcessState.ExitCode(), out.String())
	require.Contains(t, out.String(), "INCONCLUSIVE  interrupted")
	require.Eventually(t, func() bool { return len(processesOf(t, bin)) == 0 }, 10*time.Second, 10*time.Millisecond)

	runs, err := filepath.Glob(filepath.Join(dir, "out", "*", "manifest.json"))
	require.NoError(t, err)
	require.NotEmpty(t, runs)
	for _, run := range runs {
		c := newCall(realBackend())
		require.Less(t, c.main(t.Context(), []string{"check", filepath.Dir(run)}), statusUsage, c.errs.String())
	}
}

// processesOf lists the processes that run the program at a path.
func processesOf(t *testing.T, path string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	var found []string
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.TrimSuffix(exe, " (deleted)") == path {
			found = append(found, link)
		}
	}
	return found
}
