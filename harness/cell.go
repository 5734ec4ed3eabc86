package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	heard  *hearing // of a play; nil without one
	reqs   []request
	idle   []string // workers with pools that ran to the end
	man    traces.Manifest

	mu       sync.Mutex
	trouble  []error // what makes the verdict error
	unforced error   // why the play could not go on
	served   map[string]any
	hooks    []HookReport
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
	if l.man.Tool != "" {
		l.man.Verdict, l.man.Why = res.Verdict.String(), res.Why
		if err := traces.WriteManifest(l.dir, l.man); err != nil {
			res.Verdict, res.Why = spec.Error, oneLine(err)
		}
	}
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
	l.man = l.manifest(host)
	if err := traces.WriteManifest(l.dir, l.man); err != nil {
		return err
	}
	plan := l.c.plan
	if plan == nil { // the proxies stand in the way of every run, so that each is recorded alike
		plan = &faults.Plan{Name: "none"}
	}
	if l.engine, err = faults.NewEngine(plan, l.c.seed, faults.EngineOptions{Record: l.injected, Processes: l, GiveUp: l.giveUp}); err != nil {
		return err
	}
	var opt failpoint.Options
	if l.c.shape.play != nil {
		l.heard = newHearing()
		opt = failpoint.Options{Events: l.c.shape.hears, Heard: l.heard.hear}
	}
	// An engine's probe is controlled through it, whatever the plan.
	if l.c.plan != nil || l.heard != nil || l.r.adapter.Info().Engine != "" {
		if l.fail, err = opt.Serve("127.0.0.1:0", l.engine); err != nil {
			return err
		}
	}
	if l.own, err = openRecorder(l.dir, "harness", spec.RoleHarness, host, l.engine, l.heard); err != nil {
		return err
	}
	l.client, err = openRecorder(l.dir, "client", spec.RoleClient, host, l.engine, l.heard)
	return err
}

// manifest is what is known of the run before it begins.
func (l *lab) manifest(host string) traces.Manifest {
	m := traces.Manifest{
		Tool: "conform", ToolVersion: Version, Seed: l.c.seed, Plan: l.c.planText, Scenarios: []string{l.c.scenario.ID},
		Mode: l.c.mode, Defect: l.r.cfg.Defect, Adapter: traces.ManifestAdapter{Name: l.r.adapter.Info().Name, Engine: l.r.cfg.engine.spec()},
		Hosts: []string{host}, Start: l.start.UTC(), Args: disclosedArgs(l.r.cfg.EngineArgs), Env: disclosedEnv(l.r.cfg.Env),
		Hardware: hardware(),
	}
	t := l.c.shape.topology.Filled()
	topology := fmt.Sprintf("%dP%dD, ranks %d and %d", t.Prefill, t.Decode, t.PrefillTP, t.DecodeTP)
	if m.Adapter.Engine == "" {
		m.Adapter.Engine = m.Adapter.Name + " " + Version
		m.Config = map[string]string{"topology": topology}
		return m
	}
	m.Config = map[string]string{
		"engine": l.r.cfg.engine.name, "engine_version": l.r.cfg.engine.version, "device": l.r.cfg.engine.device,
		"packages": l.r.cfg.engine.digest, "model": "built-in",
		"topology": topology,
	}
	if l.r.cfg.Model != "" {
		m.Config["model"] = filepath.Base(l.r.cfg.Model)
	}
	return m
}

// injected records a fault that the engine has just done, and lets the client of
// the request that it hit react.
func (l *lab) injected(e spec.Event) {
	e = l.own.w.Record(e)
	l.heard.hear(&e)
	l.mu.Lock()
	load := l.load
	l.mu.Unlock()
	if load != nil && !followsUp[e.Do] {
		load.hit(e.Rule, e.Req)
	}
	l.engine.Observe(&e)
}

// giveUp lets the client of a request give it up, as the plan says.
func (l *lab) giveUp(req string, leaves bool, at string) {
	l.mu.Lock()
	load := l.load
	l.mu.Unlock()
	switch {
	case load == nil:
	case leaves:
		load.giveUp(req, ask{how: leave})
	default:
		load.giveUp(req, ask{how: abort, at: spec.Role(at)})
	}
}

// enough reports whether a workload that goes on for its plan may end.
func (l *lab) enough() bool { return l.c.shape.workload.least > 0 && l.engine.Spent() }

// followsUp are the words for what comes after a fault, such as the end of a hold.
var followsUp = map[string]bool{
	faults.DoRelease: true, faults.DoReleaseLimit: true, faults.DoReleaseEnd: true, faults.DoResume: true, faults.DoHeal: true, faults.DoCut: true,
}

// drive starts the stack, runs the workload or the play, and waits until nothing
// is in flight.
func (l *lab) drive(ctx context.Context) {
	cfg := l.c.adapterConfig(l.r.cfg, l.dir)
	cfg.Engine, cfg.OnExit, cfg.Host = l.engine, l.exited, l.man.Hosts[0]
	if l.fail != nil {
		cfg.Failpoint, cfg.Probes = l.fail.Addr(), l.fail
	}
	parts := l.draw(l.r.adapter.Limits(cfg))
	stack, ok := l.startStack(ctx, cfg)
	if !ok {
		return
	}
	load := newClients(stack, l.c.shape.workload, l.client, l.pace.Answer)
	l.mu.Lock()
	l.stack, l.load = stack, load
	l.mu.Unlock()

	l.r.say(l.c, "running", 0, false)
	workCtx, cancel := context.WithTimeout(ctx, l.pace.Work)
	defer cancel()
	if l.c.shape.play != nil {
		l.perform(ctx, workCtx, parts)
	} else {
		load.run(workCtx, l.reqs, l.enough)
		if workCtx.Err() != nil && ctx.Err() == nil {
			l.fault(fmt.Errorf("%w to serve the workload within %v", errStack, l.pace.Work))
		}
	}
	l.r.say(l.c, "settling", 0, false)
	l.settle(ctx)
}

// draw makes the cell's requests; of a play it also gives the parts.
func (l *lab) draw(limits adapters.Limits) []part {
	if l.c.shape.play == nil {
		l.reqs = l.c.shape.workload.draw(l.c.seed, limits, l.pace)
		t := l.c.shape.topology.Filled()
		for i := range l.reqs { // each pair of workers in turn
			l.reqs[i].prefill, l.reqs[i].decode = i%t.Prefill, i/t.Prefill%t.Decode
		}
		return nil
	}
	parts := l.c.shape.cast(limits, l.pace)
	l.reqs = drawCast(parts, l.c.seed, l.pace)
	return parts
}

// startStack takes the reference answers, where the adapter needs that, and
// starts the stack.
func (l *lab) startStack(ctx context.Context, cfg adapters.Config) (adapters.Stack, bool) {
	if b, ok := l.r.adapter.(adapters.Baseliner); ok {
		l.r.say(l.c, "taking reference answers", 0, false)
		prompts := make([]adapters.Prompt, len(l.reqs))
		for i, q := range l.reqs {
			prompts[i] = adapters.Prompt{Tokens: q.prompt, Output: q.output}
		}
		baseCtx, cancel := context.WithTimeout(ctx, l.pace.Start+l.pace.Work)
		defer cancel()
		if err := b.Baseline(baseCtx, cfg, prompts); err != nil {
			if ctx.Err() == nil {
				l.fault(fmt.Errorf("%w to give reference answers: %w", errStack, err))
			}
			return nil, false
		}
	}
	l.r.say(l.c, "starting", 0, false)
	startCtx, cancel := context.WithTimeout(ctx, l.pace.Start)
	defer cancel()
	stack, err := l.r.adapter.Start(startCtx, cfg)
	if err != nil {
		if ctx.Err() == nil {
			l.fault(fmt.Errorf("%w to start: %w", errStack, err))
		}
		return nil, false
	}
	return stack, true
}

// perform runs the play. Where it can't go on, the order that the scenario is for
// was not forced; that says nothing about the stack.
func (l *lab) perform(ctx, workCtx context.Context, parts []part) {
	d := newDirector(l, parts, l.reqs)
	err := l.c.shape.play(workCtx, d)
	if err != nil && ctx.Err() == nil {
		l.mu.Lock()
		l.unforced = err
		l.mu.Unlock()
	}
	if err := d.end(workCtx); err != nil && ctx.Err() == nil {
		l.fault(fmt.Errorf("%w to go on after the play: %w", errStack, err))
	}
}

// settle waits until the stack holds nothing in flight, and records that.
func (l *lab) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.pace.Settle)
	defer cancel()
	if ok, busy := l.quiet(ctx); !ok {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			l.fault(fmt.Errorf("%w to become idle within %v: %s", errStack, l.pace.Settle, busy))
		}
		return
	}
	for _, w := range l.stack.Workers() {
		if w.Pools {
			l.idle = append(l.idle, w.ID)
		}
	}
	l.own.record(spec.Event{K: spec.KindIdle, Workers: l.idle})
	l.audit(ctx)
}

// audit notes what the workers say themselves about what they hold.
func (l *lab) audit(ctx context.Context) {
	a, ok := l.stack.(adapters.Auditor)
	if !ok {
		return
	}
	notes, err := a.Audit(ctx)
	if err != nil {
		notes = append(notes, "audit: "+err.Error())
	}
	for _, text := range notes {
		l.own.record(spec.Event{K: spec.KindNote, Text: text})
	}
}

// pollEvery is how often the stack is asked.
const pollEvery = 10 * time.Millisecond

// quiet waits until nothing is in flight: twice, so that a message between two
// workers is not overlooked. If ctx ends first, it says what was.
func (l *lab) quiet(ctx context.Context) (ok bool, busy string) {
	for still := 0; still < 2; {
		idle, what, err := l.stack.Idle(ctx)
		switch {
		case err == nil && idle:
			still++
		case err == nil:
			still, busy = 0, what
		case ctx.Err() == nil:
			still, busy = 0, err.Error()
		}
		sleep(ctx, pollEvery)
		if ctx.Err() != nil {
			return false, busy
		}
	}
	return true, ""
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
	ctx = context.WithoutCancel(ctx)
	if l.engine != nil {
		l.engine.Close()
	}
	if l.stack != nil {
		l.stop(ctx)
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
	if l.r.cfg.engine != (engine{}) {
		l.describeProbe()
	}
	files, err := traces.HashFiles(l.dir)
	l.man.Files = files
	if err = errors.Join(err, traces.WriteManifest(l.dir, l.man)); err != nil {
		l.fault(err)
	}
}

// stop ends the recordings that can be ended, then the stack.
func (l *lab) stop(ctx context.Context) {
	if l.fail != nil {
		sealCtx, cancel := context.WithTimeout(ctx, l.pace.Stop)
		if err := l.fail.Seal(sealCtx); err != nil {
			l.fault(err)
		}
		cancel()
	}
	if s, ok := l.stack.(adapters.Served); ok {
		l.served = s.Served()
	}
	stopCtx, cancel := context.WithTimeout(ctx, l.pace.Stop)
	defer cancel()
	if err := l.stack.Stop(stopCtx); err != nil {
		l.fault(fmt.Errorf("%w to stop: %w", errStack, err))
	}
}

// describeProbe puts into the manifest what recorded the engine. A trace that can't
// be read has none; the judge says why.
func (l *lab) describeProbe() {
	tr, err := traces.Read(l.dir, nil)
	if err != nil {
		return
	}
	l.hooks = addServed(HooksOf(tr), l.served)
	l.man.Hooks = manifestHooks(l.hooks, l.served)
	l.man.Adapter.Probe = probeOf(tr)
}

// probeOf is the probe that recorded the workers, with its version; "" if the stack
// records itself.
func probeOf(tr *spec.Trace) string {
	for i := range tr.Events {
		if e := &tr.Events[i]; e.K == spec.KindSource && e.Role != spec.RoleHarness && e.Role != spec.RoleClient && e.Probe != "" {
			return e.Probe
		}
	}
	return ""
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
			res.Probe = l.man.Adapter.Probe
			res.judged(l.r.adapter.Info().Name, tr, l.hooks, got)
			l.reached(newRecorded(tr), &res)
		}
	}
	if err = errors.Join(trouble, err); err != nil {
		res.Verdict = spec.Error
		res.Why = oneLine(err)
	}
	if errors.Is(err, syscall.ENOSPC) { // all else follows from it
		res.Why = fmt.Sprintf("the disk that holds %s is full: what was recorded until then is kept; free some space, or name another folder with --out", l.dir)
	}
	return res
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// judged takes over what a trace was judged to be.
func (res *ScenarioResult) judged(adapter string, tr *spec.Trace, hooks []HookReport, got *check.Result) {
	HoldToHooks(hooks, got)
	check.Sign(got.Rules, adapter, res.ID, res.Mode)
	res.Capacity, res.Hooks = CapacityOf(tr), hooks
	res.Verdict, res.Rules, res.Signals, res.Stats, res.Notes, res.Settled = got.Verdict, got.Rules, got.Signals, got.Stats, got.Notes, got.Settled
}

// exercised takes over what the scenario reached and which rules of its plan fired,
// and says which did not.
func (res *ScenarioResult) exercised(s Scenario, adapter string, r *recorded, fired []FaultCount) (missing []string) {
	for _, name := range s.BranchesOf(adapter, res.Mode) {
		b := Branch{Name: name, Reached: s.reached(adapter, name)(r)}
		res.Branches = append(res.Branches, b)
		if !b.Reached {
			missing = append(missing, "never reached: "+name)
		}
	}
	for _, f := range fired {
		if f.Fired == 0 {
			missing = append(missing, "rule of the plan that never fired: "+f.Rule)
		}
	}
	res.Faults = fired
	return missing
}

// reached looks whether the scenario did what it exists for.
func (l *lab) reached(r *recorded, res *ScenarioResult) {
	var fired []FaultCount
	if l.engine != nil {
		for _, n := range l.engine.Counts() {
			fired = append(fired, FaultCount{n.Rule, n.Do, n.Fired})
		}
	}
	missing := slices.Concat(l.unserved(), l.unrecorded(r), res.exercised(l.c.scenario, l.r.adapter.Info().Name, r, fired))
	if len(missing) > 0 {
		res.Why = strings.Join(missing, "; ")
		res.Verdict = max(res.Verdict, spec.Inconclusive)
	}
	byRule(fired)
}

// byRule sorts counts of faults; those of a rule keep their order.
func byRule(fired []FaultCount) {
	slices.SortStableFunc(fired, func(a, b FaultCount) int { return strings.Compare(a.Rule, b.Rule) })
}

// unserved says what the clients or the play could not do.
func (l *lab) unserved() (missing []string) {
	l.mu.Lock()
	load, unforced := l.load, l.unforced
	l.mu.Unlock()
	if unforced != nil {
		missing = append(missing, "the order could not be forced: "+oneLine(unforced))
	}
	if load == nil {
		return missing
	}
	if why := load.unserved(); why != "" && l.c.shape.play == nil {
		missing = append(missing, why)
	}
	if why := load.unknown(); why != "" {
		missing = append(missing, why)
	}
	return missing
}

// unrecorded says what is known to be missing in the trace, or was not heard while
// it was written.
func (l *lab) unrecorded(r *recorded) (missing []string) {
	for _, w := range l.idle {
		if !slices.Contains(slices.Collect(maps.Values(r.worker)), w) {
			missing = append(missing, "worker "+w+" recorded nothing")
		}
	}
	if why := failedHooks(l.hooks); why != "" {
		missing = append(missing, why)
	}
	if l.fail != nil {
		if n := l.fail.Lost(); n > 0 {
			missing = append(missing, fmt.Sprintf("%d recorded events that the fault engine did not hear of", n))
		}
		if n := l.fail.Malformed(); n > 0 {
			missing = append(missing, fmt.Sprintf("%d lines of workers that the fault engine could not read", n))
		}
	}
	if l.stack != nil {
		if n := l.stack.Unknown(); n > 0 {
			missing = append(missing, fmt.Sprintf("%d messages that the proxies could not decode", n))
		}
	}
	return missing
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
