package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/pflag"
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
	file         string // where, "" if it is nowhere in a file
	line, column int    // from 1, 0 if unknown
	found        string
	expected     string
	try          string
	err          error
}

func (f *failure) Error() string {
	var b strings.Builder
	if f.file != "" {
		b.WriteString(f.file)
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

// asFailure finds out what an error of any package means for the user.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if f := knownFailure(err); f != nil {
		return f
	}
	if errors.Is(err, context.Canceled) {
		return &failure{status: statusHarness, found: "interrupted before there was a result", err: err}
	}
	return &failure{status: statusHarness, found: err.Error(), try: "conform doctor tells whether this machine is ready", err: err}
}

// unreadable is the failure to read a file that the user named.
func unreadable(path, expected string, err error) *failure {
	found := err.Error()
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		found = "cannot be read: " + pe.Err.Error()
	}
	return &failure{status: statusUsage, file: path, found: found, expected: expected, err: err}
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
		if near := nearest(name, names); near != "" {
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
}

// unknown is the failure of a name that is not in a list; where lists the names.
func unknown(what, name string, names []string, where string) *failure {
	f := usage(fmt.Sprintf("unknown %s %q", what, name), "one of "+strings.Join(names, ", "), "")
	if len(names) > 8 {
		f.expected = "a name that " + where + " shows"
	} else if where != "" {
		f.try = "see " + where
	}
	if near := nearest(name, names); near != "" {
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
