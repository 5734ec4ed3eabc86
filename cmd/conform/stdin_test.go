package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadTraceEndsWithItsContext(t *testing.T) {
	silent, writer := io.Pipe()
	defer writer.Close()
	unopened := filepath.Join(t.TempDir(), "fifo.jsonl")
	require.NoError(t, syscall.Mkfifo(unopened, 0o600))
	for _, path := range []string{"-", unopened} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err := readTrace(ctx, path, silent)
		require.ErrorIs(t, err, context.Canceled, path)
	}
	w, err := os.OpenFile(unopened, os.O_WRONLY, 0) // for the open that was left
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

// A bug in the reader reaches the caller, who puts it into words.
func TestReadTracePanicsWhereItsCallerSeesIt(t *testing.T) {
	require.PanicsWithValue(t, "a bug", func() { _, _ = readTrace(t.Context(), "-", buggy{}) })
}

type buggy struct{}

func (buggy) Read([]byte) (int, error) { panic("a bug") }

// One Ctrl-C ends a check that waits for a trace that does not come.
func TestInterruptedCheckOfStandardInput(t *testing.T) {
	in, out, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	defer out.Close()
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "conform", "check", "-")
	cmd.Stdin, cmd.Stderr = in, &errs
	require.NoError(t, cmd.Start())
	_, err = out.WriteString("{")
	require.NoError(t, err)
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatal("it still waits")
	}
	require.Equal(t, statusHarness, cmd.ProcessState.ExitCode())
	require.Contains(t, errs.String(), "interrupted")
}
