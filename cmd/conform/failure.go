package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"conform/faults"
	"conform/harness"
	"conform/harness/report"
	"conform/internal/spelling"
	"conform/spec/check"
	"conform/traces"
)

// Exit statuses that no verdict gives.
const (
	statusUsage   = 3 // bad input or usage
	statusHarness = 4 // the harness or the engine failed
)

// failure is an error that ends a command. Its text is one line: what is wrong,
// where, what was expected, what to do.
type failure struct {
	status       int
	place        string // where, for a person: the path, or an option; "" if it is nowhere
	file         string // where, for a program: the base name of the file
	line, column int    // from 1, 0 if unknown
	found        string
	expected     string
	try          string
	err          error
}

func (f *failure) Error() string {
	var b strings.Builder
	if f.place != "" {
		b.WriteString(f.place)
		for _, n := range []int{f.line, f.column} {
			if n > 0 {
				fmt.Fprintf(&b, ":%d", n)
			}
		}
		b.WriteString(": ")
	}
	b.WriteString(f.found)
	if f.expected != "" {
		b.WriteString("; expected " + f.expected)
	}
	if f.try != "" {
		b.WriteString("; " + f.try)
	}
	return b.String()
}

func (f *failure) Unwrap() error { return f.err }

// usage is a failure of the command line.
func usage(found, expected, try string) *failure {
	return &failure{status: statusUsage, found: found, expected: expected, try: try}
}

// json is the failure for a program.
func (f *failure) json() report.Failure {
	return report.Failure{File: f.file, Line: f.line, Found: f.found, Expected: f.expected}
}

// asFailure finds out what an error of any package means for the user.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*harness.UsageError](err); ok {
		return &failure{status: statusUsage, place: e.Where, found: e.What, expected: e.Expected, try: e.Try, err: err}
	}
	if e, ok := errors.AsType[*faults.PlanError](err); ok {
		return &failure{
			status: statusUsage, place: e.File, file: filepath.Base(e.File), line: e.Line, column: e.Column,
			found: e.Found, expected: e.Expected, try: "docs/fault-plans.md tells how plans are written", err: err,
		}
	}
	if f := ofEngines(err); f != nil {
		return f
	}
	if errors.Is(err, context.Canceled) {
		return &failure{status: statusHarness, found: "interrupted before there was a result", err: err}
	}
	return &failure{status: statusHarness, found: err.Error(), try: "conform doctor tells whether this machine is ready", err: err}
}

// inTrace is the failure of a trace that is not what the format allows. Where the
// trace is not to blame, it is err itself.
func inTrace(path string, err error) error {
	f := &failure{status: statusUsage, err: err}
	if e, ok := errors.AsType[*traces.BadInput](err); ok {
		f.file, f.line, f.found, f.expected = e.File, e.Line, e.Found, e.Expected
	} else if e, ok := errors.AsType[*check.BadTrace](err); ok {
		f.file, f.line, f.found, f.expected = e.Pos.File, e.Pos.Line, e.Found, e.Expected
	} else if e, ok := errors.AsType[*check.LimitError](err); ok {
		f.place, f.file = path, filepath.Base(path)
		f.found, f.expected = "too many "+e.What, fmt.Sprintf("at most %d, so that judging ends in reasonable time", e.Limit)
		return f
	} else {
		return err
	}
	f.place = within(path, f.file)
	return f
}

// traceWords says what a trace may be.
const traceWords = "a run directory, a .jsonl or .jsonl.zst file, or -"

// unreadableTrace is the failure to read a trace.
func unreadableTrace(path string, err error) error {
	if f, ok := errors.AsType[*failure](inTrace(path, err)); ok {
		return f
	}
	f := unreadable(path, traceWords, err)
	if runs, _ := filepath.Glob(filepath.Join(path, "*", "manifest.json")); len(runs) > 0 && errors.Is(err, fs.ErrNotExist) {
		f.found = fmt.Sprintf("a folder of %d run directories, not one itself", len(runs))
		f.try = "name one, such as " + filepath.Dir(runs[0])
	}
	return f
}

// unreadable is the failure to read or write a file that the user named.
func unreadable(path, expected string, err error) *failure {
	f := &failure{
		status: statusUsage, place: path, file: filepath.Base(path), found: err.Error(), expected: expected, err: err,
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		f.found = pe.Err.Error()
		if pe.Path != path {
			f.found = pe.Path + ": " + f.found
		}
	}
	if path == "" {
		f.place = `""`
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		f.status, f.expected = statusHarness, "room to write it"
	}
	return f
}

// flagFailure puts the flag parser's errors into words.
func flagFailure(err error, flags *pflag.FlagSet, command string) *failure {
	f := usage(err.Error(), "", fmt.Sprintf("see %s --help", command))
	f.err = err
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := e.GetSpecifiedName()
		if e.GetSpecifiedShortnames() != "" {
			name = strings.TrimPrefix(name, "-")
			f.found = fmt.Sprintf("%s has no flag -%s", command, name)
			return f
		}
		f.found = fmt.Sprintf("%s has no flag --%s", command, name)
		var names []string
		flags.VisitAll(func(fl *pflag.Flag) {
			if !fl.Hidden {
				names = append(names, fl.Name)
			}
		})
		if near := spelling.Nearest(name, names); near != "" {
			f.try = fmt.Sprintf("did you mean --%s? (see %s --help)", near, command)
		}
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		f.found = fmt.Sprintf("--%s has no value", e.GetSpecifiedName())
		f.expected = "a value after it"
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f.found = fmt.Sprintf("--%s is %q", e.GetFlag().Name, e.GetValue())
		f.expected = valueWords[e.GetFlag().Value.Type()]
		if f.expected == "" {
			f.expected = "a value of type " + e.GetFlag().Value.Type()
		}
	}
	return f
}

var valueWords = map[string]string{
	"uint64": "a whole number from 0 to 18446744073709551615",
	"int":    "a whole number",
	"bool":   "true or false",

	"duration": "a time such as 90s or 2m",
}

// unknown is the failure of a name that is not in a list; where lists the names.
func unknown(what, name string, names []string, where string) *failure {
	f := usage(fmt.Sprintf("unknown %s %q", what, name), "one of "+strings.Join(names, ", "), "")
	if len(names) > 8 {
		f.expected = "a name that " + where + " shows"
	} else if where != "" {
		f.try = "see " + where
	}
	if near := spelling.Nearest(name, names); near != "" {
		f.try = fmt.Sprintf("did you mean %q?", near)
	}
	return f
}

// wantsJSON looks for --format json before any flag is parsed: the command line
// itself may be what is wrong.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--format=json":
			return true
		case arg == "--format" && i+1 < len(args) && args[i+1] == "json":
			return true
		}
	}
	return false
}
