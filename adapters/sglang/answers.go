package sglang

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

// answers are the reference answers of one build and model. They are kept in one
// file, which is replaced whole.
type answers struct {
	path string

	mu    sync.Mutex
	known map[string][]int32 // by digest of the prompt: the longest answer that was taken
}

// maxAnswerFile bounds the file, in bytes; a larger one is begun anew.
const maxAnswerFile = 64 << 20

// openAnswers reads what is known of a build on a device, and a model; a file that
// can't be read counts as none.
func openAnswers(dir, version, device, model string) *answers {
	a := &answers{path: filepath.Join(dir, version+"-"+device+"-"+model[:16]+".json")}
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

func promptKey(prompt []int32) string {
	b := make([]byte, 0, 4*len(prompt))
	for _, t := range prompt {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// get gives n tokens, nil if so many are not known.
func (a *answers) get(prompt []int32, n int) []int32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.known[promptKey(prompt)]
	if len(known) < n {
		return nil
	}
	return known[:n:n]
}

// missing are the prompts whose answers are not known in full.
func (a *answers) missing(prompts []adapters.Prompt) []adapters.Prompt {
	return slices.DeleteFunc(slices.Clone(prompts), func(p adapters.Prompt) bool { return a.get(p.Tokens, p.Output) != nil })
}

func (a *answers) put(prompt, tokens []int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key := promptKey(prompt); len(tokens) > len(a.known[key]) {
		a.known[key] = tokens
	}
}

// save replaces the file. What another run has saved meanwhile is kept, but for what
// comes between the reading and the renaming: that is taken again one day.
func (a *answers) save() error {
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

// Baseline takes the answers that are not known yet, from one worker of the same
// build that no fault reaches and that does the whole request itself.
func (a *Adapter) Baseline(ctx context.Context, cfg adapters.Config, prompts []adapters.Prompt) error {
	a.mu.Lock()
	open := a.launcher != nil
	a.mu.Unlock()
	if !open {
		return errNotOpen
	}
	// What no worker can serve has no right answer.
	fit := slices.DeleteFunc(slices.Clone(prompts), func(p adapters.Prompt) bool {
		return len(p.Tokens)+p.Output > limitsOf(cfg.Limits).ContextTokens-intakeMargin
	})
	missing := a.answers.missing(fit)
	if len(missing) == 0 {
		return nil
	}
	s := newStack(a, cfg)
	process, port, err := a.baselineWorker(ctx, cfg, s)
	if err != nil {
		return err
	}
	for _, p := range missing {
		if a.answers.get(p.Tokens, p.Output) != nil {
			continue // it was among them twice
		}
		if err = a.take(ctx, s, port, p); err != nil {
			break
		}
	}
	_ = process.Kill()
	select {
	case <-process.Done():
	case <-time.After(10 * time.Second):
		err = errors.Join(err, errors.New("the worker for reference answers does not end"))
	}
	return errors.Join(err, a.answers.save())
}

func (a *Adapter) baselineWorker(ctx context.Context, cfg adapters.Config, s *stack) (*launch.Process, int, error) {
	taken, err := freePorts(2)
	if err != nil {
		return nil, 0, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, 0, err
	}
	w := worker{id: "baseline", ranks: 1, ports: ports{http: taken[0], nccl: taken[1]}}
	cfg.Env, cfg.Limits.AbortTimeout = nil, 0
	env := append(a.env.Environ(os.Environ(), a.probe), w.environment(cfg, a.temp)...)
	variable, err := patched(w.id, cfg)
	if err != nil {
		return nil, 0, err
	}
	p, err := a.launcher.Start(ctx, launch.Spec{
		Worker: w.id, Argv: baselineArgv(cfg, a.model, w.ports), Env: append(env, variable), Dir: a.temp,
		Log: filepath.Join(dir, "logs", w.id+".log"), Ready: readyText, Failed: failedTexts,
	})
	return p, w.ports.http, err
}

// take asks for one answer.
func (a *Adapter) take(ctx context.Context, s *stack, port int, p adapters.Prompt) error {
	body := generateBody{ID: "b-" + promptKey(p.Tokens)[:8], InputIDs: p.Tokens, Sampling: greedy(p.Output)}
	answer, err := s.leg(ctx, local(port), body, 0)
	if err != nil {
		return err
	}
	if answer.Status != http.StatusOK || len(answer.Tokens) != p.Output {
		return fmt.Errorf("a prompt of %d tokens was answered with status %d and %d tokens, expected %d", len(p.Tokens), answer.Status, len(answer.Tokens), p.Output)
	}
	a.answers.put(p.Tokens, answer.Tokens)
	return nil
}
