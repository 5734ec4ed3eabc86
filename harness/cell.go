package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"conform/adapters"
	"conform/faults"
	"conform/faults/failpoint"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// judgeLimit is far above what judging takes; what the stack does has the limits
// of its adapter's [adapters.Pace].
const judgeLimit = 2 * time.Minute

// lab is one scenario under way: a stack, and what stands round it.
type lab struct {
	r      *runner
	c      cell
	dir    string
	start  time.Time
	engine *faults.Engine
	fail   *failpoint.Server
	own    *recorder // the harness's source
	client *recorder // its clients'
	pace   adapters.Pace
	stack  adapters.Stack
	load   *clients
	man    traces.Manifest

	mu      sync.Mutex
	trouble []error // what makes the verdict error
}

// cell runs one scenario from the start of its stack to its verdict.
func (r *runner) cell(ctx context.Context, c cell) ScenarioResult {
	l := &lab{r: r, c: c, dir: filepath.Join(r.cfg.OutDir, c.name()), start: time.Now(), pace: r.adapter.Pace()}
	if err := l.open(); err != nil {
		l.fault(err)
	} else {
		l.drive(ctx)
	}
	l.close(ctx)
	r.say(c, "judging", 0, false)
	res := l.judge(ctx)
	res.Seconds = time.Since(l.start).Seconds()
	return res
}

// fault notes what went wrong with the harness or the stack itself.
func (l *lab) fault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = append(l.trouble, err)
}

// open makes the run directory, the recorders and the fault engine.
func (l *lab) open() error {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	host = digestHost(host)
	l.man = traces.Manifest{
		Tool: "conform", ToolVersion: Version, Seed: l.c.seed, Plan: l.c.planText, Scenarios: []string{l.c.scenario.ID},
		Mode: l.c.mode, Defect: l.r.cfg.Defect, Adapter: traces.ManifestAdapter{Name: l.r.adapter.Info().Name, Engine: "reference " + Version},
		Hosts: []string{host}, Start: l.start.UTC(),
	}
	if err := traces.WriteManifest(l.dir, l.man); err != nil {
		return err
	}
	plan := l.c.plan
	if plan == nil { // the proxies stand in the way of every run, so that each is recorded alike
		plan = &faults.Plan{Name: "none"}
	}
	if l.engine, err = faults.NewEngine(plan, l.c.seed, faults.EngineOptions{Record: l.injected, Processes: l}); err != nil {
		return err
	}
	if l.c.plan != nil {
		if l.fail, err = failpoint.Serve("127.0.0.1:0", l.engine); err != nil {
			return err
		}
	}
	if l.own, err = openRecorder(l.dir, "harness", spec.RoleHarness, host, l.engine); err != nil {
		return err
	}
	l.client, err = openRecorder(l.dir, "client", spec.RoleClient, host, l.engine)
	return err
}

// injected records a fault that the engine has just done, and lets the client of
// the request that it hit react.
func (l *lab) injected(e spec.Event) {
	e = l.own.w.Record(e)
	l.mu.Lock()
	load := l.load
	l.mu.Unlock()
	if load != nil && !followsUp[e.Do] {
		load.hit(e.Rule, e.Req)
	}
	l.engine.Observe(&e)
}

// followsUp are the words for what comes after a fault, such as the end of a hold.
var followsUp = map[string]bool{
	faults.DoRelease: true, faults.DoReleaseLimit: true, faults.DoReleaseEnd: true, faults.DoResume: true, faults.DoHeal: true, faults.DoCut: true,
}

// drive starts the stack, runs the workload and waits until nothing is in flight.
func (l *lab) drive(ctx context.Context) {
	l.r.say(l.c, "starting", 0, false)
	startCtx, cancel := context.WithTimeout(ctx, l.pace.Start)
	defer cancel()
	cfg := l.c.adapterConfig(l.r.cfg, l.dir)
	cfg.Engine, cfg.OnExit, cfg.Host = l.engine, l.exited, l.man.Hosts[0]
	if l.fail != nil {
		cfg.Failpoint = l.fail.Addr()
	}
	stack, err := l.r.adapter.Start(startCtx, cfg)
	if err != nil {
		if ctx.Err() == nil {
			l.fault(fmt.Errorf("%w to start: %w", errStack, err))
		}
		return
	}
	load := newClients(stack, l.c.scenario.workload, l.client, l.pace.Answer)
	l.mu.Lock()
	l.stack, l.load = stack, load
	l.mu.Unlock()

	l.r.say(l.c, "running", 0, false)
	workCtx, cancelWork := context.WithTimeout(ctx, l.pace.Work)
	defer cancelWork()
	load.run(workCtx, l.c.scenario.workload.draw(l.c.seed, stack.Limits(), l.pace))
	if workCtx.Err() != nil && ctx.Err() == nil {
		l.fault(fmt.Errorf("%w to serve the workload within %v", errStack, l.pace.Work))
	}
	l.r.say(l.c, "settling", 0, false)
	l.settle(ctx)
}

// settle waits until the stack holds nothing in flight, and records that.
func (l *lab) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.pace.Settle)
	defer cancel()
	quiet := 0
	var busy string
	for quiet < 2 { // twice, so that a message between two workers is not overlooked
		idle, what, err := l.stack.Idle(ctx)
		switch {
		case err == nil && idle:
			quiet++
		case err == nil:
			quiet, busy = 0, what
		case ctx.Err() == nil:
			quiet, busy = 0, err.Error()
		}
		sleep(ctx, 10*time.Millisecond)
		if ctx.Err() != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				l.fault(fmt.Errorf("%w to become idle within %v: %s", errStack, l.pace.Settle, busy))
			}
			return
		}
	}
	var workers []string
	for _, w := range l.stack.Workers() {
		if w.Pools {
			workers = append(workers, w.ID)
		}
	}
	l.own.record(spec.Event{K: spec.KindIdle, Workers: workers})
}

// exited records the end of a worker's process.
func (l *lab) exited(e adapters.Exit) {
	l.own.record(spec.Event{K: spec.KindExit, Worker: e.Worker, Code: int64(e.Code), SignalNo: int64(e.SignalNo)})
	if !e.Expected {
		l.fault(fmt.Errorf("%w: worker %s ended by itself (status %d, signal %d); the end of its log: %s", errStack, e.Worker, e.Code, e.SignalNo, e.Log))
	}
}

// close ends the stack in good order and everything round it, whatever happened
// before, and seals what was recorded.
func (l *lab) close(ctx context.Context) {
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.pace.Stop)
	defer cancel()
	if l.engine != nil {
		l.engine.Close()
	}
	if l.fail != nil && l.stack != nil {
		if err := l.fail.Seal(stopCtx); err != nil {
			l.fault(err)
		}
	}
	if l.stack != nil {
		if err := l.stack.Stop(stopCtx); err != nil {
			l.fault(fmt.Errorf("%w to stop: %w", errStack, err))
		}
	}
	if l.fail != nil {
		_ = l.fail.Close() // the listener's; nothing is lost with it
	}
	if err := errors.Join(l.client.seal(), l.own.seal()); err != nil {
		l.fault(fmt.Errorf("the recorder could not write: %w", err))
	}
	if l.man.Tool == "" {
		return
	}
	l.man.End = time.Now().UTC()
	files, err := traces.HashFiles(l.dir)
	l.man.Files = files
	if err = errors.Join(err, traces.WriteManifest(l.dir, l.man)); err != nil {
		l.fault(err)
	}
}

// judge reads the trace back from the disk and judges that, so that what a reader
// of the saved run finds is what the run reports.
func (l *lab) judge(ctx context.Context) ScenarioResult {
	res := ScenarioResult{ID: l.c.scenario.ID, Mode: l.c.mode, Seed: l.c.seed, Trace: l.dir, Verdict: spec.Error}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), judgeLimit)
	defer cancel()
	l.mu.Lock()
	trouble := errors.Join(l.trouble...)
	l.mu.Unlock()
	tr, err := traces.Read(l.dir, nil)
	if err == nil {
		var got *check.Result
		if got, err = check.Judge(ctx, tr, check.Options{}); err == nil {
			res.Verdict, res.Rules, res.Signals, res.Stats, res.Notes = got.Verdict, got.Rules, got.Signals, got.Stats, got.Notes
			l.reached(newRecorded(tr), &res)
		}
	}
	if err = errors.Join(trouble, err); err != nil {
		res.Verdict = spec.Error
		res.Why = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if errors.Is(err, syscall.ENOSPC) { // all else follows from it
		res.Why = fmt.Sprintf("the disk that holds %s is full: what was recorded until then is kept; free some space, or name another folder with --out", l.dir)
	}
	return res
}

// reached looks whether the scenario did what it exists for.
func (l *lab) reached(r *recorded, res *ScenarioResult) {
	var missing []string
	if l.load != nil {
		if why := l.load.unserved(); why != "" {
			missing = append(missing, why)
		}
	}
	for _, name := range l.c.scenario.BranchesOf(l.c.mode) {
		b := Branch{Name: name, Reached: l.c.scenario.reach[name](r)}
		res.Branches = append(res.Branches, b)
		if !b.Reached {
			missing = append(missing, "never reached: "+name)
		}
	}
	if l.engine != nil {
		for _, n := range l.engine.Counts() {
			res.Faults = append(res.Faults, FaultCount{n.Rule, n.Do, n.Fired})
			if n.Fired == 0 {
				missing = append(missing, "rule of the plan that never fired: "+n.Rule)
			}
		}
	}
	if l.fail != nil {
		if n := l.fail.Lost(); n > 0 {
			missing = append(missing, fmt.Sprintf("%d recorded events that the fault engine did not hear of", n))
		}
	}
	if l.stack != nil {
		if n := l.stack.Unknown(); n > 0 {
			missing = append(missing, fmt.Sprintf("%d messages that the proxies could not decode", n))
		}
	}
	if len(missing) > 0 {
		res.Why = strings.Join(missing, "; ")
		res.Verdict = max(res.Verdict, spec.Inconclusive)
	}
	slices.SortStableFunc(res.Faults, func(a, b FaultCount) int { return strings.Compare(a.Rule, b.Rule) })
}

// The process faults go to the stack once there is one.
var _ faults.Processes = (*lab)(nil)

func (l *lab) processes() (adapters.Stack, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stack == nil {
		return nil, errors.New("the stack does not run yet")
	}
	return l.stack, nil
}

// Pause implements faults.Processes.
func (l *lab) Pause(ctx context.Context, worker string) error {
	s, err := l.processes()
	if err != nil {
		return err
	}
	return s.Pause(ctx, worker)
}

// Resume implements faults.Processes.
func (l *lab) Resume(ctx context.Context, worker string) error {
	s, err := l.processes()
	if err != nil {
		return err
	}
	return s.Resume(ctx, worker)
}

// Kill implements faults.Processes.
func (l *lab) Kill(ctx context.Context, worker string) error {
	s, err := l.processes()
	if err != nil {
		return err
	}
	return s.Kill(ctx, worker)
}

// Restart implements faults.Processes.
func (l *lab) Restart(ctx context.Context, worker string) error {
	s, err := l.processes()
	if err != nil {
		return err
	}
	return s.Restart(ctx, worker)
}
