//go:build unix

package traces_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"conform/spec"
	"conform/traces"
)

// The test binary is its own child: it records until it is killed, or until its
// files may grow no more.
const (
	childEnv     = "CONFORM_TRACES_CHILD"
	childRecords = "records"
	childFull    = "full"
	childLimit   = 32 << 10
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case childRecords:
		err = recordForever(os.Args[1])
	case childFull:
		err = recordUntilFull(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(t *testing.T, what, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	return cmd
}

// recordForever ends when it is killed, at the latest when its parent is gone.
func recordForever(dir string) error {
	w, err := traces.Create(dir, "P", traces.WriterOptions{})
	if err != nil {
		return err
	}
	w.Record(sourceP)
	fmt.Println("recording")
	parent := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		parent <- err
	}()
	for {
		select {
		case <-parent:
			return w.Close()
		default:
		}
		for range 20 {
			w.Record(noteN)
		}
		time.Sleep(time.Millisecond)
	}
}

// killed runs a child that records, kills it, and returns what is left and the
// time right before the kill on the clock of both.
func killed(t *testing.T, dir string) (*spec.Trace, int64) {
	t.Helper()
	cmd := child(t, childRecords, dir)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "recording\n", line)
	time.Sleep(300 * time.Millisecond)
	now, _ := traces.Monotonic()
	at := now()
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	return readFile(t, dir, "P.jsonl.zst"), at
}

// A process that is killed loses at most its last 100 ms. A machine under load
// may starve the flusher itself; hence a few tries, of which one must do. That
// what is left is whole holds in each.
func TestKill(t *testing.T) {
	const tries, most = 5, 100 * time.Millisecond
	var behind time.Duration
	for range tries {
		dir := t.TempDir()
		got, at := killed(t, dir)
		require.NotEmpty(t, got.Events)
		for i, e := range got.Events {
			require.EqualValues(t, i, e.Seq)
		}
		behind = time.Duration(at - got.Events[len(got.Events)-1].T)
		if behind <= most {
			tearTail(t, dir, got)
			return
		}
	}
	t.Fatalf("in %d of %d tries the file ended more than %s before the kill, last %s", tries, tries, most, behind)
}

// tearTail cuts the file of a killed process as a kill in the middle of a write
// would, and expects a loss.
func tearTail(t *testing.T, dir string, whole *spec.Trace) {
	t.Helper()
	path := filepath.Join(dir, "events", "P.jsonl.zst")
	info, err := os.Stat(path)
	require.NoError(t, err)
	if len(whole.Losses) > 0 {
		return // the kill did it
	}
	require.NoError(t, os.Truncate(path, info.Size()-7))
	got := readFile(t, dir, "P.jsonl.zst")
	require.NotEmpty(t, got.Events)
	require.Len(t, got.Losses, 1)
	require.EqualValues(t, len(got.Events), got.Losses[0].Next)
}

// recordUntilFull records more than the limit of its files allows, and checks
// what the writer says.
func recordUntilFull(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		return err
	}
	lim.Cur = childLimit
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		return err
	}
	w, err := traces.Create(dir, "P", traces.WriterOptions{Flush: -1})
	if err != nil {
		return err
	}
	w.Record(sourceP)
	for i := 0; w.Err() == nil; i++ {
		if i > 1_000_000 {
			return fmt.Errorf("the disk never was full")
		}
		w.Record(spec.Event{K: spec.KindNote, Text: fmt.Sprint(i*i, i*7919)})
	}
	w.Record(noteN)
	if err := w.Seal(); err == nil {
		return fmt.Errorf("a seal on a full disk")
	}
	if w.Lost() == 0 {
		return fmt.Errorf("nothing was lost")
	}
	return nil
}

func TestFullDiskOfAProcess(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, child(t, childFull, dir).Run())
	info, err := os.Stat(filepath.Join(dir, "events", "P.jsonl.zst"))
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(childLimit))
	got := readFile(t, dir, "P.jsonl.zst")
	require.NotEmpty(t, got.Events)
	require.NotEmpty(t, got.Losses)
	require.NotEqual(t, spec.KindSeal, got.Events[len(got.Events)-1].K)
}
