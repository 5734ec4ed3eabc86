//go:build engines && linux

package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines"
	"conform/adapters/engines/launch"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// Runs that end in their middle leave nothing behind, and what they recorded is judged.
// The moments are spread over starting, driving, stopping and judging; two of three runs
// are interrupted as by Ctrl-C, one of three is killed; of the killed alone the folder
// of temporary files stays, until the next run.
func TestSGLangNightlyInterrupted(t *testing.T) {
	nightly(t)
	if _, err := engines.Find(t.Context(), "sglang@0.5.23", engines.CPU); err != nil {
		t.Skip(err)
	}
	adoptOrphans(t)
	bin := filepath.Join(t.TempDir(), "conform")
	text, err := exec.Command("go", "build", "-o", bin, "conform/cmd/conform").CombinedOutput()
	require.NoError(t, err, string(text))
	rng := rand.New(rand.NewPCG(1, 2))
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGKILL, syscall.SIGTERM}
	judged, ports := 0, 0
	const runs = 50
	for i := range runs {
		j, p := interruptedRun(t, bin, i, signals[i%3], time.Duration(rng.IntN(22_000))*time.Millisecond)
		judged, ports = judged+j, ports+p
	}
	require.Positive(t, judged)
	require.Positive(t, ports, "no run was caught while it listened")
	t.Logf("%d runs interrupted: no process or port left, nor a temporary file that the next run does not remove (%d ports looked at); %d traces judged", runs, ports, judged)
}

// interruptedRun ends one run after a while and looks at what it left. It gives how many
// traces were judged, and how many ports the run was listening on.
func interruptedRun(t *testing.T, bin string, i int, sig syscall.Signal, after time.Duration) (judged, ports int) {
	t.Helper()
	what := fmt.Sprintf("run %d, %v after %v", i, sig, after)
	temp, out := t.TempDir(), filepath.Join(t.TempDir(), "run")
	cmd := exec.Command(bin, "run", "--adapter", "sglang", "--engine", "0.5.23", "--connector", "mooncake",
		"--scenario", "cancel-during-transfer", "--seed", strconv.Itoa(i+1), "--out", out)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	require.NoError(t, cmd.Start())
	time.Sleep(after)
	open := listening(descendants(os.Getpid()))
	require.NoError(t, cmd.Process.Signal(sig))
	_ = cmd.Wait()
	if sig != syscall.SIGKILL {
		require.Contains(t, []int{0, 1, 2, 4}, cmd.ProcessState.ExitCode(), what)
	}
	limit := time.Now().Add(20 * time.Second) // a killed run's guards need a moment
	for len(descendants(os.Getpid())) > 0 && time.Now().Before(limit) {
		reap()
		time.Sleep(50 * time.Millisecond)
	}
	require.Empty(t, commandLines(descendants(os.Getpid())), "%s: processes are left", what)
	now := listeners()
	for inode, port := range open {
		require.NotContains(t, now, inode, "%s: somebody still listens on port %d", what, port)
	}
	if sig == syscall.SIGKILL { // nobody is left to remove a killed program's folder: the next run does
		t.Setenv("TMPDIR", temp)
		next, err := launch.NewScratch()
		require.NoError(t, err)
		require.NoError(t, next.Close())
	}
	left, err := filepath.Glob(filepath.Join(temp, "*"))
	require.NoError(t, err)
	require.Empty(t, left, "%s: temporary files are left", what)
	return judgeAll(t, out, what), len(open)
}

// judgeAll judges what a run recorded, however it ended.
func judgeAll(t *testing.T, out, what string) (judged int) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(out, "*", "events"))
	require.NoError(t, err)
	for _, dir := range dirs {
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) == 0 {
			continue // before the first line
		}
		tr, err := traces.Read(filepath.Dir(dir), nil)
		require.NoError(t, err, what)
		res, err := check.Judge(t.Context(), tr, check.Options{})
		require.NoError(t, err, what)
		require.Less(t, res.Verdict, spec.Error, what)
		judged++
	}
	return judged
}

// adoptOrphans makes this process the parent of what its children leave behind.
func adoptOrphans(t *testing.T) {
	t.Helper()
	const setChildSubreaper = 36
	_, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, setChildSubreaper, 1, 0, 0, 0, 0)
	require.Zero(t, errno)
}

// reap takes note of orphans that have ended.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || errors.Is(err, syscall.ECHILD) {
			return
		}
	}
}

// descendants are the living processes below one, by /proc.
func descendants(root int) []int {
	parent := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // state, parent, …
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) > 1 && fields[0] != "Z" {
			parent[pid], _ = strconv.Atoi(fields[1])
		}
	}
	var below []int
	for pid := range parent {
		for p := parent[pid]; p > 1; p = parent[p] {
			if p == root {
				below = append(below, pid)
				break
			}
		}
	}
	return below
}

func commandLines(pids []int) (lines []string) {
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		lines = append(lines, fmt.Sprintf("%d %s", pid, strings.ReplaceAll(string(text), "\x00", " ")))
	}
	return lines
}

// listening are the sockets on which processes listen, with their ports.
func listening(pids []int) map[string]int {
	all, theirs := listeners(), map[string]int{}
	for _, pid := range pids {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			to, _ := os.Readlink(fd)
			inode := strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")
			if port, ok := all[inode]; ok {
				theirs[inode] = port
			}
		}
	}
	return theirs
}

// listeners are all listening TCP sockets of this machine, by inode, with their ports.
func listeners() map[string]int {
	found := map[string]int{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if port, err := strconv.ParseInt(hex, 16, 32); err == nil {
				found[f[9]] = int(port)
			}
		}
	}
	return found
}
