package faults

import (
	"context"
	"slices"
	"time"

	"conform/spec"
)

// processWithin bounds one process fault.
const processWithin = 30 * time.Second

// carryOut does what process rules a point triggered, one after the other.
func (d *Decision) carryOut() {
	for _, r := range d.process {
		d.e.act(r, d.point)
	}
}

func (e *Engine) act(r *ruleState, p Point) {
	switch r.Do {
	case DoPartition:
		e.divide(r, p)
	case DoPause:
		e.pauseWorker(r, p)
	case DoAbort, DoLeave:
		e.fault(r, r.Do, p, 0)
		e.giveUp(p.Req, r.Do == DoLeave, r.Worker)
	case DoKill:
		if !e.do(e.ctx, r, DoKill, p, 0) || !r.WillRestart {
			return
		}
		e.restartLater(r, p)
	case DoRestart:
		if r.RestartAfter == 0 {
			e.do(e.ctx, r, DoRestart, p, 0)
			return
		}
		e.restartLater(r, p)
	}
}

// do carries one process fault out and records it first: the worker's exit must
// not come before what caused it.
func (e *Engine) do(ctx context.Context, r *ruleState, what string, p Point, length time.Duration) bool {
	e.fault(r, what, p, length)
	ctx, cancel := context.WithTimeout(ctx, processWithin)
	defer cancel()
	err := call(ctx, e.procs, what, r.Worker)
	if err == nil {
		return true
	}
	e.record(spec.Event{K: spec.KindNote, Text: "fault " + r.Name + ": " + what + " " + r.Worker + ": " + err.Error()})
	if what == r.Do {
		e.mu.Lock()
		r.fired--
		r.failed++
		e.mu.Unlock()
	}
	return false
}

func call(ctx context.Context, procs Processes, what, worker string) error {
	switch what {
	case DoPause:
		return procs.Pause(ctx, worker)
	case DoResume:
		return procs.Resume(ctx, worker)
	case DoKill:
		return procs.Kill(ctx, worker)
	}
	return procs.Restart(ctx, worker)
}

func (e *Engine) restartLater(r *ruleState, p Point) {
	e.spawn(func() {
		if e.wait(r.RestartAfter) {
			e.do(e.ctx, r, DoRestart, p, 0)
		}
	})
}

// pauseWorker stops a worker and lets it go on later. Where pauses of one worker
// overlap, the last one to end resumes it.
func (e *Engine) pauseWorker(r *ruleState, p Point) {
	e.mu.Lock()
	e.paused[r.Worker]++
	e.mu.Unlock()
	paused := e.do(e.ctx, r, DoPause, p, r.For)
	over := func() {
		e.mu.Lock()
		e.paused[r.Worker]--
		last := e.paused[r.Worker] == 0
		e.mu.Unlock()
		if paused && last {
			// Also when the run is over: a worker that stands still cannot end.
			e.do(context.WithoutCancel(e.ctx), r, DoResume, p, 0)
		}
	}
	if !paused || !e.spawn(func() { e.wait(r.For); over() }) {
		over()
	}
}

// flight is a request on its way through a proxy, answer included.
type flight struct {
	point Point
	abort context.CancelFunc
}

// fly lets a partition between the two ends of p abort what is under way.
func (e *Engine) fly(p Point, abort context.CancelFunc) (land func()) {
	f := &flight{p, abort}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flights[f] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.flights, f)
	}
}

// divide starts a partition and heals it later.
func (e *Engine) divide(r *ruleState, p Point) {
	part := &partition{rule: r, healed: make(chan struct{})}
	e.fault(r, DoPartition, p, r.For)
	e.mu.Lock()
	e.partitions = append(e.partitions, part)
	for f := range e.flights {
		if e.between(r.Between, &f.point) {
			f.abort()
		}
	}
	e.mu.Unlock()
	heal := func() {
		e.mu.Lock()
		e.partitions = slices.DeleteFunc(e.partitions, func(o *partition) bool { return o == part })
		e.mu.Unlock()
		e.fault(r, DoHeal, Point{}, 0)
		close(part.healed)
	}
	if !e.spawn(func() { e.wait(r.For); heal() }) {
		heal()
	}
}
