package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStoppableReadsWhatThereIs(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789"), 100_000)
	got, err := io.ReadAll(&stoppable{ctx: t.Context(), r: bytes.NewReader(text)})
	require.NoError(t, err)
	require.Equal(t, text, got)
	broken := errors.New("broken")
	_, err = io.ReadAll(&stoppable{ctx: t.Context(), r: iotest.ErrReader(broken)})
	require.ErrorIs(t, err, broken)
}

func TestStoppableEndsWithItsContext(t *testing.T) {
	silent, writer := io.Pipe()
	defer writer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := io.ReadAll(&stoppable{ctx: ctx, r: silent})
	require.ErrorIs(t, err, context.Canceled)
}

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
