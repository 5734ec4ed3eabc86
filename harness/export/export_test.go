package export_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"conform/harness/export"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

const race = "../../traces/testdata/cases/blk2_free_while_write_open.jsonl"

func eventsOf(t testing.TB, path string) export.Events {
	return func(each func(*spec.Event) error) error {
		_, err := traces.Walk(t.Context(), path, nil, each)
		return err
	}
}

// goodTraces are the cases that can be read.
func goodTraces(t testing.TB) map[string]*spec.Trace {
	t.Helper()
	paths, err := filepath.Glob("../../traces/testdata/cases/*.jsonl")
	require.NoError(t, err)
	all := map[string]*spec.Trace{}
	for _, path := range paths {
		if tr, err := traces.Read(path, nil); err == nil {
			all[path] = tr
		}
	}
	require.Greater(t, len(all), 50)
	return all
}

// Every field of every event of the cases is in its column, and nothing else is.
func TestTablesHoldEveryField(t *testing.T) {
	for path, tr := range goodTraces(t) {
		var out bytes.Buffer
		require.NoError(t, export.CSV(&out, eventsOf(t, path)))
		rows, err := csv.NewReader(&out).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 1+len(tr.Events), path)
		for i := range tr.Events {
			e := &tr.Events[i]
			got := map[string]string{}
			for j, v := range rows[i+1] {
				if v != "" {
					got[rows[0][j]] = v
				}
			}
			var line map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(e.AppendJSON(nil), &line))
			for name, raw := range line {
				column := name
				switch {
				case name == "blocks" && e.K == spec.KindPool:
					column = "count"
				case name == "access" && e.K == spec.KindEmit:
					column = "accesses"
				}
				if _, extra := e.Extra[name]; extra {
					require.Contains(t, got["extra"], string(raw), path)
					continue
				}
				want := string(raw)
				if raw[0] == '"' {
					require.NoError(t, json.Unmarshal(raw, &want))
				}
				require.Equal(t, want, got[column], "%s %s of %v", path, name, e.ID())
				delete(got, column)
			}
			for _, known := range []string{"source_worker", "source_role", "source_clock", "first_block", "block_count", "t2", "th", "extra"} {
				delete(got, known)
			}
			require.Empty(t, got, "%s %v", path, e.ID())
		}
	}
}

func TestParquetIsTheSameTable(t *testing.T) {
	var table, file, again bytes.Buffer
	require.NoError(t, export.CSV(&table, eventsOf(t, race)))
	require.NoError(t, export.Parquet(&file, eventsOf(t, race)))
	require.NoError(t, export.Parquet(&again, eventsOf(t, race)))
	require.Equal(t, file.Bytes(), again.Bytes())
	want, err := csv.NewReader(&table).ReadAll()
	require.NoError(t, err)
	f, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	require.NoError(t, err)
	var names []string
	for _, c := range f.Schema().Columns() {
		names = append(names, c[0])
	}
	require.Equal(t, want[0], names)
	rows := make([]parquet.Row, len(want))
	reader := parquet.NewReader(f)
	n, _ := reader.ReadRows(rows)
	require.Equal(t, len(want)-1, n)
	for i, row := range rows[:n] {
		for j, v := range row {
			got := ""
			if !v.IsNull() {
				got = v.String()
			}
			require.Equal(t, want[i+1][j], got, "%s of row %d", names[j], i)
		}
	}
}

// DuckDB finds the double use of a block, by SQL over the exported file.
func TestParquetInDuckDB(t *testing.T) {
	python := os.Getenv("CONFORM_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import duckdb").Run(); err != nil {
		t.Skip("no Python with duckdb: CONFORM_PYTHON names one")
	}
	path := filepath.Join(t.TempDir(), "events.parquet")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, export.Parquet(f, eventsOf(t, race)))
	require.NoError(t, f.Close())
	tr, err := traces.Read(race, nil)
	require.NoError(t, err)
	out, err := exec.Command(python, "-c", `import duckdb, sys
db = duckdb.connect()
print(db.execute("select count(*) from read_parquet(?)", [sys.argv[1]]).fetchone()[0])
print(db.execute("""select count(*) from read_parquet(?) b join read_parquet(?) f on f.k = 'free' and f.first_block = b.first_block
  left join read_parquet(?) e on e.k = 'end' and e.access = b.access
  where b.k = 'begin' and f.t > b.t and (e.t is null or e.t > f.t)""", [sys.argv[1]] * 3).fetchone()[0])
`, path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, []string{fmt.Sprint(len(tr.Events)), "1"}, strings.Fields(string(out)))
}

// traceType is the published schema of a Perfetto trace.
func traceType(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	packed, err := os.ReadFile("testdata/perfetto_trace.proto.zst")
	require.NoError(t, err)
	d, err := zstd.NewReader(nil)
	require.NoError(t, err)
	defer d.Close()
	text, err := d.DecodeAll(packed, nil)
	require.NoError(t, err)
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"perfetto_trace.proto": string(text)}),
	})}
	files, err := c.Compile(context.Background(), "perfetto_trace.proto")
	require.NoError(t, err)
	return files[0].Messages().ByName("Trace")
}

// drawn is a timeline read back with the published schema.
type drawn struct {
	tracks map[uint64]string // names, with those of their parents
	events []drawnEvent
}

type drawnEvent struct {
	at          uint64
	kind        string
	track, name string
	flows, ends []uint64
}

func readBack(t *testing.T, schema protoreflect.MessageDescriptor, b []byte) drawn {
	t.Helper()
	m := dynamicpb.NewMessage(schema)
	require.NoError(t, proto.Unmarshal(b, m))
	d := drawn{tracks: map[uint64]string{}}
	get := func(m protoreflect.Message, name string) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
	}
	packets := get(m, "packet").List()
	for i := range packets.Len() {
		p := packets.Get(i).Message()
		require.Empty(t, p.GetUnknown())
		require.EqualValues(t, 1, get(p, "trusted_packet_sequence_id").Uint())
		if tr := get(p, "track_descriptor").Message(); tr.IsValid() {
			require.Empty(t, tr.GetUnknown())
			id := get(tr, "uuid").Uint()
			require.NotContains(t, d.tracks, id)
			name := get(tr, "name").String()
			if parent := get(tr, "parent_uuid").Uint(); parent != 0 {
				require.Contains(t, d.tracks, parent, "a parent is declared first")
				name = d.tracks[parent] + " / " + name
			}
			d.tracks[id] = name
			continue
		}
		e := get(p, "track_event").Message()
		require.True(t, e.IsValid())
		require.Empty(t, e.GetUnknown())
		kind := e.Descriptor().Fields().ByName("type")
		one := drawnEvent{
			at: get(p, "timestamp").Uint(), kind: string(kind.Enum().Values().ByNumber(e.Get(kind).Enum()).Name()),
			track: d.tracks[get(e, "track_uuid").Uint()], name: get(e, "name").String(),
		}
		require.NotEmpty(t, one.track, "a track is declared before its events")
		for j, list := 0, get(e, "flow_ids").List(); j < list.Len(); j++ {
			one.flows = append(one.flows, list.Get(j).Uint())
		}
		for j, list := 0, get(e, "terminating_flow_ids").List(); j < list.Len(); j++ {
			one.ends = append(one.ends, list.Get(j).Uint())
		}
		d.events = append(d.events, one)
	}
	return d
}

// Of every case: what is written is a trace by the published schema, its slices
// close in order, there is a slice for each lease and each access of a block, an
// arrow for each signal, and a mark for each finding.
func TestPerfettoReadsBack(t *testing.T) {
	schema := traceType(t)
	for path, tr := range goodTraces(t) {
		res, err := check.Judge(t.Context(), tr, check.Options{})
		if err != nil {
			continue // no order at all
		}
		check.Sign(res.Rules)
		var out, again bytes.Buffer
		require.NoError(t, export.Perfetto(&out, eventsOf(t, path), res), path)
		require.NoError(t, export.Perfetto(&again, eventsOf(t, path), res), path)
		require.Equal(t, out.Bytes(), again.Bytes())
		d := readBack(t, schema, out.Bytes())
		slicesWanted, arrows, marks := map[string]int{}, 0, 0
		worker := map[string]string{}
		marked := map[spec.EventID]int{}
		for i := range res.Rules {
			for _, f := range res.Rules[i].Findings {
				for _, id := range f.Events {
					marked[id]++
				}
			}
		}
		for i := range tr.Events {
			e := &tr.Events[i]
			marks += marked[e.ID()]
			switch e.K {
			case spec.KindSource:
				worker[e.Src] = e.Worker
			case spec.KindAlloc:
				for n := range e.Blocks.All {
					slicesWanted[fmt.Sprintf("%s / %s / %s %d", worker[e.Src], e.Pool, e.Pool, n)]++
				}
			case spec.KindBegin:
				for n := range e.Blocks.All {
					slicesWanted[fmt.Sprintf("%s / %s / %s %d / accesses", e.Target, e.Pool, e.Pool, n)]++
				}
			case spec.KindEmit:
				arrows++
			}
		}
		got := map[string]int{}
		for _, e := range d.events {
			switch {
			case e.kind == "TYPE_SLICE_BEGIN":
				got[e.track]++
			case e.track == "findings":
				marks--
			case len(e.flows) > 0 && !slices.Contains([]string{"fail", "unproven", "inconclusive"}, lastWord(e.name)):
				arrows--
			}
		}
		require.Equal(t, slicesWanted, got, path)
		require.Zero(t, arrows, path)
		require.Zero(t, marks, path)
	}
}

func lastWord(s string) string { return s[strings.LastIndexByte(s, ' ')+1:] }

// A free while a write is open is marked on the block's own track.
func TestPerfettoMarksTheBlock(t *testing.T) {
	tr, err := traces.Read(race, nil)
	require.NoError(t, err)
	res, err := check.Judge(t.Context(), tr, check.Options{})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, export.Perfetto(&out, eventsOf(t, race), res))
	d := readBack(t, traceType(t), out.Bytes())
	on := map[string]bool{}
	for _, e := range d.events {
		if e.name == "BLK-2 fail" {
			on[e.track] = true
		}
	}
	require.True(t, on["findings"])
	require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(on)), func(s string) bool { return strings.Count(s, " / ") == 2 }), "%v", on)
}

// A line can name more blocks than a picture holds.
func TestPerfettoIsBounded(t *testing.T) {
	var limit *export.LimitError
	err := export.Perfetto(&bytes.Buffer{}, func(each func(*spec.Event) error) error {
		if err := each(&spec.Event{Src: "s", K: spec.KindSource, Worker: "w", Role: spec.RoleDecode, Clock: "c"}); err != nil {
			return err
		}
		return each(&spec.Event{Src: "s", Seq: 1, K: spec.KindAlloc, Pool: "kv", Blocks: spec.Blocks{{First: 0, Last: 1 << 60}}, Holder: "h"})
	}, nil)
	require.ErrorAs(t, err, &limit)
}
