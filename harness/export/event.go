package export

import (
	"fmt"

	"conform/spec"
)

// Events gives each event of a trace to each, always in the same order; an event is
// valid until each returns. It returns the first error of each, or its own. It may
// be called several times.
type Events func(each func(*spec.Event) error) error

// LimitError says that a trace has too much of something to be drawn.
type LimitError struct {
	What  string
	Limit int
}

func (e *LimitError) Error() string { return fmt.Sprintf("more than %d %s", e.Limit, e.What) }

// origin is what the first line of a source says of all its events.
type origin struct {
	worker, clock string
	role          spec.Role
}

// origins knows the sources seen so far.
type origins map[string]origin

// of takes in an event and says whose it is.
func (o origins) of(e *spec.Event) origin {
	if e.K == spec.KindSource {
		o[e.Src] = origin{e.Worker, e.Clock, e.Role}
	}
	return o[e.Src]
}
