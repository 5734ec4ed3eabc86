package harness

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"conform/spec"
)

// Capacity sets what a stage is configured for against what it can process. A
// stage that admits by the first and computes by the second is where refused
// requests still do work.
type Capacity struct {
	Stage string `json:"stage"`
	// Configured is the limit that clients are told, in Unit; 0 where the trace does
	// not say.
	Configured int64 `json:"configured,omitempty"`
	// Processable is what it can process; 0 where the row is about a setting alone.
	Processable int64  `json:"processable,omitempty"`
	Unit        string `json:"unit"`
	Why         string `json:"why,omitempty"` // what the limit comes from
}

// CapacityOf reads the table from a trace: a row for each stage, unit and cause,
// with the last limit that was recorded. A capacity line may say what is
// configured (a number, field configured); else it is the limit that clients
// submitted under, in the same unit. A line whose unit begins with "configured " is
// about a setting, and no capacity.
func CapacityOf(tr *spec.Trace) []Capacity {
	told := map[string]int64{} // by unit: what clients were told
	type key struct{ stage, unit, why string }
	rows := map[key]Capacity{}
	for i := range tr.Events {
		switch e := &tr.Events[i]; e.K {
		case spec.KindSubmit:
			if e.Limit > 0 {
				told[e.Unit] = e.Limit
			}
		case spec.KindCapacity:
			row := Capacity{Stage: e.Stage, Processable: e.Limit, Unit: e.Unit, Why: e.Why}
			_ = json.Unmarshal(e.Extra["configured"], &row.Configured) // not ours to refuse
			if unit, ok := strings.CutPrefix(e.Unit, "configured "); ok {
				row.Configured, row.Processable, row.Unit = e.Limit, 0, unit
			}
			rows[key{e.Stage, e.Unit, e.Why}] = row
		}
	}
	var table []Capacity
	for _, row := range rows {
		if row.Configured == 0 {
			row.Configured = told[row.Unit]
		}
		table = append(table, row)
	}
	slices.SortFunc(table, func(a, b Capacity) int {
		return cmp.Or(stageOrder(a.Stage)-stageOrder(b.Stage), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Why, b.Why))
	})
	return table
}

// stageOrder is the way of a request.
func stageOrder(stage string) int {
	order := []spec.Role{spec.RoleRouter, spec.RolePrefill, spec.RoleDecode}
	if i := slices.Index(order, spec.Role(stage)); i >= 0 {
		return i
	}
	return len(order)
}
