package traces

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"conform/spec"
)

// cleanRaw makes sure that the parts of an event that are JSON already cannot
// break its line: each is one valid value without a line feed. What is not is
// left out, and so is an unknown field with a known name.
func cleanRaw(e *spec.Event) {
	if e.Hooks != nil {
		e.Hooks = compact(e.Hooks)
		if len(e.Hooks) > 0 && e.Hooks[0] != '{' {
			e.Hooks = nil
		}
	}
	if len(e.Extra) == 0 {
		return
	}
	known := spec.Fields(e.K)
	clean := make(map[string]json.RawMessage, len(e.Extra))
	for name, raw := range e.Extra {
		isKnown := slices.ContainsFunc(known, func(f spec.Field) bool { return f.Name == name })
		if raw = compact(raw); raw != nil && !isKnown && utf8.ValidString(name) {
			clean[name] = raw
		}
	}
	e.Extra = clean
}

func compact(raw json.RawMessage) json.RawMessage {
	if !utf8.Valid(raw) {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return nil
	}
	return b.Bytes()
}
