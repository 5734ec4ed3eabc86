package engines

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A journal is the list of the finished steps of a staging folder, one a line. A
// line that a crash cut short names no step, and is not counted.
type journal struct {
	file *os.File
	done map[string]bool
}

// openJournal opens the journal of a staging folder, and makes both if need be.
func openJournal(staging string) (*journal, error) {
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(staging, "journal")
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	j := &journal{done: map[string]bool{}}
	whole := data[:strings.LastIndexByte(string(data), '\n')+1]
	lines := bufio.NewScanner(strings.NewReader(string(whole)))
	for lines.Scan() {
		j.done[lines.Text()] = true
	}
	if j.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	if err := j.file.Truncate(int64(len(whole))); err != nil {
		j.file.Close()
		return nil, err
	}
	_, err = j.file.Seek(0, 2)
	if err != nil {
		j.file.Close()
		return nil, err
	}
	return j, nil
}

// finish notes that a step is done. What the step wrote may still be in the
// kernel's cache; a crash of the whole machine is what Install's last check finds.
func (j *journal) finish(step string) error {
	if _, err := fmt.Fprintln(j.file, step); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.done[step] = true
	return nil
}

func (j *journal) close() { _ = j.file.Close() }
