package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"conform/harness"
)

// The test binary is the program: testscript calls it by the name conform, and
// it executes itself again for the workers of the reference stack.
func TestMain(m *testing.M) {
	if workerMain() {
		return
	}
	testscript.Main(m, map[string]func(){"conform": main, "stubborn": stubborn, "measured": measured})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":  statusCommand,
			"refuses": refusesCommand,
			"chomp":   chompCommand,
		},
		// [adapter:NAME]: this build has that adapter.
		Condition: func(cond string) (bool, error) {
			name, ok := strings.CutPrefix(cond, "adapter:")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			_, has := harness.AdapterByName(name)
			return has, nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("NO_COLOR", "")
			rules, err := filepath.Abs("../../spec/rules")
			env.Setenv("RULES", rules)
			return err
		},
	})
}

// statusCommand is: status N PROGRAM ARGS. The program must end with status N.
func statusCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, expected %d", got, want)
	}
}

// refusesCommand is: refuses N PROGRAM ARGS. The program must end with status N
// and say why in exactly one line.
func refusesCommand(ts *testscript.TestScript, neg bool, args []string) {
	statusCommand(ts, neg, args)
	said := ts.ReadFile("stderr")
	if strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "conform: ") {
		ts.Fatalf("expected one line that begins with conform: on standard error")
	}
}

// chompCommand is: chomp FILE. It takes the last line feed off, as a crash would.
func chompCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: chomp FILE")
	}
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path, []byte(strings.TrimSuffix(ts.ReadFile(path), "\n")), 0o644))
}
