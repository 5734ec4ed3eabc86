package certify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"conform/harness"
)

// runFolder is what one conform run left: the folder on the disk, and where it lies
// in a certificate.
type runFolder struct {
	dir      string
	prefix   string // runs/0001
	attempts harness.Attempts
	text     []byte // of attempts.json
}

// ErrRun is wrapped by the error of a folder that no conform run made.
var ErrRun = errors.New("no folder of a run")

const (
	manifestFile     = "manifest.json"
	eventsFolder     = "events"
	maxAttemptsBytes = 1 << 20
)

// openRuns reads what the runs set out to do, in the order of their starts, whatever
// the order of the arguments. A run that is named twice counts once.
func openRuns(dirs []string) ([]runFolder, error) {
	var runs []runFolder
	for _, dir := range dirs {
		r, err := openRun(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if !slices.ContainsFunc(runs, func(o runFolder) bool { return sameFile(o.dir, dir) }) {
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b runFolder) int {
		return cmp.Or(a.attempts.Start.Compare(b.attempts.Start), bytes.Compare(a.text, b.text))
	})
	for i := range runs {
		if i > 0 && bytes.Equal(runs[i].text, runs[i-1].text) {
			return nil, fmt.Errorf("%s: %w of its own: it is a copy of %s", runs[i].dir, ErrRun, runs[i-1].dir)
		}
		runs[i].prefix = runPrefix(i)
	}
	return runs, nil
}

// runPrefix is where the ith run lies; the names of all have one length, so that
// their order is that of the numbers.
func runPrefix(i int) string { return fmt.Sprintf("runs/%04d", i+1) }

func sameFile(a, b string) bool {
	ia, err1 := os.Stat(a)
	ib, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(ia, ib)
}

func openRun(dir string) (runFolder, error) {
	r := runFolder{dir: dir}
	text, err := readBounded(filepath.Join(dir, harness.AttemptsFile), maxAttemptsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%w: it has no %s, which every conform run writes first", ErrRun, harness.AttemptsFile)
	} else if err != nil {
		return r, err
	}
	r.text = text
	if err := json.Unmarshal(text, &r.attempts); err != nil {
		return r, fmt.Errorf("%w: %s: %w", ErrRun, harness.AttemptsFile, err)
	}
	seen := map[string]bool{}
	for _, name := range r.attempts.Attempts {
		if seen[name] || !goodName(name) || strings.Contains(name, "/") {
			return r, fmt.Errorf("%w: %s lists %q", ErrRun, harness.AttemptsFile, name)
		}
		seen[name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return r, err
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), manifestFile)); err == nil && !seen[e.Name()] {
			return r, fmt.Errorf("%w: %s is an attempt that %s does not list", ErrRun, e.Name(), harness.AttemptsFile)
		}
	}
	return r, nil
}

// runMember is a file of a run that belongs into a certificate.
type runMember struct {
	name string // in the certificate
	path string // on the disk
}

// members lists what of the run belongs into a certificate: no logs, and nothing that
// a judge of its traces does not read.
func (r *runFolder) members() ([]runMember, error) {
	all := []runMember{{path.Join(r.prefix, harness.AttemptsFile), filepath.Join(r.dir, harness.AttemptsFile)}}
	for _, name := range r.attempts.Attempts {
		files, err := attemptFiles(filepath.Join(r.dir, name))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			m := runMember{path.Join(r.prefix, name, f), filepath.Join(r.dir, name, filepath.FromSlash(f))}
			if !goodName(m.name) {
				return nil, refuse(CodeMalformed, "", "no member can have the name %q", m.name)
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// attemptFiles are the manifest and the events of one attempt, none if it has not
// come to write any.
func attemptFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, eventsFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		name := e.Name()
		events := strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".jsonl.zst")
		if events && !strings.HasPrefix(name, ".") {
			files = append(files, path.Join(eventsFolder, name))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, manifestFile)); err == nil {
		files = append(files, manifestFile)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return files, nil
}
