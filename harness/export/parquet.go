package export

import (
	"io"
	"reflect"
	"strings"

	"github.com/parquet-go/parquet-go"

	"conform/spec"
)

const (
	// groupRows is how many rows are held before they are written: it bounds memory.
	groupRows = 32_768
	batchRows = 512
)

// Parquet writes one row for each event, with the columns of [Columns], all of them
// optional. It needs no seeking, and holds one row group at a time.
func Parquet(w io.Writer, events Events) error {
	t := newTable()
	out := parquet.NewGenericWriter[any](w, schemaOf(t.columns), parquet.Compression(&parquet.Zstd),
		parquet.MaxRowsPerRowGroup(groupRows), parquet.CreatedBy("conform", "", ""))
	rows := make([]parquet.Row, 0, batchRows)
	flush := func() error {
		_, err := out.WriteRows(rows)
		rows = rows[:0]
		return err
	}
	err := events(func(e *spec.Event) error {
		rows = append(rows, parquetRow(t.fill(e)))
		if len(rows) == batchRows {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return out.Close()
}

// schemaOf is a schema with the columns in their order: that of a structure keeps it.
func schemaOf(columns []Column) *parquet.Schema {
	types := map[spec.FieldType]reflect.Type{
		spec.TypeString: reflect.TypeFor[string](), spec.TypeInt: reflect.TypeFor[int64](), spec.TypeBool: reflect.TypeFor[bool](),
	}
	fields := make([]reflect.StructField, len(columns))
	for i, c := range columns {
		tag := c.Name + ",optional"
		if c.Few {
			tag += ",dict"
		}
		fields[i] = reflect.StructField{
			Name: strings.ToUpper(c.Name[:1]) + c.Name[1:], Type: types[c.Type], Tag: reflect.StructTag(`parquet:"` + tag + `"`),
		}
	}
	return parquet.NewSchema("event", parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Elem().Interface()))
}

func parquetRow(row []any) parquet.Row {
	out := make(parquet.Row, len(row))
	for i, v := range row {
		level := 1
		switch v := v.(type) {
		case string:
			out[i] = parquet.ByteArrayValue([]byte(v))
		case int64:
			out[i] = parquet.Int64Value(v)
		case bool:
			out[i] = parquet.BooleanValue(v)
		default:
			out[i], level = parquet.NullValue(), 0
		}
		out[i] = out[i].Level(0, level, i)
	}
	return out
}
