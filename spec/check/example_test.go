package check_test

import (
	"bytes"
	"context"
	"fmt"

	"conform/spec"
	"conform/spec/check"
)

// A lease is freed after its write has ended, but on the word of a signal that
// only says "received": the run was fine, and nothing proves that the next will be.
func ExampleJudge() {
	rule, _ := spec.RuleByID(spec.SIG2)
	lines, _ := rule.Bad()
	tr := &spec.Trace{}
	for line := range bytes.Lines(lines) {
		e, err := spec.ParseEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			fmt.Println(err)
			return
		}
		tr.Events = append(tr.Events, e)
	}
	res, err := check.Judge(context.Background(), tr, check.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Verdict)
	for _, r := range res.Rules {
		for _, f := range r.Findings {
			fmt.Println(f.Rule, f.Verdict, f.Harm, f.Events)
		}
	}
	// Output:
	// unproven
	// SIG-2 unproven unproven order [{P 3} {D 6}]
}
