package traces

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"conform/spec"
)

const (
	suffixPlain = ".jsonl"
	suffixZstd  = ".jsonl.zst"
	eventsDir   = "events"
)

// Read reads the trace at path: a run directory, a file, or "-" for stdin, within
// [DefaultLimits]. The events are in file order (in a run directory: the files in
// the order of their names), hence each source's in seq order.
//
// The error is a [*BadInput] where the trace is against TRACE.md, and otherwise
// wraps what the file system said.
func Read(path string, stdin io.Reader) (*spec.Trace, error) {
	return ReadLimited(path, stdin, DefaultLimits())
}

// ReadLimited is [Read] with other limits; a zero limit takes its default.
func ReadLimited(path string, stdin io.Reader, lim Limits) (*spec.Trace, error) {
	r := newReader(lim.orDefault())
	if err := r.path(path, stdin); err != nil {
		return nil, err
	}
	return r.finish()
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	if l.LineBytes > 0 {
		d.LineBytes = l.LineBytes
	}
	if l.TotalBytes > 0 {
		d.TotalBytes = l.TotalBytes
	}
	if l.Events > 0 {
		d.Events = l.Events
	}
	return d
}

func (r *reader) path(path string, stdin io.Reader) error {
	if path == "-" {
		if stdin == nil {
			return errors.New("read trace: no standard input")
		}
		return r.stream("-", stdin, false, false)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	if info.IsDir() {
		return r.runDir(path)
	}
	r.expect(path)
	return r.file(path, false)
}

// runDir reads manifest.json and one file for each source.
func (r *reader) runDir(dir string) error {
	m, err := ReadManifest(dir)
	if err != nil {
		return err
	}
	names, err := eventFiles(dir)
	if err != nil {
		return err
	}
	if err := verifyFiles(dir, names, m.Files); err != nil {
		return err
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(dir, eventsDir, name)
	}
	r.expect(paths...)
	for _, path := range paths {
		if err := r.file(path, true); err != nil {
			return err
		}
	}
	if m.cutShort() {
		r.loseUnsealed(dir)
	}
	return nil
}

// loseUnsealed notes that the recorders of a run that was killed may have had
// more to say: a missing seal alone is no loss, but there a writer's last
// interval of flushing is missing without a mark.
func (r *reader) loseUnsealed(dir string) {
	pos := spec.Position{File: filepath.Join(filepath.Base(dir), manifestName)}
	for _, name := range slices.Sorted(maps.Keys(r.sources)) {
		if s := r.sources[name]; !s.sealed && !s.lost {
			r.lose(s, s.next, pos, "the run was killed: its manifest has a start and no end, and what this source had not yet written is missing")
		}
	}
}

// eventFiles lists the base names of the files of a run directory that hold
// events, sorted. Anything but a regular file is refused: a pipe would block.
func eventFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, eventsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read run directory: %w", err)
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || stem(name) == name {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, eventsDir, name))
		if err != nil {
			return nil, fmt.Errorf("read run directory: %w", err)
		}
		if !info.Mode().IsRegular() {
			return nil, &BadInput{name, 0, "no regular file", "a file of events"}
		}
		names = append(names, name)
	}
	if len(names) > maxFiles {
		return nil, &BadInput{eventsDir, 0, fmt.Sprintf("%d files", len(names)), fmt.Sprintf("at most %d", maxFiles)}
	}
	slices.Sort(names)
	return names, nil
}

// stem is the name of an events file without its suffix.
func stem(name string) string {
	if s, ok := strings.CutSuffix(name, suffixZstd); ok {
		return s
	}
	return strings.TrimSuffix(name, suffixPlain)
}

func (r *reader) file(path string, oneSource bool) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	err = r.stream(filepath.Base(path), f, strings.HasSuffix(path, ".zst"), oneSource)
	if cerr := f.Close(); err == nil && cerr != nil {
		return fmt.Errorf("read trace: %w", cerr)
	}
	return err
}

// stream reads one file of events to its end, or to its first bad line.
func (r *reader) stream(name string, in io.Reader, zst, oneSource bool) error {
	plain, done, err := openLines(in, zst)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer done()
	lines := newLineScanner(plain, r.lim.LineBytes)
	f := &file{name: name, oneSource: oneSource}
	for pos := (spec.Position{File: name, Line: 1}); ; pos.Line++ {
		line, end, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLineLimit):
			err = bad(fmt.Sprintf("lines of at most %d bytes", r.lim.LineBytes), "a longer line")
		case err == nil:
			err = r.ended(f, pos, line, end)
		}
		if err != nil {
			return at(pos, err)
		}
		if end != endLF {
			return nil
		}
	}
}

// ended takes one line with what came after it.
func (r *reader) ended(f *file, pos spec.Position, line []byte, end ending) error {
	switch {
	case end == endLF, end == endFile && (isBlank(line) || json.Valid(line)):
		return r.line(f, pos, line)
	case end == endFile:
		return r.torn(f, pos, "a torn line")
	}
	if json.Valid(line) {
		if err := r.line(f, pos, line); err != nil {
			return err
		}
	}
	return r.torn(f, pos, errTornFrame.Error())
}

func isBlank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
