package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// FieldError says what is wrong with one line of a trace.
type FieldError struct {
	Found    string // what the line has
	Expected string // what TRACE.md asks for there
}

func (e *FieldError) Error() string { return fmt.Sprintf("found %s, expected %s", e.Found, e.Expected) }

// ParseEvent reads one line, without its line feed. Errors are of type
// *[FieldError]. It holds what one line alone can show; what needs several
// lines (sequence numbers, pools, pairs) is the reader's.
func ParseEvent(line []byte) (Event, error) {
	obj, err := parseObject(line)
	if err != nil {
		return Event{}, err
	}
	e := Event{}
	var k string
	if err := parseField(obj, must("k", TypeString), func(v any) { k = v.(string) }); err != nil {
		return e, err
	}
	table, ok := schema[Kind(k)]
	if !ok {
		return e, &FieldError{"k " + quote(k), "a kind of TRACE.md"}
	}
	e.K = Kind(k)
	_, hasT2 := obj["t2"]
	for _, group := range [2][]Field{commonFields, table} {
		for _, f := range group {
			if err := parseField(obj, f, func(v any) { e.set(f.Name, v) }); err != nil {
				return e, err
			}
			delete(obj, f.Name)
		}
	}
	e.Extra = obj
	if len(obj) == 0 {
		e.Extra = nil
	}
	return e, e.complete(hasT2)
}

// complete fills defaults and holds what involves two fields.
func (e *Event) complete(hasT2 bool) error {
	if e.Th == "" {
		e.Th = "main"
	}
	if !hasT2 {
		e.T2 = e.T
	}
	switch {
	case e.T2 < e.T:
		return &FieldError{fmt.Sprintf("t2 %d below t %d", e.T2, e.T), "t2 at or above t"}
	case e.K == KindBegin && e.Handoff == "" && e.Req == "":
		return &FieldError{"an access with neither handoff nor req", "a handoff or a req"}
	case e.K == KindExpire && e.Handoff == "" && e.Req == "":
		return &FieldError{"an expire with neither handoff nor req", "a handoff or a req"}
	case e.K == KindClockCmp && e.Hi < e.Lo:
		return &FieldError{fmt.Sprintf("lo %d above hi %d", e.Lo, e.Hi), "lo at or below hi"}
	}
	return nil
}

func parseObject(line []byte) (map[string]json.RawMessage, error) {
	trimmed := bytes.TrimSpace(line)
	switch {
	case len(trimmed) == 0:
		return nil, &FieldError{"a blank line", "one JSON object a line"}
	case line[len(line)-1] == '\r':
		return nil, &FieldError{"a line that ends in CR LF", "LF alone"}
	case !utf8.Valid(line):
		return nil, &FieldError{"bytes that are not UTF-8", "UTF-8"}
	}
	var obj map[string]json.RawMessage
	if err := json.Unmarshal(line, &obj); err != nil {
		return nil, &FieldError{"no JSON object: " + err.Error(), "one JSON object a line"}
	}
	if obj == nil {
		return nil, &FieldError{"null", "one JSON object a line"}
	}
	return obj, nil
}

func parseField(obj map[string]json.RawMessage, f Field, set func(any)) error {
	raw, ok := obj[f.Name]
	if !ok {
		if f.Required {
			return &FieldError{"no field " + quote(f.Name), "field " + quote(f.Name) + ", " + article(f.Type)}
		}
		return nil
	}
	v, err := parseValue(raw, f.Type)
	if err != nil {
		return &FieldError{fmt.Sprintf("%s: %s", quote(f.Name), shorten(raw)), err.Error()}
	}
	if s, isString := v.(string); isString && f.Enum != nil && !slices.Contains(f.Enum, s) {
		return &FieldError{fmt.Sprintf("%s: %s", quote(f.Name), shorten(raw)), fmt.Sprintf("one of %v", f.Enum)}
	}
	set(v)
	return nil
}

func parseValue(raw json.RawMessage, t FieldType) (any, error) {
	wrong := wrongType(t)
	switch t {
	case TypeString:
		var s string
		if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
			return nil, wrong
		}
		return s, nil
	case TypeInt:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return nil, wrong
		}
		return n, nil
	case TypeUint:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n < 0 || raw[0] == '-' {
			return nil, wrong
		}
		return n, nil
	case TypeBool:
		if s := string(raw); s == "true" || s == "false" {
			return s == "true", nil
		}
		return nil, wrong
	case TypeStrings:
		return parseStrings(raw, wrong)
	case TypeBlocks:
		return parseBlocks(raw)
	case TypeObject:
		if raw[0] != '{' {
			return nil, wrong
		}
		return raw, nil
	}
	return nil, fmt.Errorf("a known type, not %q", t)
}

// wrongType says which type was expected. Most fields are right, so its text is
// only made when it is asked for.
type wrongType FieldType

func (t wrongType) Error() string { return article(FieldType(t)) }

func parseStrings(raw json.RawMessage, wrong error) (any, error) {
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, wrong
	}
	list := make([]string, len(items))
	for i, it := range items {
		if it[0] != '"' || json.Unmarshal(it, &list[i]) != nil {
			return nil, wrong
		}
	}
	return list, nil
}

func article(t FieldType) string {
	if t == TypeInt || t == TypeUint {
		return "an " + map[FieldType]string{TypeInt: "integer", TypeUint: "integer from 0"}[t]
	}
	return "a " + string(t)
}

func quote(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return strconv.Quote(s)
}

func shorten(raw []byte) string {
	if len(raw) > 64 {
		return string(raw[:64]) + "…"
	}
	return string(raw)
}

// set stores a parsed value under the name that the kind gives it.
func (e *Event) set(name string, v any) {
	switch x := v.(type) {
	case string:
		e.SetString(name, x)
	case int64:
		e.SetInt(name, x)
	case bool:
		e.OK = &x
	case []string:
		if name == "workers" {
			e.Workers = x
			return
		}
		e.Accesses = x
	case Blocks:
		e.Blocks = x
	case json.RawMessage:
		e.Hooks = x
	}
}

// SetString stores a string or a word of an enumeration under the name that
// [Fields] gives it. It panics on a name that no kind has.
func (e *Event) SetString(name, v string) {
	*e.stringField(name) = v
	e.HasExp = e.HasExp || name == "expect"
}

// SetInt stores a number under the name that [Fields] gives it. It panics on a
// name that no kind has.
func (e *Event) SetInt(name string, v int64) {
	switch name {
	case "seq":
		e.Seq = uint64(v)
	case "need":
		e.Need = &v
	default:
		*e.intField(name) = v
	}
}

func (e *Event) stringField(name string) *string {
	switch name {
	case "src":
		return &e.Src
	case "th":
		return &e.Th
	case "k":
		return (*string)(&e.K)
	case "worker":
		return &e.Worker
	case "role":
		return (*string)(&e.Role)
	case "host":
		return &e.Host
	case "clock":
		return &e.Clock
	case "probe":
		return &e.Probe
	case "engine":
		return &e.Engine
	case "pool":
		return &e.Pool
	case "what":
		return &e.What
	case "holder":
		return &e.Holder
	case "req":
		return &e.Req
	case "handoff":
		return &e.Handoff
	case "why":
		return &e.Why
	case "by":
		return &e.By
	case "to":
		return &e.To
	case "mode":
		return &e.Mode
	case "access":
		return &e.Access
	case "target":
		return &e.Target
	case "via":
		return &e.Via
	case "sig":
		return &e.Sig
	case "signal":
		return &e.Signal
	case "claims":
		return (*string)(&e.Claims)
	case "asks":
		return &e.Asks
	case "stage":
		return &e.Stage
	case "unit":
		return &e.Unit
	case "prompt":
		return &e.Prompt
	case "outcome":
		return (*string)(&e.Result)
	case "side":
		return &e.Side
	case "sum":
		return &e.Sum
	case "expect":
		return &e.Expect
	case "rule":
		return &e.Rule
	case "do":
		return &e.Do
	case "text":
		return &e.Text
	}
	panic("spec: the schema names a string field without a place: " + name)
}

func (e *Event) intField(name string) *int64 {
	switch name {
	case "t":
		return &e.T
	case "t2":
		return &e.T2
	case "pid":
		return &e.PID
	case "blocks", "count":
		return &e.Count
	case "bytes":
		return &e.Bytes
	case "limit":
		return &e.Limit
	case "status":
		return &e.Status
	case "n":
		return &e.N
	case "after":
		return &e.After
	case "part":
		return &e.Part
	case "ms":
		return &e.MS
	case "code":
		return &e.Code
	case "signal_no":
		return &e.SignalNo
	case "lo":
		return &e.Lo
	case "hi":
		return &e.Hi
	case "events":
		return &e.Events
	}
	panic("spec: the schema names an integer field without a place: " + name)
}

// AppendJSON appends the event as one line of a trace, without a line feed.
// Optional fields with zero values are left out. It writes only the fields that
// the kind has, in the order of [Fields], then the unknown ones that were read.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"src":`...)
	dst = appendString(dst, e.Src)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = append(dst, `,"t":`...)
	dst = strconv.AppendInt(dst, e.T, 10)
	if e.T2 > e.T {
		dst = append(dst, `,"t2":`...)
		dst = strconv.AppendInt(dst, e.T2, 10)
	}
	if e.Th != "" && e.Th != "main" {
		dst = append(dst, `,"th":`...)
		dst = appendString(dst, e.Th)
	}
	dst = append(dst, `,"k":`...)
	dst = appendString(dst, string(e.K))
	for _, f := range schema[e.K] {
		dst = e.appendField(dst, f)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Extra)) {
		dst = appendName(dst, name)
		dst = append(dst, e.Extra[name]...)
	}
	return append(dst, '}')
}

func (e *Event) appendField(dst []byte, f Field) []byte {
	switch f.Type {
	case TypeString:
		if s := *e.stringField(f.Name); s != "" || f.Required || f.Name == "expect" && e.HasExp {
			dst = appendString(appendName(dst, f.Name), s)
		}
	case TypeInt, TypeUint:
		if f.Name == "need" {
			if e.Need != nil {
				dst = strconv.AppendInt(appendName(dst, f.Name), *e.Need, 10)
			}
			break
		}
		if n := *e.intField(f.Name); n != 0 || f.Required {
			dst = strconv.AppendInt(appendName(dst, f.Name), n, 10)
		}
	case TypeBool:
		if e.OK != nil {
			dst = strconv.AppendBool(appendName(dst, f.Name), *e.OK)
		}
	case TypeStrings:
		list := e.Accesses
		if f.Name == "workers" {
			list = e.Workers
		}
		if list != nil || f.Required {
			dst = appendStrings(appendName(dst, f.Name), list)
		}
	case TypeBlocks:
		if e.Blocks != nil || f.Required {
			dst = e.Blocks.append(appendName(dst, f.Name))
		}
	case TypeObject:
		if e.Hooks != nil {
			dst = append(appendName(dst, f.Name), e.Hooks...)
		}
	}
	return dst
}

// Value is what a field of the event's kind holds, nil where [Event.AppendJSON]
// leaves it out: a string, int64, bool, []string, [Blocks] or json.RawMessage.
// Fields that every kind has always hold something.
func (e *Event) Value(f Field) any {
	switch f.Name {
	case "seq":
		return int64(e.Seq)
	case "need":
		if e.Need != nil {
			return *e.Need
		}
		return nil
	}
	switch f.Type {
	case TypeString:
		if s := *e.stringField(f.Name); s != "" || f.Required || f.Name == "expect" && e.HasExp {
			return s
		}
	case TypeInt, TypeUint:
		if n := *e.intField(f.Name); n != 0 || f.Required || f.Name == "t2" {
			return n
		}
	case TypeBool:
		if e.OK != nil {
			return *e.OK
		}
	case TypeStrings:
		list := e.Accesses
		if f.Name == "workers" {
			list = e.Workers
		}
		if list != nil || f.Required {
			return list
		}
	case TypeBlocks:
		if e.Blocks != nil || f.Required {
			return e.Blocks
		}
	case TypeObject:
		if e.Hooks != nil {
			return e.Hooks
		}
	}
	return nil
}

func appendName(dst []byte, name string) []byte {
	dst = append(dst, ',')
	dst = appendString(dst, name)
	return append(dst, ':')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s)
	}
	return append(dst, ']')
}

func appendString(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a Go string always encodes
		panic(err)
	}
	return append(dst, b...)
}
