package main

import (
	"bytes"
	"fmt"
	"strings"

	"conform/harness"
)

// trackRecordPage is what was shown, on the reference stack's defects and on real
// builds, and the command that shows each again.
func trackRecordPage() []byte {
	rows, err := harness.TrackRecord()
	if err != nil { // they are embedded, and a test reads them
		panic(err)
	}
	defects := map[string]harnessDefect{}
	for _, d := range harness.Defects() {
		defects[d.Name] = harnessDefect{joinRules(d.Rules), strings.Join(d.Issues, ", ")}
	}
	var b bytes.Buffer
	b.WriteString("# Track record\n\n" + generated)
	b.WriteString("What Conform has shown. Each row can be run again by its own command.\n\n" +
		"## Real builds\n\n" +
		"A public issue, a published build, the rules that found it and the harm that was reached. All were run on 2 cores without a GPU,\n" +
		"over Mooncake, seed 1. Most are tests too: `go test -count=1 -tags engines -run SGLang -v ./harness`, five of five seeds each.\n" +
		"How long each took to find was not kept; a scenario of SGLang takes about a minute on that machine.\n\n" +
		"| public issue | SGLang | rule | harm | command |\n|---|---|---|---|---|\n")
	for _, r := range harness.RealBugs() {
		cmd := strings.TrimSpace("conform run --adapter sglang --connector mooncake --engine " + r.Build + " --scenario " + r.Scenario + " " + r.Command)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` |\n", r.Issue, r.Build, r.Rules, r.Harm, cmd)
	}
	b.WriteString("\nOver NIXL (`--connector nixl`, public issue sglang#35360) 0.5.23 shows the same: BLK-2, BLK-3 and DAT-2 with the hold switched off, where\n" +
		"prefill acknowledges no abort at all, and with a hold that ends by the clock; no finding at decode with its defaults.\n" +
		"`CONFORM_NIGHTLY=1 go test -count=1 -tags engines -run 'SGLangNightly(NIXL|Hold)' -v ./harness`, five of five seeds, and three of three.\n\n" +
		vllmRecord +
		"## Defects of the reference stack\n\n" +
		"Each [defect](defects.md) is a class of the public bugs beside it, switched on in this version's reference stack. Every rule named found\n" +
		"it in as many of the seeds as the column says (`go test -tags long -run LongDefects -v ./harness`); the time is the median from the start of\n" +
		"the stack to the finding, on 2 cores that ran six stacks at once.\n\n" +
		"| defect | mirrors | rules | worst harm reached | found | seconds | command |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		harm := string(r.Harm)
		if harm == "" {
			harm = "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d of %d | %.1f | `conform run --defect %s --scenario %s --mode %s --seed %d` |\n",
			r.Defect, defects[r.Defect].issues, defects[r.Defect].rules, harm, r.Found, r.Of, r.Seconds, r.Defect, r.Scenario, r.Mode, r.Seed)
	}
	return b.Bytes()
}

// harnessDefect is what a row of the track record shows of its defect.
type harnessDefect struct{ rules, issues string }

// vllmRecord is what was shown on real builds of vLLM.
const vllmRecord = "vLLM over NIXL, on the same kind of machine while it was busy, seed 1 of each " +
	"(tests: `go test -count=1 -tags engines -run VLLM -v -timeout 40m ./harness`; five seeds were not measured yet):\n\n" +
	"| public issue | vLLM | rule | harm | command |\n|---|---|---|---|---|\n" +
	"| vllm#32255: decode's blocks are freed on abort while its READ runs | 0.15.1 | BLK-2, BLK-3, DAT-1, DAT-2 | a bystander's answer changes | `conform run --adapter vllm --engine 0.15.1 --scenario cancel-during-transfer` |\n" +
	"| the same, mended | 0.16.0, 0.32.0 | none of these at decode | none at decode | `conform run --adapter vllm --engine 0.16.0 --scenario cancel-during-transfer` |\n" +
	"| vllm#52234: a reference is used after its lease ended (open) | 0.32.0 | BLK-3, DAT-1, DAT-2, REQ-4 | a wrong answer, with status 200 | `conform run --adapter vllm --engine 0.32.0 --scenario reference-stale` |\n\n"
