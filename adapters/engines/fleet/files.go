package fleet

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

	"conform/adapters/engines/tinymodel"
)

// A Probe is the Python of a probe: the files of one or more trees, whose paths below
// the trees' roots are those below the folder that PYTHONPATH gets.
type Probe []fs.FS

// Below is a folder of embedded files, whose name is a constant of the caller's.
func Below(files embed.FS, folder string) fs.FS {
	tree, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // no valid path
	}
	return tree
}

// walk calls f with each file, in the order of the trees and of their paths.
func (p Probe) walk(f func(path string, content []byte) error) error {
	for _, tree := range p {
		err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := fs.ReadFile(tree, path)
			if err != nil {
				return err
			}
			return f(path, content)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Dir is the folder of a cache for the probe, named by its content.
func (p Probe) Dir(cache string) (string, error) {
	h := sha256.New()
	err := p.walk(func(path string, content []byte) error {
		fmt.Fprintf(h, "%s %d\n", path, len(content))
		h.Write(content)
		return nil
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "probe-"+hex.EncodeToString(h.Sum(nil))[:16]), nil
}

// Unpack writes the probe into its folder of the cache, whole or not at all, and
// returns it: its place in PYTHONPATH. Bytecode is kept there too, so that each
// process does not compile it again. What is there in part or altered is replaced.
func (p Probe) Unpack(cache string) (string, error) {
	dir, err := p.Dir(cache)
	if err != nil || p.held(dir) {
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
	err = p.walk(func(path string, content []byte) error {
		to := filepath.Join(staging, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o644)
	})
	if err != nil {
		return "", err
	}
	for range unpackTries {
		if err = os.Rename(staging, dir); err == nil || p.held(dir) { // or somebody else was faster
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

// errDiffers ends a walk.
var errDiffers = errors.New("it differs")

// held reports whether a folder has all of the probe's files as they are here.
func (p Probe) held(dir string) bool {
	return p.walk(func(path string, want []byte) error {
		got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil || !bytes.Equal(got, want) {
			return errDiffers
		}
		return nil
	}) == nil
}

// CacheDir is where an adapter keeps what outlives a run.
func CacheDir(adapter string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the probe, the model and the reference answers: %w", err)
	}
	return filepath.Join(cache, "conform", adapter), nil
}

// modelSeed is that of the built-in model.
const modelSeed = 1

// BuiltinModel is the folder of a cache for the model that an adapter brings.
func BuiltinModel(cache string) string {
	return filepath.Join(cache, fmt.Sprintf("model-%d", modelSeed))
}

// Model is the folder of the model to use, which is written if it is the built-in one
// (a path of ""), and a digest that names it. The error of a folder without weights
// wraps [ErrNoWeights].
func Model(cache, path string) (folder, digest string, err error) {
	if path == "" {
		folder = BuiltinModel(cache)
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
		return "", "", fmt.Errorf("%s is no model: %w", path, ErrNoWeights)
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

// ErrNoWeights is a model without weights.
var ErrNoWeights = errors.New("no *.safetensors in it")
