package engines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// killAfter is how long a child may take to end after SIGTERM.
const killAfter = 3 * time.Second

// A child is one program that an installation runs.
type child struct {
	args  []string
	env   []string
	dir   string
	stdin io.Reader
	log   io.Writer // what it prints
	hold  *os.File  // kept open by it: the store's lock outlives us while it runs
}

// run runs the child in a process group of its own. When ctx ends the whole group
// is ended: SIGTERM, then SIGKILL. If this program is killed, the kernel kills the
// child. The error of a child that ctx ended wraps ctx's.
func (c child) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.env, c.dir, c.stdin, c.log, c.log
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = killAfter
	if c.hold != nil {
		cmd.ExtraFiles = []*os.File{c.hold}
	}
	// The kernel ties the death signal to the thread that forked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", c.args[0], err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		endGroup(ctx, cmd.Process.Pid, done)
	}()
	err := cmd.Wait()
	close(done)
	<-ended
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
		return ctx.Err()
	}
	return err
}

func endGroup(ctx context.Context, pgid int, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	_ = syscall.Kill(-pgid, syscall.SIGTERM)
	t := time.NewTimer(killAfter)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
	}
}

// output runs the child and returns what it prints, at most 1 MiB of it.
func (c child) output(ctx context.Context) (string, error) {
	t := &tail{keep: 1 << 20}
	c.log = t
	err := c.run(ctx)
	return t.text(), err
}

// A tail keeps the last bytes that were written to it, and passes all of them on.
type tail struct {
	to   io.Writer // may be nil
	keep int

	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if len(t.data) > 2*t.keep {
		t.data = append([]byte(nil), t.data[len(t.data)-t.keep:]...)
	}
	if t.to == nil {
		return len(p), nil
	}
	return t.to.Write(p)
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ToValidUTF8(t.data[max(0, len(t.data)-t.keep):], []byte("?")))
}

// lastLine is the last line of a text that says something.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// each runs f for 0 to n-1 on several goroutines, and waits for all of them. The
// first error cancels the others and is returned.
func each(ctx context.Context, lanes, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range max(1, min(lanes, n)) {
		wg.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// exitCode is the status that a child ended with; -1 if it did not run to an end.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}
