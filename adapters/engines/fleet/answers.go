package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"conform/adapters"
	"conform/adapters/engines/launch"
)

// Answers are the reference answers of one build and model. They are kept in one
// file, which is replaced whole. Its methods may be called from many goroutines.
type Answers struct {
	path string

	mu    sync.Mutex
	known map[string][]int32 // by digest of the prompt: the longest answer that was taken
}

// maxAnswerFile bounds the file, in bytes; a larger one is begun anew.
const maxAnswerFile = 64 << 20

// OpenAnswers reads what is known of a build on a device, and a model; a file that
// can't be read counts as none.
func OpenAnswers(dir, version, device, model string) *Answers {
	a := &Answers{path: filepath.Join(dir, version+"-"+device+"-"+model[:16]+".json")}
	a.known = readAnswers(a.path)
	return a
}

// readAnswers gives an empty map for a file that is absent, too large or none of ours.
func readAnswers(path string) map[string][]int32 {
	none := map[string][]int32{}
	f, err := os.Open(path)
	if err != nil {
		return none
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxAnswerFile+1))
	if err != nil || len(b) > maxAnswerFile {
		return none
	}
	var known map[string][]int32
	if json.Unmarshal(b, &known) != nil || known == nil {
		return none
	}
	return known
}

// PromptKey is a digest of a prompt, in hex.
func PromptKey(prompt []int32) string {
	b := make([]byte, 0, 4*len(prompt))
	for _, t := range prompt {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Get gives n tokens, nil if so many are not known.
func (a *Answers) Get(prompt []int32, n int) []int32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.known[PromptKey(prompt)]
	if len(known) < n {
		return nil
	}
	return known[:n:n]
}

// Missing are the prompts whose answers are not known in full.
func (a *Answers) Missing(prompts []adapters.Prompt) []adapters.Prompt {
	return slices.DeleteFunc(slices.Clone(prompts), func(p adapters.Prompt) bool { return a.Get(p.Tokens, p.Output) != nil })
}

// Put notes an answer, unless a longer one is known.
func (a *Answers) Put(prompt, tokens []int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key := PromptKey(prompt); len(tokens) > len(a.known[key]) {
		a.known[key] = tokens
	}
}

// Save replaces the file. What another run has saved meanwhile is kept, but for what
// comes between the reading and the renaming: that is taken again one day.
func (a *Answers) Save() error {
	a.mu.Lock()
	for key, tokens := range readAnswers(a.path) {
		if len(tokens) > len(a.known[key]) {
			a.known[key] = tokens
		}
	}
	b, err := json.Marshal(a.known)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(a.path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(a.path), ".answers-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), a.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// endLimit is how long the worker for reference answers may take to end.
const endLimit = 10 * time.Second

// Take asks a worker of its own for the answers that are not known yet, and saves
// them. start starts the worker, only where one is needed; ask gives the answer to a
// prompt. The worker is ended in any case.
func (a *Answers) Take(ctx context.Context, prompts []adapters.Prompt, start func(context.Context) (*launch.Process, error), ask func(context.Context, adapters.Prompt) (adapters.Answer, error)) error {
	missing := a.Missing(prompts)
	if len(missing) == 0 {
		return nil
	}
	process, err := start(ctx)
	if err != nil {
		return err
	}
	for _, p := range missing {
		if a.Get(p.Tokens, p.Output) != nil {
			continue // it was among them twice
		}
		if err = a.take(ctx, p, ask); err != nil {
			break
		}
	}
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	return errors.Join(err, end(endCtx, process), a.Save())
}

func (a *Answers) take(ctx context.Context, p adapters.Prompt, ask func(context.Context, adapters.Prompt) (adapters.Answer, error)) error {
	answer, err := ask(ctx, p)
	if err != nil {
		return err
	}
	if answer.Status != http.StatusOK || len(answer.Tokens) != p.Output {
		return fmt.Errorf("a prompt of %d tokens was answered with status %d and %d tokens, expected %d", len(p.Tokens), answer.Status, len(answer.Tokens), p.Output)
	}
	a.Put(p.Tokens, answer.Tokens)
	return nil
}
