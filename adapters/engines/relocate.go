package engines

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxScriptBytes bounds the files that relocate looks into.
const maxScriptBytes = 1 << 20

// relocate replaces the staging folder's path by the final one in the scripts of a
// virtual environment, which name their interpreter. It may be called again.
func relocate(bin, from, to string) error {
	entries, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > maxScriptBytes {
			continue
		}
		path := filepath.Join(bin, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(data, 0) >= 0 || !bytes.Contains(data, []byte(from)) {
			continue
		}
		if err := writeFile(path, bytes.ReplaceAll(data, []byte(from), []byte(to))); err != nil {
			return err
		}
		if err := os.Chmod(path, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// sourceBytes is the size of the Python source in a tree, or in one file.
func sourceBytes(root string) int64 {
	var n int64
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".py") {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
