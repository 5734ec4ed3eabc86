package certify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"conform/harness"
	"conform/spec"
	"conform/traces"
)

// judged is one attempt as it was judged again.
type judged struct {
	run    string
	name   string
	man    traces.Manifest
	result harness.ScenarioResult
	there  bool
}

// assess judges every attempt again and computes what a certificate says.
func assess(ctx context.Context, runs []runFolder, p Profile, q Quarters, lim Limits) (*record, error) {
	all, err := judgeAll(ctx, runs, lim)
	if err != nil {
		return nil, err
	}
	r := &record{profile: p, runs: runs}
	previous := ""
	for i, j := range all {
		a := j.attempt(i + 1)
		a.Previous = previous
		previous = digestOf(line(a))
		r.journal, r.results = append(r.journal, a), append(r.results, j.summary(i+1))
	}
	r.describe(all)
	r.date(q)
	r.holdToProfile()
	return r, nil
}

// judgeAll judges the attempts of all runs, a few at once, in the runs' order.
func judgeAll(ctx context.Context, runs []runFolder, lim Limits) ([]judged, error) {
	var all []judged
	for _, run := range runs {
		for _, name := range run.attempts.Attempts {
			all = append(all, judged{run: filepath.Base(run.prefix), name: name})
		}
	}
	if len(all) > lim.Attempts {
		return nil, refuse(CodeBounds, "", "%d attempts; at most %d are judged", len(all), lim.Attempts)
	}
	dirs := map[string]string{}
	for _, run := range runs {
		dirs[filepath.Base(run.prefix)] = run.dir
	}
	errs := make([]error, len(all))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxJudges) {
		wg.Go(func() {
			for i := range next {
				errs[i] = all[i].judge(ctx, filepath.Join(dirs[all[i].run], all[i].name), lim.Trace)
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	wg.Wait()
	return all, errors.Join(errs...)
}

// maxJudges bounds the traces that are in memory at once.
const maxJudges = 4

func (j *judged) judge(ctx context.Context, dir string, lim traces.Limits) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	res, man, err := harness.Rejudge(ctx, dir, lim)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		res.Verdict, res.Why = spec.Error, err.Error()
	}
	res.Why = strings.ReplaceAll(res.Why, dir, j.name) // the same wherever the run lies
	j.there, j.result, j.man = true, res, man
	return nil
}

func (j *judged) attempt(n int) Attempt {
	a := Attempt{N: n, Run: j.run, Attempt: j.name, Outcome: Missing, Verdict: spec.Inconclusive}
	if !j.there {
		return a
	}
	a.Outcome = Finished
	if j.man.End.IsZero() || j.man.Verdict == "" {
		a.Outcome = Aborted
	}
	a.Scenario, a.Mode, a.Seed, a.Defect = j.result.ID, j.man.Mode, j.man.Seed, j.man.Defect
	a.Start, a.End, a.Verdict, a.Why, a.plan = j.man.Start, j.man.End, j.result.Verdict, j.result.Why, j.man.Plan
	return a
}

func (j *judged) summary(n int) Result {
	r := Result{N: n, Verdict: spec.Inconclusive}
	if !j.there {
		return r
	}
	r.Verdict, r.Signals, r.Branches, r.Faults, r.Stats = j.result.Verdict, j.result.Signals, j.result.Branches, j.result.Faults, j.result.Stats
	for _, rule := range j.result.Rules {
		r.Rules = append(r.Rules, RuleResult{rule.ID, rule.Verdict, rule.Level, rule.Judged, max(rule.Found, len(rule.Findings))})
	}
	return r
}

// describe takes the subject from the first attempt that has one, and notes each
// attempt that had another.
func (r *record) describe(all []judged) {
	topologies := map[string]bool{}
	first := ""
	for i, j := range all {
		if !j.there {
			continue
		}
		s := subjectOf(j.man)
		if first == "" {
			r.subject, first = s, j.name
		}
		if s.Probe == "" { // an attempt that was cut short has not told
			s.Probe = r.subject.Probe
		}
		if r.subject.Probe == "" {
			r.subject.Probe = s.Probe
		}
		if same := r.subject; !reflect.DeepEqual(s, withoutSeen(same)) {
			r.lack(false, "attempt %d (%s) was of another subject than %s: engine, packages, arguments, environment, hardware, tool or specification differ", i+1, j.name, first)
		}
		if t := j.man.Config["topology"]; t != "" {
			topologies[t] = true
		}
		for _, c := range j.result.Capacity {
			if !slices.Contains(r.subject.Limits, c) {
				r.subject.Limits = append(r.subject.Limits, c)
			}
		}
	}
	r.subject.Topologies = slices.Sorted(maps.Keys(topologies))
	if r.subject.SpecDigest != traces.SpecDigest() {
		r.lack(false, "it was recorded under another specification (%.12s) than this program judges by (%.12s)", r.subject.SpecDigest, traces.SpecDigest())
	}
}

// withoutSeen is the subject without what is gathered over all attempts.
func withoutSeen(s Subject) Subject {
	s.Topologies, s.Limits = nil, nil
	return s
}

func subjectOf(m traces.Manifest) Subject {
	return Subject{
		Build: Build{
			Adapter: m.Adapter.Name, Engine: m.Adapter.Engine, Packages: m.Config["packages"], Device: m.Config["device"],
			Model: m.Config["model"], Args: m.Args, Env: m.Env,
		},
		Hardware: m.Hardware, Probe: m.Adapter.Probe, Tool: m.Tool + " " + m.ToolVersion, SpecDigest: m.SpecDigest,
	}
}

// digest names the build.
func (b Build) digest() string { return digestOf(line(b)) }

// date sets the quarter, the seeds, and how long the certificate holds.
func (r *record) date(q Quarters) {
	for _, a := range r.journal {
		if a.End.After(r.issued) {
			r.issued = a.End
		}
		if r.quarter.Name == "" && !a.Start.IsZero() {
			r.quarter.Name = QuarterOf(a.Start)
		}
	}
	r.issued = r.issued.UTC()
	r.expires = r.issued.AddDate(0, 0, r.profile.ValidDays)
	r.quarter.Value = q[r.quarter.Name]
	if r.quarter.Value == "" {
		r.lack(false, "no value is known for the quarter %s in which it began", r.quarter.Name)
		return
	}
	r.quarter.Seeds = Seeds(r.quarter.Value, r.subject.Build.digest(), r.profile.Seeds)
}

// lack notes that something is missing for the profile.
func (r *record) lack(failed bool, format string, args ...any) {
	r.short = append(r.short, fmt.Sprintf(format, args...))
	r.failed = r.failed || failed
}

// line is a value as JSON on one line.
func line(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("certify: plain data: " + err.Error())
	}
	return b.Bytes()
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
