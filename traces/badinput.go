package traces

import (
	"errors"
	"fmt"
	"strconv"

	"conform/spec"
)

// BadInput says what in a trace is against TRACE.md, and where. Its JSON form is
// the error object of DESIGN.md.
type BadInput struct {
	// File is the base name of the file, "-" for standard input.
	File string `json:"file"`
	// Line is 1-based; 0 where the file as a whole is meant.
	Line     int    `json:"line"`
	Found    string `json:"found"`
	Expected string `json:"expected"`
}

func (e *BadInput) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: found %s, expected %s", e.File, e.Found, e.Expected)
	}
	return fmt.Sprintf("%s:%d: found %s, expected %s", e.File, e.Line, e.Found, e.Expected)
}

// at gives the error of one line its place.
func at(pos spec.Position, err error) error {
	var fe *spec.FieldError
	if errors.As(err, &fe) {
		return &BadInput{pos.File, pos.Line, fe.Found, fe.Expected}
	}
	return fmt.Errorf("%s:%d: %w", pos.File, pos.Line, err)
}

// bad is the shape in which the checks report; at adds the place.
func bad(expected, format string, args ...any) error {
	return &spec.FieldError{Found: fmt.Sprintf(format, args...), Expected: expected}
}

// quote shows a word of a trace, which may be as long as a line.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
