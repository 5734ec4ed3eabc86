package sglang

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"conform/adapters/engines/tinymodel"
)

//go:embed probe/conform_sglang_probe/*.py probe/conform_sglang_probe-1.dist-info/* serve/serve.py
var files embed.FS

// probeDir is the folder of the user's cache for the probe, named by its content,
// and the files that belong into it.
func probeDir(cache string) (dir string, paths []string, err error) {
	h := sha256.New()
	err = fs.WalkDir(files, "probe", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n", path, len(b))
		h.Write(b)
		paths = append(paths, path)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(cache, "probe-"+hex.EncodeToString(h.Sum(nil))[:16]), paths, nil
}

// unpack writes the probe into its folder of the user's cache, whole or not at all,
// and returns it: its place in PYTHONPATH. Bytecode is kept there too, so that each
// process does not compile it again. What is there in part or altered is replaced.
func unpack(cache string) (string, error) {
	dir, paths, err := probeDir(cache)
	if err != nil || holds(dir, paths) {
		return dir, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	staging, err := os.MkdirTemp(cache, ".probe-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(staging)
	if err := os.Chmod(staging, 0o755); err != nil {
		return "", err
	}
	for _, path := range paths {
		if err := unpackFile(staging, path); err != nil {
			return "", err
		}
	}
	for range unpackTries {
		if err = os.Rename(staging, dir); err == nil || holds(dir, paths) { // or somebody else was faster
			return dir, nil
		}
		torn := staging + ".torn"
		if err := os.Rename(dir, torn); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := os.RemoveAll(torn); err != nil {
			return "", err
		}
	}
	return "", err
}

// unpackTries is how often the folder is replaced while others replace it too.
const unpackTries = 10

// holds reports whether a folder has all of the probe's files as they are here.
func holds(dir string, paths []string) bool {
	for _, path := range paths {
		want, err := files.ReadFile(path)
		if err != nil {
			return false
		}
		got, err := os.ReadFile(unpacked(dir, path))
		if err != nil || !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

// unpacked is where a file of the probe lies below its folder.
func unpacked(dir, path string) string {
	return filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(path, "probe/")))
}

func unpackFile(dir, path string) error {
	b, err := files.ReadFile(path)
	if err != nil {
		return err
	}
	to := unpacked(dir, path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// cacheDir is where the adapter keeps what outlives a run.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the probe, the model and the reference answers: %w", err)
	}
	return filepath.Join(cache, "conform", "sglang"), nil
}

// modelSeed is that of the built-in model.
const modelSeed = 1

// modelOf is the folder of the model to use, and a digest that names it.
func modelOf(cache, path string) (folder, digest string, err error) {
	if path == "" {
		folder = filepath.Join(cache, fmt.Sprintf("model-%d", modelSeed))
		if err := os.MkdirAll(cache, 0o755); err != nil {
			return "", "", err
		}
		digest, err = tinymodel.Write(folder, modelSeed)
		return folder, digest, err
	}
	folder, err = filepath.Abs(path)
	if err != nil {
		return "", "", err
	}
	b, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		return "", "", fmt.Errorf("%s is no model: %w", path, err)
	}
	h := sha256.New()
	h.Write(b)
	weights, _ := filepath.Glob(filepath.Join(folder, "*.safetensors"))
	if len(weights) == 0 {
		return "", "", fmt.Errorf("%s is no model: %w", path, errNoWeights)
	}
	for _, w := range weights { // their sizes and times: a hash of gigabytes is not worth its time
		st, err := os.Stat(w)
		if err != nil {
			return "", "", err
		}
		fmt.Fprintf(h, "%s %d %d\n", filepath.Base(w), st.Size(), st.ModTime().UnixNano())
	}
	return folder, hex.EncodeToString(h.Sum(nil)), nil
}

var errNoWeights = errors.New("no *.safetensors in it")
