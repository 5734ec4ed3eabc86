package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"conform/faults/failpoint"
)

// A Stillness remembers since when the same things have been in flight in a stack. The
// zero value is ready.
type Stillness struct {
	mu    sync.Mutex
	load  string
	since time.Time
}

// Idle asks each recorder what its worker holds; legs are requests whose answer has not
// come. What has not changed for longer than any clock of the stack runs (patience) will
// not change any more: it is held, not in flight.
func (s *Stillness) Idle(ctx context.Context, probes *failpoint.Server, legs int64, patience time.Duration) (bool, string, error) {
	if probes == nil {
		return false, "", errors.New("nobody can say what is in flight: the stack was started without a failpoint server")
	}
	askCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	loads, err := probes.Loads(askCtx)
	if err != nil {
		return false, "", err
	}
	var busy []string
	for worker, l := range loads {
		if l.Leased > 0 || l.Open > 0 {
			busy = append(busy, fmt.Sprintf("%s: %d blocks held by requests, %d accesses open", worker, l.Leased, l.Open))
		}
	}
	if legs > 0 {
		busy = append(busy, fmt.Sprintf("%d legs are not answered", legs))
	}
	if len(busy) == 0 {
		return true, "", nil
	}
	slices.Sort(busy)
	text := strings.Join(busy, "; ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != s.load {
		s.load, s.since = text, time.Now()
	}
	return time.Since(s.since) > patience, text, nil
}

// Served is what the probes' hooks did, by source, as they left it below a run directory
// when they sealed.
func Served(dir string) map[string]any {
	served := map[string]any{}
	names, _ := filepath.Glob(filepath.Join(dir, "hooks", "*.json"))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		var v any
		if json.Unmarshal(b, &v) == nil {
			served[strings.TrimSuffix(filepath.Base(name), ".json")] = v
		}
	}
	return served
}

// Probed makes sure that a worker's probe records each of its sources: a stack without
// its recorder would pass for want of evidence.
func Probed(dir, worker string, sources ...string) error {
	// The file comes first: a recorder may have failed after it had made its source.
	word, failed := os.ReadFile(filepath.Join(dir, "probe-"+worker+".error"))
	why := "it left no word why"
	if failed == nil {
		why = strings.TrimSpace(string(word))
	}
	for _, id := range sources {
		if _, err := os.Stat(filepath.Join(dir, "events", id+".jsonl")); err == nil && failed != nil {
			continue
		}
		return fmt.Errorf("the probe does not record in worker %s: %s; see the worker's log below %s", id, why, filepath.Join(dir, "logs"))
	}
	return nil
}
