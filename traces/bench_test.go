package traces_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/traces"
)

// benchTrace is a trace of n handoffs with events of usual size.
func benchTrace(n int) ([]byte, int) {
	var b bytes.Buffer
	seq, t := 0, 0
	add := func(format string, args ...any) {
		fmt.Fprintf(&b, `{"src":"decode-0-4711","seq":%d,"t":%d,`, seq, 91827364500000+t)
		fmt.Fprintf(&b, format, args...)
		b.WriteString("}\n")
		seq++
		t += 1700
	}
	add(`"k":"source","worker":"d0","role":"decode","host":"h0","clock":"mono-0123abcd"`)
	add(`"k":"pool","pool":"kv","blocks":4096,"what":"kv"`)
	for i := range n {
		add(`"k":"alloc","pool":"kv","blocks":[[%d,%d]],"holder":"req-%d","req":"req-%d","handoff":"room-%d"`, i%4000, i%4000+7, i, i, i)
		add(`"k":"begin","access":"d0-a%d","mode":"r","target":"d0","pool":"kv","blocks":[[%d,%d]],"handoff":"room-%d","req":"req-%d","via":"tcp"`, i, i%4000, i%4000+7, i, i)
		add(`"k":"end","access":"d0-a%d","ok":true`, i)
		add(`"k":"emit","sig":"d0-s%d","signal":"STATUS","handoff":"room-%d","req":"req-%d","to":"p0","claims":"completed"`, i, i, i)
		add(`"k":"free","pool":"kv","blocks":[[%d,%d]],"holder":"req-%d","req":"req-%d","handoff":"room-%d","why":"done"`, i%4000, i%4000+7, i, i, i)
	}
	return b.Bytes(), seq
}

func BenchmarkRead(b *testing.B) {
	text, events := benchTrace(10_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		got, err := traces.Read("-", bytes.NewReader(text))
		if err != nil || len(got.Events) != events {
			b.Fatal(err, len(got.Events))
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkRecord(b *testing.B) {
	w, err := traces.Create(b.TempDir(), "P", traces.WriterOptions{BufferBytes: 1 << 30})
	require.NoError(b, err)
	e := spec.Event{
		K: spec.KindAlloc, Pool: "kv", Blocks: spec.MakeBlocks(4, 5, 6, 9), Holder: "req-1", Req: "req-1", Handoff: "room-1",
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Record(e)
	}
	require.NoError(b, w.Close())
}
