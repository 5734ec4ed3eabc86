package tinymodel

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines"
)

// The bytes of the default model, on every machine. A change of it changes every
// saved reference answer.
const goldenDigest = "bd8042b746fbc05a9adc8dbc81eb368558c3677032c54019ff4e64daee3cad5b"

func TestTheSameBytesEverywhere(t *testing.T) {
	got, err := Digest(Seed)
	require.NoError(t, err)
	require.Equal(t, goldenDigest, got)
	other, err := Digest(Seed + 1)
	require.NoError(t, err)
	require.NotEqual(t, got, other)
}

func TestWeightsAreReadBack(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "model")
	sum, err := Write(folder, Seed)
	require.NoError(t, err)
	require.Equal(t, goldenDigest, sum)

	var c map[string]any
	data, err := os.ReadFile(filepath.Join(folder, configName))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &c))
	require.Equal(t, "llama", c["model_type"])
	require.EqualValues(t, Vocabulary, c["vocab_size"])
	require.EqualValues(t, Heads*HeadSize, c["hidden_size"])
	require.Equal(t, false, c["tie_word_embeddings"])

	got := readSafetensors(t, filepath.Join(folder, weightsName))
	require.Len(t, got, 3+Layers*9)
	for _, want := range tensors() {
		g := got[want.name]
		require.Equal(t, want.shape, g.Shape, want.name)
		require.Equal(t, want.weights(Seed), g.weights, want.name)
		if want.scale == 0 {
			continue
		}
		var sum, squares float64
		for _, w := range g.weights {
			sum += float64(w)
			squares += float64(w) * float64(w)
		}
		n := float64(len(g.weights))
		require.InDelta(t, 0, sum/n/want.scale, 0.1, want.name)
		require.InDelta(t, 1, math.Sqrt(squares/n)/want.scale, 0.05, want.name)
	}
}

// stored is one tensor as a reader of the format sees it.
type stored struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
	weights []float32
}

// readSafetensors is written from the format's description, apart from the writer.
func readSafetensors(t *testing.T, path string) map[string]stored {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(data)
	require.Zero(t, n%8, "the numbers are aligned")
	var header map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data[8:8+n], &header))
	body := data[8+n:]
	require.JSONEq(t, `{"format":"pt"}`, string(header["__metadata__"]))
	delete(header, "__metadata__")
	out, covered := map[string]stored{}, 0
	for name, raw := range header {
		var s stored
		require.NoError(t, json.Unmarshal(raw, &s))
		require.Equal(t, "F32", s.DType)
		for b := body[s.Offsets[0]:s.Offsets[1]]; len(b) > 0; b = b[4:] {
			s.weights = append(s.weights, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
		size := 1
		for _, d := range s.Shape {
			size *= d
		}
		require.Len(t, s.weights, size, name)
		covered += s.Offsets[1] - s.Offsets[0]
		out[name] = s
	}
	require.Equal(t, len(body), covered, "no byte belongs to no tensor")
	return out
}

func TestWriteAgain(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "model")
	_, err := Write(folder, Seed)
	require.NoError(t, err)
	before, err := os.Stat(filepath.Join(folder, weightsName))
	require.NoError(t, err)
	_, err = Write(folder, Seed)
	require.NoError(t, err)
	after, err := os.Stat(filepath.Join(folder, weightsName))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the model was left alone")
	left, err := os.ReadDir(filepath.Dir(folder))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary folder is left")
}

func TestWriteIntoAnEmptyFolder(t *testing.T) {
	_, err := Write(t.TempDir(), Seed)
	require.NoError(t, err)
}

func TestWriteRefusesWhatIsNotTheModel(t *testing.T) {
	for name, spoil := range map[string]func(folder string) error{
		"another seed": func(folder string) error {
			_, err := Write(folder, Seed+1)
			return err
		},
		"a changed byte": func(folder string) error {
			if _, err := Write(folder, Seed); err != nil {
				return err
			}
			data, err := os.ReadFile(filepath.Join(folder, weightsName))
			if err != nil {
				return err
			}
			data[len(data)-1] ^= 1
			return os.WriteFile(filepath.Join(folder, weightsName), data, 0o644)
		},
		"a file too many": func(folder string) error {
			if _, err := Write(folder, Seed); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(folder, "tokenizer.json"), nil, 0o644)
		},
		"a file too few": func(folder string) error {
			if _, err := Write(folder, Seed); err != nil {
				return err
			}
			return os.Remove(filepath.Join(folder, configName))
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "model")
			require.NoError(t, spoil(folder))
			_, err := Write(folder, Seed)
			require.ErrorIs(t, err, ErrOther)
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := Write(file, Seed)
	require.Error(t, err)
	_, err = Write(filepath.Join(file, "model"), Seed)
	require.Error(t, err)
}

func TestManyWriteTheSameFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "model")
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = Write(folder, Seed) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	left, err := os.ReadDir(filepath.Dir(folder))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// A source of all zeros or all ones gives the ends of the distribution.
type constant uint64

func (c constant) Uint64() uint64 { return uint64(c) }

func TestNormalIsBoundedAndSymmetric(t *testing.T) {
	low, high := normal(constant(0)), normal(constant(math.MaxUint64))
	require.InDelta(t, 6, high, 1e-3)
	require.Equal(t, high, -low)
	require.NotEqual(t, normal(rand.NewPCG(1, 1)), normal(rand.NewPCG(1, 2)))
}

// pages is what testdata/pages.py found for one length of prompt.
type pages struct {
	Pages  int   `json:"pages"`
	Unseen []int `json:"unseen"`
	Kinds  int   `json:"kinds"`
	Answer []int `json:"answer"`
}

// exchangePages runs the model in an installed engine's torch.
func exchangePages(t *testing.T, e *engines.Environment, folder string) map[string]pages {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.Python, filepath.Join("testdata", "pages.py"), folder)
	cmd.Env = e.Environ(os.Environ())
	out, err := cmd.Output()
	require.NoError(t, err, "%v", cmd)
	var result map[string]pages
	require.NoError(t, json.Unmarshal(out, &result))
	require.Len(t, result, 4)
	return result
}

func TestEveryPageDecidesTheAnswer(t *testing.T) {
	e := installed(t)
	folder := filepath.Join(t.TempDir(), "model")
	_, err := Write(folder, Seed)
	require.NoError(t, err)
	for n, r := range exchangePages(t, e, folder) {
		require.Empty(t, r.Unseen, "with %s tokens, pages whose content does not matter", n)
		require.Greater(t, r.Kinds, 8, "with %s tokens the answer is no short cycle: %v", n, r.Answer)
	}
}

// A model without attention must not pass that test.
func TestPagesThatDecideNothingAreSeen(t *testing.T) {
	e := installed(t)
	folder := filepath.Join(t.TempDir(), "model")
	_, err := Write(folder, Seed)
	require.NoError(t, err)
	path := filepath.Join(folder, weightsName)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	body := data[8+binary.LittleEndian.Uint64(data):]
	for name, s := range readSafetensors(t, path) {
		if strings.HasSuffix(name, "o_proj.weight") {
			clear(body[s.Offsets[0]:s.Offsets[1]])
		}
	}
	require.NoError(t, os.WriteFile(path, data, 0o644))
	for _, r := range exchangePages(t, e, folder) {
		require.Len(t, r.Unseen, r.Pages)
	}
}

func installed(t *testing.T) *engines.Environment {
	t.Helper()
	var err error
	for _, r := range engines.Builtin().Recipes() {
		if r.Device() != engines.CPU {
			continue
		}
		var e *engines.Environment
		if e, err = engines.Find(t.Context(), r.Spec(), engines.CPU); err == nil {
			return e
		}
	}
	t.Skip(err)
	return nil
}
