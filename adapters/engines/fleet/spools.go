package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CutSpools cuts the sources below a run directory at their first zero byte: a probe
// writes into room that it asked for in advance, and one that was killed left the rest
// of it. No process may write them any more. Sealed sources are left as they are.
func CutSpools(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "events", "*.jsonl"))
	if err != nil {
		return fmt.Errorf("find the sources below %s: %w", dir, err)
	}
	var errs []error
	for _, name := range names {
		if err := cutSpool(name); err != nil {
			errs = append(errs, fmt.Errorf("cut the room that is left in a source of a killed process: %w", err))
		}
	}
	return errors.Join(errs...)
}

func cutSpool(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil || last[0] != 0 {
		return err
	}
	part := make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := f.ReadAt(part, at)
		if i := bytes.IndexByte(part[:n], 0); i >= 0 {
			return f.Truncate(at + int64(i))
		}
		if err != nil {
			return err
		}
		at += int64(n)
	}
}
