package engines

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Batches are what one call of pip installs, and what is done again after a kill:
// a large package alone, small ones together.
const (
	batchBytes    = 64e6
	batchPackages = 40
)

// A batch is packages that are installed together.
type batch struct {
	packages []Package
	bytes    int64
}

// step is the batch's name in the journal, the same for the same packages.
func (b batch) step() string { return "packages " + short(digestOf(b.requirements())) }

func (b batch) requirements() string {
	var out strings.Builder
	for _, p := range b.packages {
		out.WriteString(p.requirement() + "\n")
	}
	return out.String()
}

// batches divides packages, the largest first: what takes longest begins first.
func batches(packages []Package) []batch {
	sorted := slices.Clone(packages)
	slices.SortStableFunc(sorted, func(a, b Package) int { return int(min(max(b.Bytes-a.Bytes, -1), 1)) })
	var out []batch
	for _, p := range sorted {
		last := len(out) - 1
		if last < 0 || out[last].bytes+p.Bytes > batchBytes || len(out[last].packages) >= batchPackages {
			out = append(out, batch{})
			last++
		}
		out[last].packages = append(out[last].packages, p)
		out[last].bytes += p.Bytes
	}
	return out
}

// A StepError is a step of an installation that failed. Its text is one line; the
// whole output is in the log file.
type StepError struct {
	Step   string // such as "install packages"
	Reason string // in words
	Log    string // path of the log file; "" if there is none
	Err    error
}

func (e *StepError) Error() string {
	text := e.Step + ": " + e.Reason
	if e.Log != "" {
		text += "; log: " + e.Log
	}
	return text
}

func (e *StepError) Unwrap() error { return e.Err }

// pip installs one batch. where says into what: nothing for the environment of
// python itself, or --target and a folder.
func (b *build) pip(ctx context.Context, python string, x batch, where ...string) error {
	tmp := filepath.Join(b.staging, "tmp", strings.ReplaceAll(x.step(), " ", "-"))
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "requirements.txt")
	if err := os.WriteFile(file, []byte(x.requirements()), 0o644); err != nil {
		return err
	}
	args := []string{
		python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off",
		"--no-deps", "--no-compile", "--no-cache-dir", "--ignore-installed", "--no-warn-script-location",
		"--root-user-action", "ignore", "--require-hashes", "--only-binary", ":all:", "--retries", "3",
	}
	args = append(append(args, where...), "-r", file)
	defer b.meter.begin(tmp, x.bytes)()
	return b.command(ctx, "install packages", pipReason, setEnv(b.env(), "TMPDIR", tmp), args...)
}

// pipFailures are what pip prints, and what it means. The first that is found
// counts: an index that cannot be reached also has no matching distribution.
var pipFailures = []struct {
	pattern *regexp.Regexp
	reason  string // %s is the pattern's group
}{
	{regexp.MustCompile(`No space left on device`), "the disk is full"},
	{regexp.MustCompile(`(?s)DO NOT MATCH THE HASHES.*?\n\s+([A-Za-z0-9._-]+==\S+)`), "the index has another file for %s than the one that the lock names"},
	{regexp.MustCompile(`(?:Retrying|after connection broken by) .*?(NameResolutionError|NewConnectionError|ConnectTimeoutError|ReadTimeoutError|SSLError|ProxyError|ProtocolError|Connection\w*Error)`), "the package index cannot be reached (%s): check the network, or pip's settings of index and proxy"},
	{regexp.MustCompile(`(NameResolutionError|NewConnectionError|ConnectTimeoutError|ReadTimeoutError|SSLError|ProxyError|ProtocolError|ConnectionError)`), "the package index cannot be reached (%s): check the network, or pip's settings of index and proxy"},
	{regexp.MustCompile(`HTTP error (\d+)`), "the package index answers with HTTP status %s"},
	{regexp.MustCompile(`No matching distribution found for ([A-Za-z0-9._-]+==[^\s()]+)`), "the package index does not have %s for this platform and Python"},
	{regexp.MustCompile(`Permission denied: '([^'\n]*)'`), "no permission to write %s"},
}

// pipReason puts what pip printed into words.
func pipReason(output string) string {
	for _, f := range pipFailures {
		m := f.pattern.FindStringSubmatch(output)
		switch {
		case m == nil:
		case strings.Contains(f.reason, "%s"):
			return fmt.Sprintf(f.reason, m[1])
		default:
			return f.reason
		}
	}
	return lastLine(output)
}

// A meter counts the bytes that pip has downloaded: those of finished batches, and
// of running ones what lies in their temporary folders, since pip does not tell.
type meter struct {
	mu      sync.Mutex
	done    int64
	running map[string]int64 // folder → bytes of the batch
}

// begin notes that a batch downloads into a folder; the function returned, that it
// is over.
func (m *meter) begin(folder string, bytes int64) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		m.running = map[string]int64{}
	}
	m.running[folder] = bytes
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.running, folder)
		m.done += bytes
	}
}

// add counts bytes that an earlier, killed call has downloaded.
func (m *meter) add(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += bytes
}

func (m *meter) read() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.done
	for folder, most := range m.running {
		n += min(most, wheelBytes(folder))
	}
	return n
}

func wheelBytes(folder string) int64 {
	var n int64
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".whl") {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// meterEvery is how often downloading is reported.
const meterEvery = 250 * time.Millisecond

// watch reports the meter until the function returned is called.
func (b *build) watch(words string, total int64) (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(meterEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				b.report(Progress{Step: words, Bytes: b.meter.read(), Total: total})
			}
		}
	}()
	return func() { close(done); <-over }
}

// packages installs all batches that the journal does not have, on two lanes:
// while one downloads, another unpacks.
func (b *build) packages(ctx context.Context, python string, all []batch) error {
	const lanes = 2
	var todo []batch
	var total int64
	for _, x := range all {
		total += x.bytes
		if b.journal.done[x.step()] {
			b.meter.add(x.bytes)
		} else {
			todo = append(todo, x)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	defer b.watch("packages", total)()
	var mu sync.Mutex
	err := each(ctx, lanes, len(todo), func(ctx context.Context, i int) error {
		if err := b.pip(ctx, python, todo[i]); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		return b.journal.finish(todo[i].step())
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
