package check

import (
	"fmt"

	"conform/spec"
)

// BadTrace is the error for a trace whose program order, pool order, signals
// and clocks alone admit no order at all. It is bad input: nothing about the
// stack can be concluded from it.
type BadTrace struct {
	Pos      spec.Position // of one of the events that contradict
	Found    string
	Expected string
}

func (e *BadTrace) Error() string {
	return fmt.Sprintf("%s:%d: found %s, expected %s", e.Pos.File, e.Pos.Line, e.Found, e.Expected)
}

// LimitError is the error for a trace that would take more memory or time than
// a judge of untrusted input may spend.
type LimitError struct {
	What  string // what there is too much of
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the trace has too many %s: more than %d", e.What, e.Limit)
}
