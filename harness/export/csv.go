package export

import (
	"encoding/csv"
	"io"

	"conform/spec"
)

// CSV writes one row for each event below a header with the names of [Columns], as
// RFC 4180 has it, but with lines that end in LF alone. A field that an event does
// not have is empty.
func CSV(w io.Writer, events Events) error {
	t := newTable()
	out := csv.NewWriter(w)
	line := make([]string, len(t.columns))
	for i, c := range t.columns {
		line[i] = c.Name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	err := events(func(e *spec.Event) error {
		for i, v := range t.fill(e) {
			line[i] = text(v)
		}
		return out.Write(line)
	})
	if err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}
