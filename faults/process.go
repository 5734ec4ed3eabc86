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
func (d *Decision) carryOut(ctx context.Context) {
	for _, r := range d.process {
		d.e.act(ctx, r, d.point)
	}
}

func (e *Engine) act(ctx context.Context, r *ruleState, p Point) {
	switch r.Do {
	case DoPartition:
		e.divide(r, p)
	case DoPause:
		e.pauseWorker(ctx, r, p)
	case DoKill:
		if !e.do(ctx, r, DoKill, p, 0) || !r.WillRestart {
			return
		}
		e.restartLater(r, p)
	case DoRestart:
		if r.RestartAfter == 0 {
			e.do(ctx, r, DoRestart, p, 0)
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
func (e *Engine) pauseWorker(ctx context.Context, r *ruleState, p Point) {
	e.mu.Lock()
	e.paused[r.Worker]++
	e.mu.Unlock()
	paused := e.do(ctx, r, DoPause, p, r.For)
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

// divide starts a partition and heals it later.
func (e *Engine) divide(r *ruleState, p Point) {
	part := &partition{rule: r, healed: make(chan struct{})}
	e.fault(r, DoPartition, p, r.For)
	e.mu.Lock()
	e.partitions = append(e.partitions, part)
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
