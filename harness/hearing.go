package harness

import (
	"context"
	"fmt"
	"sync"

	"conform/spec"
)

// maxHeard bounds what a play's log remembers; the oldest goes first.
const maxHeard = 1 << 16

// hearing is the log of all recorded events that the harness hears: its own, and
// those that workers hand over. It is bounded, and begins with the stack.
type hearing struct {
	mu     sync.Mutex
	events []spec.Event
	first  int           // how many have been forgotten
	more   chan struct{} // closed when the next comes
	role   map[string]spec.Role
	worker map[string]string
}

func newHearing() *hearing {
	return &hearing{more: make(chan struct{}), role: map[string]spec.Role{}, worker: map[string]string{}}
}

// hear takes one in. It never blocks. It may be called on a nil log.
func (h *hearing) hear(e *spec.Event) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.K == spec.KindSource {
		h.role[e.Src], h.worker[e.Src] = e.Role, e.Worker
	}
	if len(h.events) == maxHeard { // a new array: readers may still have the old one
		h.events = append(make([]spec.Event, 0, maxHeard), h.events[maxHeard/2:]...)
		h.first += maxHeard / 2
	}
	h.events = append(h.events, *e)
	close(h.more)
	h.more = make(chan struct{})
}

// since gives what was heard from the nth on, where the next is, and what is
// closed when there is more.
func (h *hearing) since(n int) (events []spec.Event, next int, more <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[max(n-h.first, 0):], h.first + len(h.events), h.more
}

// roleOf says the role of a source's worker, and that worker; "" if it has not
// been heard of.
func (h *hearing) roleOf(src string) (spec.Role, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.role[src], h.worker[src]
}

// await gives the first event, from the start of the log on, that f picks.
func (h *hearing) await(ctx context.Context, f func(*spec.Event) bool) (spec.Event, error) {
	for next, lost := 0, 0; ; {
		events, n, more := h.since(next)
		lost += max(n-len(events)-next, 0)
		for i := range events {
			if f(&events[i]) {
				return events[i], nil
			}
		}
		next = n
		select {
		case <-more:
		case <-ctx.Done():
			err := fmt.Errorf("the event did not come among %d that were heard: %w", n, ctx.Err())
			if lost > 0 {
				err = fmt.Errorf("%w (%d of them were forgotten before it was waited for)", err, lost)
			}
			return spec.Event{}, err
		}
	}
}
