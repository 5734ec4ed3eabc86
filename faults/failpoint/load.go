package failpoint

import (
	"context"
	"encoding/json"
	"fmt"
)

// Load is what a worker has in flight, by its own recording.
type Load struct {
	Leased int `json:"leased"` // blocks that a request holds, caches aside
	Open   int `json:"open"`   // accesses that have begun and not ended
}

// Loads asks every worker that can end its recording what it has in flight, and
// gives the answers by worker. An error is that of a worker that did not answer
// before ctx ended, or went away.
func (s *Server) Loads(ctx context.Context) (map[string]Load, error) {
	s.mu.Lock()
	var all []*session
	for w := range s.sessions {
		if w.seals {
			all = append(all, w)
		}
	}
	s.mu.Unlock()
	loads := make(map[string]Load, len(all))
	for _, w := range all {
		l, err := w.load(ctx)
		if err != nil {
			return nil, fmt.Errorf("failpoint: %s did not say what it has in flight: %w", w.worker, err)
		}
		loads[w.worker] = l
	}
	return loads, nil
}

// load asks one worker. One question is under way at a time.
func (w *session) load(ctx context.Context) (Load, error) {
	w.asking.Lock()
	defer w.asking.Unlock()
	select {
	case <-w.loads: // an answer that nobody waited for any more
	default:
	}
	if err := w.send(frame('I', nil)); err != nil {
		return Load{}, err
	}
	select {
	case l := <-w.loads:
		return l, nil
	case <-w.sealed:
		return Load{}, nil // it records no more, or is gone
	case <-ctx.Done():
		return Load{}, ctx.Err()
	}
}

// loaded takes a worker's answer in.
func (w *session) loaded(body []byte) error {
	var l Load
	if err := json.Unmarshal(body, &l); err != nil {
		return fmt.Errorf("failpoint: %w", err)
	}
	select {
	case w.loads <- l:
	default: // it was not asked
	}
	return nil
}
