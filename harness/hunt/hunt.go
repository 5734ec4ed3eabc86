package hunt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// Config is what a hunt is asked for.
type Config struct {
	// Run says which stack: adapter, engine, device, model, modes, defect, environment,
	// the first seed. OutDir is where the hunt writes; "" makes a folder below hunts/.
	Run harness.Config
	// Clean is the scenario of the clean runs; "": baseline.
	Clean string
	// Trace is a saved run directory to predict from instead, and About one finding of
	// it; nil for all that it leaves open.
	Trace string
	About *check.Finding
	// Ends are names of [Ends]: only these ways are tried; empty for all.
	Ends []string
	// Budget bounds the hunt; what was not tried by then was not forced. 0: 5 minutes.
	Budget time.Duration
	// First ends the hunt with the first prediction that is confirmed up to a wrong
	// answer.
	First bool
	// Jobs is how many predictions are forced at once; 0: 1 for an engine, else 2.
	Jobs int
	// Progress is told of each step, never twice at once; nil for nobody.
	Progress func(Progress)

	run func(context.Context, harness.Config) (*harness.RunResult, error) // nil: harness.Run
}

// Progress is one step of a hunt.
type Progress struct {
	Done, Total int    // predictions
	Text        string // what is being done, or the answer
	Finished    bool   // one prediction has its answer
}

// defaultBudget is above what all ends of the reference stack take in both modes.
const defaultBudget = 5 * time.Minute

// Hunt predicts from clean runs, or a saved one, which orders may go wrong, and forces
// each. A configuration that can't be is a *[harness.UsageError], found before anything
// is written. When ctx ends, what has an answer by then is kept and the result says
// Interrupted.
func Hunt(ctx context.Context, cfg Config) (*Result, error) {
	h, err := open(cfg)
	if err != nil {
		return nil, err
	}
	budget, cancel := context.WithTimeout(ctx, cmp.Or(cfg.Budget, defaultBudget))
	defer cancel()
	predicted, err := h.predictions(budget)
	if err != nil {
		return nil, err
	}
	h.force(budget, predicted)
	h.res.Interrupted = ctx.Err() != nil
	h.res.conclude(h.start)
	return h.res, nil
}

// hunter is one hunt under way.
type hunter struct {
	cfg   Config
	run   func(context.Context, harness.Config) (*harness.RunResult, error)
	start time.Time
	load  harness.Load
	res   *Result

	mu    sync.Mutex
	done  int
	total int
}

func open(cfg Config) (*hunter, error) {
	h := &hunter{cfg: cfg, run: cfg.run, start: time.Now()}
	if h.run == nil {
		h.run = harness.Run
	}
	for _, name := range cfg.Ends {
		if !slices.ContainsFunc(Ends(), func(e End) bool { return e.Name == name }) {
			return nil, &harness.UsageError{What: fmt.Sprintf("unknown end %q", name), Where: "--end", Expected: "one of " + endNames()}
		}
	}
	if err := h.adopt(); err != nil {
		return nil, err
	}
	r := &h.cfg.Run
	info, ok := harness.AdapterByName(r.Adapter)
	if ok && len(r.Modes) == 0 {
		r.Modes = info.Modes
		if info.Engine != "" { // minutes each: the default one
			r.Modes = info.Modes[:1]
		}
	}
	if h.cfg.Jobs == 0 {
		h.cfg.Jobs = 2
		if info.Engine != "" {
			h.cfg.Jobs = 1
		}
	}
	if len(r.Seeds) == 0 {
		r.Seeds = []uint64{1}
	}
	var err error
	if h.load, err = harness.LoadOf(*r); err != nil {
		return nil, err
	}
	if r.OutDir == "" {
		r.OutDir = filepath.Join("hunts", h.start.UTC().Format("20060102-150405.000"))
	}
	if entries, err := os.ReadDir(r.OutDir); err == nil && len(entries) > 0 {
		return nil, &harness.UsageError{What: fmt.Sprintf("the folder %s is not empty", r.OutDir), Where: "--out", Expected: "a folder that is new or empty", Try: "name another one"}
	}
	h.res = &Result{Adapter: r.Adapter, Defect: r.Defect, Dir: r.OutDir, Hunted: []Hunted{}, Clean: []Clean{}}
	return h, nil
}

// adopt takes over from the manifest of a saved run which stack it was of.
func (h *hunter) adopt() error {
	r := &h.cfg.Run
	if h.cfg.Trace == "" {
		r.Adapter = cmp.Or(r.Adapter, "reference")
		return nil
	}
	m, err := traces.ReadManifest(h.cfg.Trace)
	if err != nil {
		return &harness.UsageError{
			What: fmt.Sprintf("%s has no manifest that says which stack it is of: %v", h.cfg.Trace, err), Where: "TRACE",
			Expected: "the folder of one run, such as runs/TIME/baseline.push.1", Try: "leave TRACE out, and hunt makes a clean run itself",
		}
	}
	r.Adapter = cmp.Or(r.Adapter, m.Adapter.Name)
	if info, ok := harness.AdapterByName(m.Adapter.Name); ok && info.Engine != "" {
		r.Engine = cmp.Or(r.Engine, m.Adapter.Engine)
	}
	r.Defect = cmp.Or(r.Defect, m.Defect)
	if len(r.Modes) == 0 && m.Mode != "" {
		r.Modes = []string{m.Mode}
	}
	if err := ownWords("--env", r.Env, m.Env); err != nil {
		return err
	}
	if err := ownWords("--engine-arg", r.EngineArgs, m.Args); err != nil {
		return err
	}
	if r.Adapter != m.Adapter.Name || len(r.Modes) != 1 || r.Modes[0] != m.Mode {
		return &harness.UsageError{
			What: fmt.Sprintf("the trace is of adapter %s in mode %q", m.Adapter.Name, m.Mode), Where: "--adapter, --mode or --connector",
			Expected: "the stack that the trace is of", Try: "leave them out",
		}
	}
	return nil
}

// ownWords refuses to take over what would reach a process of the engine: a trace may come
// from anybody, and a variable such as LD_PRELOAD runs what its writer likes.
func ownWords(flag string, given, recorded []string) error {
	if len(given) > 0 || len(recorded) == 0 {
		return nil
	}
	return &harness.UsageError{
		What: fmt.Sprintf("the trace's run had %q, which is not taken from a trace", recorded), Where: flag,
		Expected: "your own word for what the engine is started with", Try: "look at it, and give " + flag + " for each that you want",
	}
}

// predictions makes the clean runs, or reads the saved one, and lists what they leave
// open.
func (h *hunter) predictions(ctx context.Context) ([]Prediction, error) {
	if h.cfg.Trace != "" {
		all, err := h.predictFrom(ctx, h.cfg.Run.Modes[0], h.cfg.Trace)
		if err == nil {
			rank(all)
			err = os.MkdirAll(h.cfg.Run.OutDir, 0o755)
		}
		return all, err
	}
	run := h.cfg.Run
	run.Scenarios, run.Plan = []string{cmp.Or(h.cfg.Clean, "baseline")}, ""
	run.OutDir = filepath.Join(h.cfg.Run.OutDir, "clean")
	var once sync.Once // told when nothing stood in its way
	run.Progress = func(harness.Progress) { once.Do(func() { h.say("a clean run", false) }) }
	got, err := h.run(ctx, run)
	if err != nil {
		return nil, err
	}
	h.res.Engine, h.cfg.Run.Engine = got.Engine, cmp.Or(got.Engine, h.cfg.Run.Engine)
	var all []Prediction
	for i := range got.Scenarios {
		s := &got.Scenarios[i]
		if s.Verdict == spec.Error {
			h.note("the clean run in mode %s could not be made: %s", s.Mode, s.Why)
			continue
		}
		some, err := h.predictFrom(ctx, s.Mode, s.Trace)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	rank(all)
	return all, nil
}

// predictFrom judges one run and lists what it leaves open.
func (h *hunter) predictFrom(ctx context.Context, mode, dir string) ([]Prediction, error) {
	judged, err := judge(ctx, dir)
	if err != nil && ctx.Err() == nil {
		return nil, err
	} else if err != nil { // the hunt was stopped, not the trace bad
		return nil, nil
	}
	meetings := judged.Meetings()
	h.res.Clean = append(h.res.Clean, Clean{Mode: mode, Trace: dir, Verdict: judged.Result.Verdict, Pairs: len(meetings)})
	if judged.Result.Verdict == spec.Fail {
		h.note("the run that predictions are made from is not clean (mode %s): it fails already", mode)
	}
	h.res.Notes = append(h.res.Notes, judged.Result.Notes...)
	all := predict(mode, meetings, h.cfg.About)
	if len(h.cfg.Ends) > 0 {
		all = slices.DeleteFunc(all, func(p Prediction) bool { return !slices.Contains(h.cfg.Ends, p.End) })
	}
	if len(all) == 0 {
		h.note("nothing to predict in mode %s: %s shows no access under a handoff that met the end of its lease", mode, dir)
	}
	return all, nil
}

// judge reads a run directory and judges it.
func judge(ctx context.Context, dir string) (*check.Judged, error) {
	tr, err := traces.Read(dir, nil)
	if err != nil {
		return nil, fmt.Errorf("read the trace %s: %w", dir, err)
	}
	judged, err := check.Open(ctx, tr, check.Options{})
	if err != nil {
		return nil, fmt.Errorf("judge the trace %s: %w", dir, err)
	}
	return judged, nil
}

// force answers each prediction, a few at once.
func (h *hunter) force(ctx context.Context, all []Prediction) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h.total = len(all)
	h.res.Hunted = make([]Hunted, len(all))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(h.cfg.Jobs, len(all)) {
		wg.Go(func() {
			for i := range next {
				got := h.answer(ctx, i, all)
				h.mu.Lock()
				h.res.Hunted[i] = got
				h.done++
				h.mu.Unlock()
				if got.Attempts > 0 {
					h.say(fmt.Sprintf("%s, %s: %s", got.Class, got.End, got.Answer), true)
				}
				if h.cfg.First && got.Answer == Confirmed && got.Harm == spec.HarmWrongAnswer {
					stop()
				}
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	wg.Wait()
	if h.cfg.First && h.res.Worst() != nil && h.res.Worst().Harm == spec.HarmWrongAnswer {
		h.res.Hunted = slices.DeleteFunc(h.res.Hunted, func(x Hunted) bool { return x.Attempts == 0 })
	}
}

// say reports progress.
func (h *hunter) say(text string, finished bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cfg.Progress != nil {
		h.cfg.Progress(Progress{Done: h.done, Total: h.total, Text: text, Finished: finished})
	}
}

func (h *hunter) note(format string, args ...any) {
	h.res.Notes = append(h.res.Notes, fmt.Sprintf(format, args...))
}

// errUntried is why a prediction has no answer yet.
var errUntried = errors.New("the hunt was over before it was tried")
