package report

import (
	"context"
	"fmt"
	"slices"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// The bounds of what is told of a run: findings that are drawn, of one rule at
// first; events of a trace that is read for it, and of all that are.
const (
	maxStories       = 30
	maxStoriesOfRule = 3
	maxTraceRead     = 1_000_000
	maxEventsRead    = 3_000_000
)

// Tale is a run's distinct findings told and drawn, as far as its traces are there
// to be read, and what of the two machines these traces reach.
type Tale struct {
	stories map[string]told // by fingerprint
	covered []check.Covered
	traces  int      // that covered counts
	left    []string // what was not read, and why
}

// told is one finding's story.
type told struct {
	story    *check.Story
	timeline *check.Timeline
	commands []storyCommand
}

// Tell reads the traces of a run again, one at a time, and tells of its distinct
// findings the worst: at most 30, and before others the first three of each rule. Of
// traces with more than a million events, and of what comes after three millions in
// all, nothing is read; the tale says so. driftPPM is what the clocks were allowed
// when the run was judged. The error is that of ctx.
func Tell(ctx context.Context, r *harness.RunResult, driftPPM int) (*Tale, error) {
	t := &Tale{stories: map[string]told{}}
	cov := check.NewCoverage()
	picked := pick(distinctOf(r))
	events, skipped := 0, 0
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		if sc.Trace == "" || sc.Stats.Events == 0 {
			continue
		}
		if sc.Trace == "-" {
			t.left = append(t.left, "standard input can't be read twice: nothing of it is drawn, and what it covers was not counted")
			continue
		}
		if sc.Stats.Events > maxTraceRead || events+sc.Stats.Events > maxEventsRead {
			skipped++
			continue
		}
		events += sc.Stats.Events
		if err := t.read(ctx, sc, driftPPM, cov, picked); err != nil {
			return nil, err
		}
	}
	if skipped > 0 {
		t.left = append(t.left, fmt.Sprintf("%s too long to be read again here: their findings are not drawn, and what they cover was not counted; conform explain draws them",
			count(skipped, "trace")))
	}
	t.covered = cov.Rows()
	return t, nil
}

// pick chooses which findings are drawn: one of each rule, then a second, then a third,
// then the worst of what is left.
func pick(all []defect) []defect {
	ofRule := map[spec.RuleID]int{}
	chosen := make([]bool, len(all))
	n := 0
	for _, most := range []int{1, 2, maxStoriesOfRule, len(all)} {
		for i := range all {
			if id := all[i].finding.Rule; !chosen[i] && n < maxStories && ofRule[id] < most {
				chosen[i] = true
				ofRule[id]++
				n++
			}
		}
	}
	var out []defect
	for i := range all {
		if chosen[i] {
			out = append(out, all[i])
		}
	}
	return out
}

// read judges one trace and takes from it what is wanted.
func (t *Tale) read(ctx context.Context, sc *harness.ScenarioResult, driftPPM int, cov *check.Coverage, picked []defect) error {
	skip := func(err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.left = append(t.left, fmt.Sprintf("%s could not be read again: %v", named(sc), err))
		return nil
	}
	tr, err := traces.Read(sc.Trace, nil)
	if err != nil {
		return skip(err)
	}
	judged, err := check.Open(ctx, tr, check.Options{DriftPPM: driftPPM})
	if err != nil {
		return skip(err)
	}
	if err := cov.AddJudged(ctx, named(sc), judged); err != nil {
		return err
	}
	t.traces++
	ranked := judged.Result.Ranked()
	man, manErr := traces.ReadManifest(sc.Trace)
	for i := range picked {
		d := &picked[i]
		if d.scenario != sc {
			continue
		}
		var one told
		if one.story, err = judged.Explain(d.finding); err == nil {
			one.timeline, err = judged.Timeline(d.finding)
		}
		if err != nil {
			return skip(err)
		}
		shown := Told{Trace: sc.Trace, Finding: nameOf(ranked, &d.finding), Story: one.story, DriftPPM: driftPPM}
		if manErr == nil {
			shown.Manifest = &man
		}
		one.commands = shown.commands(Options{})
		t.stories[d.id] = one
	}
	return nil
}

// nameOf is a finding as the command line names it: SIG-2 for the first of a rule,
// else SIG-2.3.
func nameOf(ranked []check.RuleResult, f *check.Finding) string {
	for i := range ranked {
		if ranked[i].ID != f.Rule {
			continue
		}
		for j := range ranked[i].Findings {
			if n := &ranked[i].Findings[j]; n.Text == f.Text && slices.Equal(n.Events, f.Events) && j > 0 {
				return fmt.Sprintf("%s.%d", f.Rule, j+1)
			}
		}
	}
	return string(f.Rule)
}

// coverage splits the transitions into the machines.
func (t *Tale) coverage(machine string) (rows []check.Covered, taken int) {
	for _, row := range t.covered {
		if row.Machine != machine {
			continue
		}
		rows = append(rows, row)
		if row.Taken > 0 {
			taken++
		}
	}
	return slices.Clip(rows), taken
}
