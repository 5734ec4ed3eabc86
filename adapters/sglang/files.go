package sglang

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"conform/adapters/engines/tinymodel"
)

//go:embed probe/conform_sglang_probe/*.py probe/conform_sglang_probe-1.dist-info/* serve/serve.py
var files embed.FS

// unpack writes the probe into a folder of the user's cache that is named by its
// content, and returns its place for PYTHONPATH. Bytecode is kept there too, so that
// each process does not compile it again.
func unpack(cache string) (string, error) {
	h := sha256.New()
	var paths []string
	err := fs.WalkDir(files, "probe", func(path string, d fs.DirEntry, err error) error {
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
		return "", err
	}
	dir := filepath.Join(cache, "probe-"+hex.EncodeToString(h.Sum(nil))[:16])
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return dir, nil
	}
	for _, path := range paths {
		if err := unpackFile(dir, path); err != nil {
			return "", err
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, "complete"), nil, 0o644)
}

func unpackFile(dir, path string) error {
	b, err := files.ReadFile(path)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel("probe", filepath.FromSlash(path))
	if err != nil {
		return err
	}
	to := filepath.Join(dir, rel)
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
