package promela

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"conform/spec"
	"conform/spec/explore"
)

//go:embed handoff.pml
var model []byte

const modelFile = "handoff.pml"

// Config is one variant of the model at one scope.
type Config struct {
	Mode      explore.Mode
	Blocks    int // 1 or 2
	Requests  int // 1 or 2
	Loss      bool
	Doubles   int // messages that may be doubled
	Crashes   int // workers that may crash
	Without   string
	Want      spec.RuleID // the only rule that counts; empty for all
	Shortest  bool        // breadth first: the trail is as short as can be, at more memory
	MaxMemory int         // MiB that the checker may take; default 2000
}

// Stats is what SPIN counted.
type Stats struct {
	States      int
	Transitions int
	// Broken says that a run breaks a rule that counts; its trail is in the folder.
	Broken bool
}

// ErrIncomplete says that the checker did not visit every state: it ran out of
// memory or depth.
var ErrIncomplete = errors.New("promela: not every state was visited")

// Missing names the programs that a run needs and that are not there.
func Missing() []string {
	var out []string
	for _, name := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(name); err != nil {
			out = append(out, name)
		}
	}
	return out
}

// defines are the macros that select the variant.
func (c Config) defines() ([]string, error) {
	num := func(name string, n int) string { return "-D" + name + "=" + strconv.Itoa(n) }
	loss := 0
	if c.Loss {
		loss = 1
	}
	out := []string{
		num("BLOCKS", c.Blocks), num("REQUESTS", c.Requests), num("LOSS", loss), num("DOUBLES", c.Doubles), num("CRASHES", c.Crashes),
	}
	if c.Mode == explore.Pull {
		out = append(out, "-DPULL")
	}
	if c.Without != "" {
		macro := "NO_" + strings.ReplaceAll(strings.ToUpper(c.Without), "-", "_")
		if !bytes.Contains(model, []byte(macro)) {
			return nil, fmt.Errorf("promela: the model has no guard %q", c.Without)
		}
		out = append(out, "-D"+macro)
	}
	if c.Want != "" {
		i := slices.IndexFunc(spec.Rules(), func(r spec.Rule) bool { return r.ID == c.Want })
		if i < 0 {
			return nil, fmt.Errorf("promela: no rule %q", c.Want)
		}
		out = append(out, num("WANT", 1<<i))
	}
	return out, nil
}

// Verify checks the variant in dir, an empty folder, and leaves the checker and
// a trail, if there is one, there. ctx bounds it. Errors: a program that is
// missing or fails, [ErrIncomplete], the context's.
func Verify(ctx context.Context, dir string, c Config) (Stats, error) {
	defines, err := c.defines()
	if err != nil {
		return Stats{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, modelFile), model, 0o600); err != nil {
		return Stats{}, fmt.Errorf("promela: %w", err)
	}
	if _, err := command(ctx, dir, "spin", append([]string{"-a"}, append(defines, modelFile)...)...); err != nil {
		return Stats{}, err
	}
	memory := c.MaxMemory
	if memory == 0 {
		memory = 2000
	}
	flags := []string{"-O2", "-w", "-DSAFETY", "-DNOFAIR", "-DCOLLAPSE", fmt.Sprintf("-DMEMLIM=%d", memory), "-o", "pan", "pan.c"}
	if c.Requests == 1 || c.Shortest || c.Without != "" {
		flags[0] = "-O0" // a small search takes less time than the compiler's
	}
	if c.Shortest {
		flags[4] = "-DBFS"
	}
	if _, err := command(ctx, dir, "gcc", flags...); err != nil {
		return Stats{}, err
	}
	pan := []string{"-E", "-m100000"}
	if memory > 4000 {
		pan = append(pan, "-w26") // slots for as many states as then fit
	}
	out, err := command(ctx, dir, filepath.Join(dir, "pan"), pan...)
	if err != nil {
		return Stats{}, err
	}
	return parseStats(out)
}

var (
	statesLine      = regexp.MustCompile(`(?m)^ *([\d.e+]+) states, stored`)
	transitionsLine = regexp.MustCompile(`(?m)^ *([\d.e+]+) transitions`)
	errorsLine      = regexp.MustCompile(`errors: (\d+)`)
)

// parseStats reads what a checker prints. One that did not finish says so.
func parseStats(out []byte) (Stats, error) {
	number := func(re *regexp.Regexp) int {
		m := re.FindSubmatch(out)
		if m == nil {
			return -1
		}
		n, err := strconv.ParseFloat(string(m[1]), 64) // from a hundred million on it writes 1.0e+08
		if err != nil {
			return -1
		}
		return int(n)
	}
	s := Stats{States: number(statesLine), Transitions: number(transitionsLine), Broken: number(errorsLine) > 0}
	if s.States < 0 || s.Transitions < 0 || number(errorsLine) < 0 {
		return s, fmt.Errorf("promela: no counts in what the checker says:\n%s", out)
	}
	incomplete := bytes.Contains(out, []byte("Warning: Search not completed")) || bytes.Contains(out, []byte("max search depth too small"))
	if incomplete && !s.Broken {
		return s, fmt.Errorf("%w:\n%s", ErrIncomplete, out)
	}
	return s, nil
}

// Trail follows the trail that [Verify] left in dir, and gives its trace.
func Trail(ctx context.Context, dir string, c Config) (*spec.Trace, error) {
	defines, err := c.defines()
	if err != nil {
		return nil, err
	}
	out, err := command(ctx, dir, "spin", append([]string{"-t"}, append(defines, modelFile)...)...)
	if err != nil {
		return nil, err
	}
	return Convert(c, bytes.NewReader(out))
}

// command runs one program in dir and returns what it prints.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("promela: %s: %w\n%s", filepath.Base(name), err, out)
	}
	return out, nil
}
