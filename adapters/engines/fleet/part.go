package fleet

import (
	"encoding/json"
	"path/filepath"

	"conform/adapters"
	"conform/spec"
)

// probeVariable tells a process that it is probed, and how.
const probeVariable = "CONFORM_PROBE"

// A Part is what the probe of one worker is told, whatever the engine. Its fields are
// those of class Part in the probe's part.py; an engine's own are embedded beside it.
type Part struct {
	Dir       string    `json:"dir"`
	Worker    string    `json:"worker"`
	Role      spec.Role `json:"role"`
	Host      string    `json:"host"`
	Clock     string    `json:"clock"`
	Engine    string    `json:"engine"`
	Failpoint string    `json:"failpoint"`
	Connector string    `json:"connector"`
	Device    string    `json:"device"`
}

// PartOf is the part of a worker that is recorded.
func (k Kind) PartOf(cfg adapters.Config, worker string, role spec.Role, clock string) (Part, error) {
	dir, err := filepath.Abs(filepath.Join(cfg.Dir, "events"))
	return Part{
		Dir: dir, Worker: worker, Role: role, Host: cfg.Host, Clock: clock, Engine: k.Engine + "@" + cfg.Version,
		Failpoint: cfg.Failpoint, Connector: cfg.Mode, Device: cfg.Device,
	}, err
}

// ProbeVariable is a part, with what an engine adds to it, as a variable.
func ProbeVariable(part any) (string, error) {
	text, err := json.Marshal(part)
	return probeVariable + "=" + string(text), err
}
