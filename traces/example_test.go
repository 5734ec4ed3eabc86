package traces_test

import (
	"fmt"
	"os"

	"conform/spec"
	"conform/traces"
)

// A process records what happens to its blocks; anybody can read it afterwards.
func Example() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	now, clock := traces.Monotonic()
	w, err := traces.Create(dir, "decode-0", traces.WriterOptions{Clock: now})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Record(spec.Event{K: spec.KindSource, Worker: "d0", Role: spec.RoleDecode, Host: "h0", Clock: clock})
	w.Record(spec.Event{K: spec.KindPool, Pool: "kv", Count: 64, What: "kv"})
	w.Record(spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: spec.MakeBlocks(4, 5, 6, 9), Holder: "r1", Req: "r1"})
	if err := w.Seal(); err != nil {
		fmt.Println(err)
		return
	}
	if err := traces.WriteManifest(dir, traces.Manifest{Tool: "example"}); err != nil {
		fmt.Println(err)
		return
	}

	trace, err := traces.Read(dir, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range trace.Events {
		fmt.Println(e.Src, e.Seq, e.K, e.Blocks)
	}
	// Output:
	// decode-0 0 source []
	// decode-0 1 pool []
	// decode-0 2 alloc [[4,6],9]
	// decode-0 3 seal []
}
