package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"conform/harness/report"
)

func main() {
	if workerMain() {
		return
	}
	os.Exit(commandMain())
}

// commandMain is the program as a person calls it. It returns the exit status.
func commandMain() int {
	ctx, stop := interruptible(context.Background(), os.Stderr)
	defer stop()
	a := &app{
		stdin:   os.Stdin,
		stdout:  &pipe{w: os.Stdout},
		stderr:  &pipe{w: os.Stderr},
		getenv:  os.Getenv,
		program: programName(os.Args[0]),
		backend: realBackend(),
	}
	_, a.colorOut = terminal(os.Stdout)
	a.columns, a.liveErr = terminal(os.Stderr)
	return a.main(ctx, os.Args[1:])
}

// app is one call of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr *pipe
	getenv         func(string) string
	program        string // how the user called it, for commands that can be pasted
	colorOut       bool   // standard output is a terminal
	liveErr        bool   // standard error is a terminal
	columns        int    // of that terminal
	backend        backend
	now            func() time.Time // nil for the machine's clock

	status int // of the command that ran, where no error ended it
}

// main runs one command line and returns its exit status.
func (a *app) main(ctx context.Context, args []string) (status int) {
	defer func() {
		if v := recover(); v != nil {
			status = a.panicked(v, debug.Stack())
		}
	}()
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.stdout.err()
	}
	if err != nil {
		return a.fail(asFailure(err), wantsJSON(args))
	}
	return a.status
}

// fail says what went wrong: one line for a person, and an object for a program.
func (a *app) fail(f *failure, asJSON bool) int {
	if asJSON {
		_ = report.FailureJSON(a.stdout, f.json())
	}
	return a.say(f)
}

// say tells a person of a failure, in one line. It returns the exit status.
func (a *app) say(f *failure) int {
	fmt.Fprintf(a.stderr, "conform: %s\n", report.Clean(f.Error()))
	return f.status
}

// panicked turns a bug of this program into one line. The stack is for whoever
// mends it, and is shown where it was asked for.
func (a *app) panicked(v any, stack []byte) int {
	if a.getenv("CONFORM_DEBUG") != "" {
		fmt.Fprintf(a.stderr, "%s\n", stack)
	}
	fmt.Fprintf(a.stderr, "conform: internal error: %s; this is a bug in conform: please report it "+
		"with the command line and with what CONFORM_DEBUG=1 prints\n", report.Clean(fmt.Sprint(v)))
	return statusHarness
}

// interruptible gives a context that the first SIGINT or SIGTERM cancels; the
// second one ends the program. The returned function ends the watch.
func interruptible(parent context.Context, stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	// Asking for SIGPIPE turns a closed pipe into an error of the write, which
	// pipe swallows; otherwise it would kill the program in the middle of a run.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-signals:
			}
			if n > 0 {
				fmt.Fprintln(stderr, "conform: aborted: the traces written so far are kept")
				os.Exit(statusHarness)
			}
			fmt.Fprintln(stderr, "conform: stopping: ending what was started and keeping what was done; once more aborts at once")
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
		close(done)
		<-watched
	}
}

// terminal reports the width of a terminal, and whether f is one.
func terminal(f *os.File) (columns int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || os.Getenv("TERM") == "dumb" {
		return 0, false
	}
	return int(size.Col), true
}
