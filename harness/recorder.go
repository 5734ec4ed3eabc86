package harness

import (
	"conform/faults"
	"conform/spec"
	"conform/traces"
)

// recorder is one source of the harness's own: what its clients did, or what it
// did itself. Each event also goes to the fault engine, whose rules may wait for it,
// and to the log of a play.
type recorder struct {
	w      *traces.Writer
	engine *faults.Engine
	heard  *hearing // nil without a play
}

// openRecorder starts a source whose name is also its worker's id.
func openRecorder(dir, name string, role spec.Role, host string, engine *faults.Engine, heard *hearing) (*recorder, error) {
	clock, clockName := traces.Monotonic()
	w, err := traces.Create(dir, name, traces.WriterOptions{Clock: clock})
	if err != nil {
		return nil, err
	}
	r := &recorder{w: w, engine: engine, heard: heard}
	w.Record(spec.Event{K: spec.KindSource, Worker: name, Role: role, Host: host, Clock: clockName, Probe: "harness"})
	return r, nil
}

func (r *recorder) record(e spec.Event) {
	e = r.w.Record(e)
	r.heard.hear(&e)
	if r.engine != nil {
		r.engine.Observe(&e)
	}
}

// seal ends the source. It may be called on a nil recorder.
func (r *recorder) seal() error {
	if r == nil {
		return nil
	}
	return r.w.Seal() // which also tells of an earlier error
}
