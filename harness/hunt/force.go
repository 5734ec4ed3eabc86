package hunt

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"conform/faults"
	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// attempt is one way to force a prediction.
type attempt struct {
	until string
	seed  uint64
	times int
}

// attempts are tried in this order, until one shows a wrong answer. The first drives
// the harm furthest; one order that does not come about may come about in the next.
func (h *hunter) attempts() []attempt {
	seed := h.cfg.Run.Seeds[0]
	if h.load.Scripted {
		return []attempt{{untilGrown, seed, 1}, {untilGrown, seed + 1, 1}}
	}
	return []attempt{{untilContent, seed, 4}, {untilAlloc, seed, 4}, {untilContent, seed + 1, 8}, {untilContent, seed + 2, 8}, {untilContent, seed + 3, 4}}
}

// answer forces one prediction.
func (h *hunter) answer(ctx context.Context, i int, all []Prediction) Hunted {
	got := Hunted{Prediction: all[i], Answer: NotForced, Why: errUntried.Error()}
	t := target{class: got.Class, through: got.through, load: h.load}
	name := fmt.Sprintf("%03d-%s-%s", i+1, got.Mode, got.End)
	for k, a := range h.attempts() {
		if ctx.Err() != nil || got.unasked || k >= 3 && got.Answer != Confirmed { // the last are for more harm
			break
		}
		t.until, t.times = a.until, a.times
		shown := h.try(ctx, &got, t, a, name+"-"+strconv.Itoa(k+1))
		if got.Answer == Confirmed && got.Harm == spec.HarmWrongAnswer || shown == Refuted {
			break
		}
	}
	got.Seconds = time.Since(h.start).Seconds()
	return got
}

// try makes one attempt and keeps what it shows, if that says more than what is known.
func (h *hunter) try(ctx context.Context, got *Hunted, t target, a attempt, name string) Answer {
	end := endByName(got.End)
	plan := filepath.Join(h.cfg.Run.OutDir, "plans", name+".yaml")
	if err := writePlan(plan, end.plan(t)); err != nil {
		got.Why = err.Error()
		return NotForced
	}
	run := h.cfg.Run
	run.Modes, run.Scenarios, run.Plan, run.Seeds, run.Jobs = []string{got.Mode}, []string{harness.ForcedOrder}, plan, []uint64{a.seed}, 1
	run.OutDir, run.Progress = filepath.Join(h.cfg.Run.OutDir, "forced", name), nil
	res, err := h.run(ctx, run)
	got.Attempts++
	shown := Hunted{Answer: NotForced, Plan: plan, Seed: a.seed, Again: again(run)}
	switch {
	case err != nil:
		shown.Why = err.Error()
	case ctx.Err() != nil || len(res.Scenarios) == 0:
		shown.Why = "the hunt was stopped while it was forced"
	default:
		h.read(ctx, &shown, end, got.Class, &res.Scenarios[0])
	}
	if better(&shown, got) {
		shown.Prediction, shown.Attempts, shown.Seconds = got.Prediction, got.Attempts, got.Seconds
		*got = shown
	}
	return shown.Answer
}

// better reports whether what one attempt shows says more than what is known: a
// confirmation with more harm, or anything that is not a mere failure to force it.
func better(a, b *Hunted) bool {
	rank := map[Answer]int{NotForced: 0, Refuted: 1, Confirmed: 2}
	if a.Answer == Confirmed && b.Answer == Confirmed {
		return a.Harm.Rank() > b.Harm.Rank()
	}
	return rank[a.Answer] > rank[b.Answer] || a.Answer == NotForced && b.Answer == NotForced && len(a.Rules) >= len(b.Rules)
}

func writePlan(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of the plans: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}

// again is the command that shows an attempt again.
func again(r harness.Config) []string {
	args := []string{"run"}
	flag := func(name, value string) {
		if value != "" {
			args = append(args, name, value)
		}
	}
	info, _ := harness.AdapterByName(r.Adapter)
	mode := "--mode"
	if info.Engine != "" {
		mode = "--connector"
		flag("--adapter", r.Adapter)
	}
	flag("--engine", r.Engine)
	flag("--device", r.Device)
	flag("--model", r.Model)
	flag("--defect", r.Defect)
	flag(mode, r.Modes[0])
	flag("--scenario", harness.ForcedOrder)
	flag("--plan", r.Plan)
	flag("--seed", strconv.FormatUint(r.Seeds[0], 10))
	for _, v := range r.Env {
		flag("--env", v)
	}
	for _, v := range r.EngineArgs {
		flag("--engine-arg", v)
	}
	return args
}

// read answers from the forced run's trace.
func (h *hunter) read(ctx context.Context, shown *Hunted, end End, class Class, s *harness.ScenarioResult) {
	shown.Trace = s.Trace
	if s.Verdict == spec.Error {
		shown.Why = "the forced run failed: " + s.Why
		return
	}
	harm, rules, first, about := harmOf(class, s.Rules)
	shown.Rules = rules
	if len(rules) > 0 && about {
		shown.Answer, shown.Harm, shown.Why = Confirmed, harm, first
		return
	}
	var idle []string
	for _, f := range s.Faults {
		if f.Fired == 0 {
			idle = append(idle, f.Rule)
		}
	}
	judged, err := judge(ctx, s.Trace)
	switch {
	case err != nil:
		shown.Why = err.Error()
	case slices.Contains(idle, holdRule):
		shown.unasked = true
		shown.Why = fmt.Sprintf("the rule %s never fired: no such access asked before it was carried out, so the stack has no failpoint there", holdRule)
	case len(idle) > 0:
		shown.Why = "rules of the plan never fired: " + strings.Join(idle, ", ")
	default:
		order(shown, end, class, judged)
	}
	if len(rules) > 0 {
		shown.Why += "; the forced run fails all the same, about other blocks: " + first
	}
}

// harmful are the rules by which a forced order shows.
var harmful = []spec.RuleID{spec.BLK1, spec.BLK2, spec.BLK3, spec.BLK4, spec.DAT1, spec.DAT2}

// harmOf says how far the harm of a failed run goes, which rules fail, and the first
// finding in words, one about the class's blocks before others; about says whether there
// is one, or none that names a block. A run in which only other rules fail shows no bad
// order.
func harmOf(class Class, results []check.RuleResult) (harm spec.Harm, rules []spec.RuleID, text string, about bool) {
	others := false
	for _, r := range results {
		if r.Verdict != spec.Fail || !slices.Contains(harmful, r.ID) || len(r.Findings) == 0 {
			continue
		}
		rules = append(rules, r.ID)
		for _, f := range r.Findings {
			if f.Verdict != spec.Fail {
				continue
			}
			if f.Harm.Rank() > harm.Rank() {
				harm = f.Harm
			}
			its := f.Block != nil && f.Block.Pool == class.Pool && strings.HasPrefix(f.Block.Worker, string(class.Owner))
			others = others || f.Block != nil && !its
			if text == "" || its && !about {
				text = f.Text
			}
			about = about || its
		}
	}
	return harm, rules, text, about || !others
}

// order says what ordered the accesses that the plan hit before the end of their leases.
func order(shown *Hunted, end End, class Class, judged *check.Judged) {
	hit, over := hits(judged)
	shown.Ordered = map[string]int{}
	others, open := map[string]int{}, 0
	for _, m := range judged.Meetings() {
		if classOf(m) != class || !hit[m.Handoff] {
			continue
		}
		switch {
		case m.Why == "" || !end.covers(m.Why):
			others[m.Why]++
		case m.Ordered == "":
			open++
		default:
			shown.Ordered[m.Ordered]++
		}
	}
	switch {
	case open > 0:
		shown.Why = fmt.Sprintf("%d of its leases ended so and nothing ordered that, but the bad order did not come about; it stays unproven", open)
	case len(shown.Ordered) > 0:
		shown.Answer = Refuted
		shown.Why = fmt.Sprintf("the stack orders it: each lease ended after the access, and knew so by %s", counted(shown.Ordered))
	case len(others) > 0:
		shown.Why = fmt.Sprintf("no lease ended so while its access was held (%s); they ended by %s", over, counted(others))
	default:
		shown.Why = "none of its leases ended while its access was held"
	}
}

// hits lists the handoffs that the plan's rules hit, and says how the holds ended.
func hits(judged *check.Judged) (map[string]bool, string) {
	hit, ends := map[string]bool{}, map[string]int{}
	for _, f := range judged.Faults() {
		switch f.Do {
		case faults.DoRelease, faults.DoReleaseLimit, faults.DoReleaseEnd:
			ends[f.Do]++
		}
		if f.Handoff != "" {
			hit[f.Handoff] = true
		}
	}
	return hit, "holds ended by " + counted(ends)
}

// counted lists what was counted: "ABORT_ACK (4), fence (1)".
func counted(n map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		name := k
		if name == "" {
			name = "nothing yet"
		}
		out = append(out, fmt.Sprintf("%s (%d)", name, n[k]))
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}
