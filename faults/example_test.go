package faults_test

import (
	"context"
	"fmt"

	"conform/faults"
	"conform/spec"
)

// A write is held until its block has been allocated again: the order that no
// run would show by itself.
func ExampleEngine() {
	plan, err := faults.ParsePlan("plan.yaml", []byte(`
rules:
  - name: hold-the-write
    when: {access: w, pool: kv, from: prefill, nth: 2}
    do: hold
    until: {event: alloc, pool: kv, same: block}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := faults.NewEngine(plan, 1, faults.EngineOptions{
		Record: func(ev spec.Event) { fmt.Println("fault:", ev.Rule, ev.Do, ev.Access) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	write := faults.Point{Kind: faults.KindAccess, Name: "w", From: "prefill", To: "decode", Pool: "kv", Blocks: spec.MakeBlocks(7)}
	write.Access = "a1"
	fmt.Println(write.Access, e.Pass(context.Background(), write).Do)
	write.Access = "a2"
	d := e.Decide(write) // Pass in two halves: decide …
	e.Observe(&spec.Event{K: spec.KindAlloc, Pool: "kv", Blocks: spec.MakeBlocks(6, 7)})
	fmt.Println(write.Access, d.Wait(context.Background()).Do) // … and wait
	// Output:
	// a1 forward
	// fault: hold-the-write hold a2
	// fault: hold-the-write release a2
	// a2 forward
}

func ExampleParsePlan() {
	_, err := faults.ParsePlan("plan.yaml", []byte(`
rules:
  - name: slow-ack
    when: {signal: ABORT_ACK}
    do: delay
    fro: 150ms
`))
	fmt.Println(err)
	// Output:
	// plan.yaml:6:5: found field "fro", expected a field of a rule: behind, between, copies, do, for, jitter, limit, name, ordered, restart_after, until, when, worker
}
