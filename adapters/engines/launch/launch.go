package launch

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is the error of a start on a launcher that was closed, or whose server
// process has ended.
var ErrClosed = errors.New("the launcher is closed")

// A Launcher starts the workers of one engine environment. It may be used by many
// goroutines at once. Close must be called.
type Launcher interface {
	// Start starts a worker and waits until it serves. The error is a *StartError,
	// or wraps ErrClosed; then nothing of the worker is left, or ctx was over.
	Start(ctx context.Context, s Spec) (*Process, error)
	// Describe is a command line for a shell that starts the same worker.
	Describe(s Spec) string
	// Close ends all workers, waits until they are gone, and ends the launcher.
	// It may be called again.
	Close() error
}

// A Spec is a worker to start.
type Spec struct {
	Worker string     // its name, such as prefill-0
	Argv   []string   // arguments behind the module
	Env    []string   // NAME=VALUE pairs, all of its environment; of a name the last counts
	Dir    string     // its working directory; "" is this program's
	Log    string     // a path: what it prints; a file that is there is emptied
	Ready  string     // a text in the log that means: it serves; "" where it serves once it runs
	Failed []string   // texts in the log that mean: it will not
	OnExit func(Exit) // told once, of a worker that Start returned, before Done closes, so it must not wait for Done or call Close; may be nil
}

// An Exit is how a worker ended.
type Exit struct {
	Worker   string
	Code     int    // the exit status of its main process, 0 if a signal ended it
	SignalNo int    // the signal that did, or 0
	Expected bool   // Kill, Expect or Close came first
	Part     string // the process that ended first and took the worker along, or ""
	Log      string // the last lines of its log
}

// String says in words how the worker ended, without its log.
func (e Exit) String() string {
	how := fmt.Sprintf("ended with status %d", e.Code)
	if e.SignalNo != 0 {
		how = fmt.Sprintf("was ended by signal %d", e.SignalNo)
	}
	if e.Part != "" {
		how += ", after its process " + e.Part + " had ended"
	}
	return "worker " + e.Worker + " " + how
}

// A StartError is a worker that did not come to serve.
type StartError struct {
	Worker string
	Path   string // of its log
	Log    string // the last lines of it
	Err    error  // why: an *ExitError, a *FailedError, that of the context or of the system
}

func (e *StartError) Error() string {
	text := strings.TrimSpace(e.Log)
	if text == "" {
		return fmt.Sprintf("worker %s did not start: %v; its log %s is empty", e.Worker, e.Err, e.Path)
	}
	return fmt.Sprintf("worker %s did not start: %v; the end of its log %s:\n%s", e.Worker, e.Err, e.Path, text)
}

func (e *StartError) Unwrap() error { return e.Err }

// An ExitError is a worker that ended before it served.
type ExitError struct{ Exit Exit }

func (e *ExitError) Error() string { return strings.TrimPrefix(e.Exit.String(), "worker ") }

// A FailedError is a worker whose log says that it will not serve.
type FailedError struct{ Text string } // the text of Spec.Failed that the log holds

func (e *FailedError) Error() string { return fmt.Sprintf("its log says %q", e.Text) }
