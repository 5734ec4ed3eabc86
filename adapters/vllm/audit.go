package vllm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"conform/adapters/engines/fleet"
	"conform/spec"
)

// Audit asks each worker itself what it holds, and says whether that is what its recorder
// counts: the metric vllm:kv_cache_usage_perc, and whether the prefix cache can be reset,
// which vLLM refuses while a block is held. It resets the cache where it can.
func (s *stack) Audit(ctx context.Context) ([]string, error) {
	loads, err := s.cfg.Probes.Loads(ctx)
	if err != nil {
		return nil, err
	}
	var notes []string
	for _, w := range s.Workers() {
		m, err := fleet.Find(s.members, w.ID)
		if err != nil {
			return notes, err
		}
		note, err := s.audit(ctx, m, loads[w.ID].Leased)
		if err != nil {
			return notes, fmt.Errorf("worker %s: %w", w.ID, err)
		}
		notes = append(notes, note)
	}
	return notes, nil
}

// staleFor is how long a metric may lag behind: it is written when the engine steps.
const staleFor = 3 * time.Second

func (s *stack) audit(ctx context.Context, m *member, leased int) (string, error) {
	blocks := s.limits.PrefillBlocks
	if m.worker.role == spec.RoleDecode {
		blocks = s.limits.DecodeBlocks
	}
	base := "http://" + fleet.Local(m.worker.ports.http)
	used, until := -1, time.Now().Add(staleFor)
	for {
		usage, err := s.usage(ctx, base)
		if err != nil {
			return "", err
		}
		used = int(math.Round(usage * float64(blocks-1))) // one block is nobody's
		if used == leased || !time.Now().Before(until) {
			break
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	reset, err := s.reset(ctx, base)
	if err != nil {
		return "", err
	}
	verdict := "agree"
	if used != leased || (reset == "true") != (leased == 0) && reset != "unsaid" {
		verdict = "DISAGREE"
	}
	return fmt.Sprintf("audit of %s: recorder and engine %s: %d blocks leased, %d in kv_cache_usage_perc, reset_prefix_cache %s",
		m.Name(), verdict, leased, used, reset), nil
}

// usage is the share of its pool that a worker says is in use.
func (s *stack) usage(ctx context.Context, base string) (float64, error) {
	body, err := s.ask(ctx, http.MethodGet, base+"/metrics")
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(body)))
	lines.Buffer(nil, len(body)+1)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "vllm:kv_cache_usage_perc{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("its metrics have no vllm:kv_cache_usage_perc")
}

// reset is whether the prefix cache could be reset: "true", "false", or "unsaid" by
// builds that answer without a body.
func (s *stack) reset(ctx context.Context, base string) (string, error) {
	body, err := s.ask(ctx, http.MethodPost, base+"/reset_prefix_cache")
	if err != nil || len(body) == 0 {
		return "unsaid", err
	}
	var answer struct{ Success bool }
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("POST /reset_prefix_cache: %w", err)
	}
	return strconv.FormatBool(answer.Success), nil
}

// maxSaid is as much of an answer as is read.
const maxSaid = 4 << 20

func (s *stack) ask(ctx context.Context, method, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, req.URL.Path, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxSaid))
}
