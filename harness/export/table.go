package export

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"conform/spec"
)

// Column is one column of the table of events.
type Column struct {
	Name string
	// Type is [spec.TypeString], [spec.TypeInt] or [spec.TypeBool].
	Type spec.FieldType
	// Few is set where many rows share few values.
	Few bool
}

// The columns that are no field of TRACE.md.
const (
	columnWorker, columnRole, columnClock = "source_worker", "source_role", "source_clock"
	columnFirst, columnBlocks             = "first_block", "block_count"
	columnExtra                           = "extra"
)

// columnOf is the name and type of the column of a field.
func columnOf(f spec.Field) Column {
	c := Column{Name: f.Name, Type: spec.TypeString}
	switch f.Type {
	case spec.TypeInt, spec.TypeUint:
		c.Type = spec.TypeInt
		if f.Name == "blocks" {
			c.Name = "count"
		}
	case spec.TypeBool:
		c.Type = spec.TypeBool
	case spec.TypeStrings:
		if f.Name == "access" {
			c.Name = "accesses"
		}
	}
	switch c.Name {
	case "access", "sig", "by", "sum", "expect", "prompt", "text", "blocks", "accesses", "hooks":
	default:
		c.Few = c.Type == spec.TypeString
	}
	return c
}

// Columns lists the columns of a table of events, in their order.
func Columns() []Column {
	all := []Column{{columnWorker, spec.TypeString, true}, {columnRole, spec.TypeString, true}, {columnClock, spec.TypeString, true}}
	for _, k := range spec.Kinds() {
		for _, f := range spec.Fields(k) {
			c := columnOf(f)
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
			if f.Type == spec.TypeBlocks && !slices.Contains(all, Column{columnFirst, spec.TypeInt, false}) {
				all = append(all, Column{columnFirst, spec.TypeInt, false}, Column{columnBlocks, spec.TypeInt, false})
			}
		}
	}
	return append(all, Column{columnExtra, spec.TypeString, false})
}

// table makes the row of each event.
type table struct {
	columns []Column
	at      map[string]int // of a column, by its name
	kinds   map[spec.Kind][]placed
	origins origins
	row     []any // nil, a string, an int64 or a bool
}

// placed is a field, and the place of its column.
type placed struct {
	field  spec.Field
	column int
}

func newTable() *table {
	t := &table{columns: Columns(), at: map[string]int{}, kinds: map[spec.Kind][]placed{}, origins: origins{}}
	for i, c := range t.columns {
		t.at[c.Name] = i
	}
	for _, k := range spec.Kinds() {
		for _, f := range spec.Fields(k) {
			t.kinds[k] = append(t.kinds[k], placed{f, t.at[columnOf(f).Name]})
		}
	}
	t.row = make([]any, len(t.columns))
	return t
}

// fill makes the row of an event, which is valid until the next one.
func (t *table) fill(e *spec.Event) []any {
	clear(t.row)
	whose := t.origins.of(e)
	t.row[t.at[columnWorker]], t.row[t.at[columnRole]], t.row[t.at[columnClock]] = whose.worker, string(whose.role), whose.clock
	for _, p := range t.kinds[e.K] {
		switch v := e.Value(p.field).(type) {
		case spec.Blocks:
			t.row[p.column] = v.String()
			if len(v) > 0 {
				t.row[t.at[columnFirst]], t.row[t.at[columnBlocks]] = v[0].First, v.Len()
			}
		case []string:
			t.row[p.column] = asJSON(v)
		case json.RawMessage:
			t.row[p.column] = string(v)
		default:
			t.row[p.column] = v
		}
	}
	if len(e.Extra) > 0 {
		t.row[t.at[columnExtra]] = extraOf(e)
	}
	return t.row
}

// asJSON is a list of strings as a trace writes it.
func asJSON(list []string) string {
	b, err := json.Marshal(list)
	if err != nil {
		panic("export: strings always encode: " + err.Error())
	}
	return string(b)
}

// extraOf is an object of the fields that this version does not know, by name.
func extraOf(e *spec.Event) string {
	b := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(e.Extra)) {
		if i > 0 {
			b = append(b, ',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			panic("export: strings always encode: " + err.Error())
		}
		b = append(append(append(b, quoted...), ':'), e.Extra[name]...)
	}
	return string(append(b, '}'))
}

// text is a value of a row as CSV writes it.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}
