package tinymodel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The shape of the model.
const (
	Vocabulary   = 1024 // token ids are below it
	Layers       = 2
	Heads        = 2 // of attention, and as many of keys and values
	HeadSize     = 32
	Hidden       = Heads * HeadSize
	Intermediate = 128
	MaxPositions = 4096 // prompt and answer together, in tokens

	// FirstToken is the least id that a prompt should use: those below it begin and
	// end texts.
	FirstToken = 3

	// KVBytesPerToken is what one token takes in a KV pool: a key and a value for
	// each head of each layer, 4 bytes a number.
	KVBytesPerToken = Layers * 2 * Heads * HeadSize * 4
)

// Seed is the seed to use where nothing asks for another.
const Seed = 7

// The names of the files in a model's folder.
const (
	configName  = "config.json"
	weightsName = "model.safetensors"
)

// config is config.json, as engines read it.
type config struct {
	Architectures   []string `json:"architectures"`
	ModelType       string   `json:"model_type"`
	HiddenSize      int      `json:"hidden_size"`
	Intermediate    int      `json:"intermediate_size"`
	Layers          int      `json:"num_hidden_layers"`
	Heads           int      `json:"num_attention_heads"`
	KVHeads         int      `json:"num_key_value_heads"`
	HeadSize        int      `json:"head_dim"`
	Vocabulary      int      `json:"vocab_size"`
	MaxPositions    int      `json:"max_position_embeddings"`
	NormEpsilon     float64  `json:"rms_norm_eps"`
	RopeTheta       float64  `json:"rope_theta"`
	Activation      string   `json:"hidden_act"`
	TieEmbeddings   bool     `json:"tie_word_embeddings"`
	AttentionBias   bool     `json:"attention_bias"`
	MLPBias         bool     `json:"mlp_bias"`
	DType           string   `json:"torch_dtype"`
	BeginOfSentence int      `json:"bos_token_id"`
	EndOfSentence   int      `json:"eos_token_id"`
}

// A tensor is one matrix of weights, or a vector of ones.
type tensor struct {
	name  string
	shape []int
	scale float64 // standard deviation; 0 for ones
}

func (t tensor) size() int {
	n := 1
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// The scales. With weaker queries and keys every token looks at all pages alike,
// and the mean of many hardly moves; with stronger ones it looks at few.
const (
	scaleEmbedding = 1.0
	scaleQueryKey  = 0.2
	scaleValueOut  = 0.5
	scaleMLP       = 0.3
	scaleHead      = 0.2
)

// tensors are all tensors of the model, by name.
func tensors() []tensor {
	out := []tensor{
		{"lm_head.weight", []int{Vocabulary, Hidden}, scaleHead},
		{"model.embed_tokens.weight", []int{Vocabulary, Hidden}, scaleEmbedding},
		{"model.norm.weight", []int{Hidden}, 0},
	}
	for l := range Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		out = append(out,
			tensor{p + "input_layernorm.weight", []int{Hidden}, 0},
			tensor{p + "post_attention_layernorm.weight", []int{Hidden}, 0},
			tensor{p + "self_attn.q_proj.weight", []int{Hidden, Hidden}, scaleQueryKey},
			tensor{p + "self_attn.k_proj.weight", []int{Hidden, Hidden}, scaleQueryKey},
			tensor{p + "self_attn.v_proj.weight", []int{Hidden, Hidden}, scaleValueOut},
			tensor{p + "self_attn.o_proj.weight", []int{Hidden, Hidden}, scaleValueOut},
			tensor{p + "mlp.gate_proj.weight", []int{Intermediate, Hidden}, scaleMLP},
			tensor{p + "mlp.up_proj.weight", []int{Intermediate, Hidden}, scaleMLP},
			tensor{p + "mlp.down_proj.weight", []int{Hidden, Intermediate}, scaleMLP},
		)
	}
	slices.SortFunc(out, func(a, b tensor) int { return strings.Compare(a.name, b.name) })
	return out
}

// weights draws the numbers of one tensor. Each tensor has its own stream.
func (t tensor) weights(seed uint64) []float32 {
	out := make([]float32, t.size())
	if t.scale == 0 {
		for i := range out {
			out[i] = 1
		}
		return out
	}
	h := fnv.New64a()
	h.Write([]byte(t.name))
	random := rand.NewPCG(seed, h.Sum64())
	for i := range out {
		out[i] = float32(normal(random) * t.scale)
	}
	return out
}

// normal is nearly normally distributed, with mean 0 and variance 1: the sum of
// twelve uniform numbers. All of it is exact, so no machine rounds it otherwise;
// logarithms and cosines are not the same everywhere.
func normal(random rand.Source) float64 {
	const draws, top = 12, 1<<16 - 1
	var sum int64
	for range draws / 4 {
		for r, i := random.Uint64(), 0; i < 4; i++ {
			sum += int64(r & top)
			r >>= 16
		}
	}
	return float64(2*sum-draws*top) / (2 * (top + 1))
}

// safetensors writes all tensors in that format: the length of a JSON header, the
// header, and the numbers, little-endian.
func safetensors(seed uint64) ([]byte, error) {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var data []byte
	for _, t := range tensors() {
		begin := len(data)
		for _, w := range t.weights(seed) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(w))
		}
		header[t.name] = entry{"F32", t.shape, [2]int{begin, len(data)}}
	}
	head, err := json.Marshal(header) // keys in order
	if err != nil {
		return nil, err
	}
	for len(head)%8 != 0 {
		head = append(head, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return slices.Concat(out, head, data), nil
}

// files are the contents of the model's folder.
func files(seed uint64) (map[string][]byte, error) {
	c, err := json.MarshalIndent(config{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", HiddenSize: Hidden, Intermediate: Intermediate,
		Layers: Layers, Heads: Heads, KVHeads: Heads, HeadSize: HeadSize, Vocabulary: Vocabulary, MaxPositions: MaxPositions,
		NormEpsilon: 1e-5, RopeTheta: 10000, Activation: "silu", DType: "float32", BeginOfSentence: 1, EndOfSentence: 2,
	}, "", " ")
	if err != nil {
		return nil, err
	}
	w, err := safetensors(seed)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{configName: append(c, '\n'), weightsName: w}, nil
}

// digest is the sha256 in hex of what sha256sum prints for the files, by name.
func digest(files map[string][]byte) string {
	all := sha256.New()
	for _, name := range []string{configName, weightsName} {
		fmt.Fprintf(all, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return hex.EncodeToString(all.Sum(nil))
}

// Digest is the digest of the model of a seed: the sha256, in hex, of what
// `sha256sum config.json model.safetensors` prints in its folder.
func Digest(seed uint64) (string, error) {
	f, err := files(seed)
	if err != nil {
		return "", err
	}
	return digest(f), nil
}

// ErrOther is a folder that is there already and holds something else.
var ErrOther = errors.New("the folder is there already and holds something else than this model")

// Write writes the model of a seed into a new folder, whole or not at all, and
// returns its [Digest]. A folder that holds that model already is left alone, also
// if another process is writing it now; for one that holds anything else the error
// wraps [ErrOther].
func Write(folder string, seed uint64) (string, error) {
	content, err := files(seed)
	if err != nil {
		return "", err
	}
	sum := digest(content)
	if err := holds(folder, content); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return sum, err
	}
	parent := filepath.Dir(filepath.Clean(folder))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("model: %w", err)
	}
	staging, err := os.MkdirTemp(parent, "."+filepath.Base(folder)+"-")
	if err != nil {
		return "", fmt.Errorf("model: %w", err)
	}
	defer os.RemoveAll(staging)
	for name, data := range content {
		if err := writeSynced(filepath.Join(staging, name), data); err != nil {
			return "", fmt.Errorf("model: %w", err)
		}
	}
	if err := os.Chmod(staging, 0o755); err != nil {
		return "", fmt.Errorf("model: %w", err)
	}
	_ = os.Remove(folder) // an empty one
	if err := os.Rename(staging, folder); err != nil {
		if holds(folder, content) == nil { // somebody else was faster
			return sum, nil
		}
		return "", fmt.Errorf("model: %w", err)
	}
	return sum, nil
}

// holds reports whether a folder has exactly these contents. The error is
// fs.ErrNotExist if there is no folder, or an empty one.
func holds(folder string, content map[string][]byte) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fs.ErrNotExist
	}
	for name, want := range content {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err != nil || len(entries) != len(content) || !bytes.Equal(got, want) {
			return fmt.Errorf("%s: %w", folder, ErrOther)
		}
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
