package harness

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"

	"conform/spec"
)

// Found is what the long trials have shown of a defect in a mode: one row of the track
// record.
type Found struct {
	Defect   string    `json:"defect"`
	Scenario string    `json:"scenario"`
	Mode     string    `json:"mode"`
	Seed     uint64    `json:"seed"` // one that shows it
	Found    int       `json:"found"`
	Of       int       `json:"of"`      // seeds tried
	Seconds  float64   `json:"seconds"` // median from the start of a run to its finding
	Harm     spec.Harm `json:"harm"`    // the worst that was reached
}

//go:embed track/*.json
var trackRecord embed.FS

// TrackRecord lists what was found of the defects, by name and mode. The rows are made
// by CONFORM_TRACK_RECORD=track go test -tags long -run LongDefects ./harness.
func TrackRecord() ([]Found, error) {
	files, err := fs.Glob(trackRecord, "track/*.json")
	if err != nil {
		return nil, err
	}
	rows := make([]Found, len(files))
	for i, file := range files {
		text, err := trackRecord.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &rows[i])
		}
		if err != nil {
			return nil, fmt.Errorf("track record %s: %w", file, err)
		}
	}
	return rows, nil
}

// RealBug is a public bug that was shown on a published build of an engine.
type RealBug struct {
	Issue    string // the public report, and what it says
	Build    string
	Rules    string
	Harm     string
	Scenario string
	Command  string // that shows it again, after "conform run --adapter sglang --connector mooncake"
}

// RealBugs lists those that the project's tests show, the mended ones beside them.
func RealBugs() []RealBug {
	const (
		race    = "cancel-during-transfer"
		answers = "a bystander's answer changes"
		hold    = "--env SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=0"
	)
	return []RealBug{
		{"sglang#24527, sglang#35049: decode's pages are freed on abort while prefill still writes", "0.5.20", "BLK-2, BLK-3, DAT-2", answers, race, ""},
		{"the same, hold switched off", "0.5.23", "BLK-2, BLK-3, DAT-2", answers, race, hold},
		{"sglang#27372: the two-frame acknowledgement is no drain", "0.5.20", "inferred predicate: received", "–", race, ""},
		{"sglang#35049, mended: pages are held until every rank has drained", "0.5.23", "none at decode", "none at decode", race, ""},
		{"sglang#35049: a hold that ends by the clock", "0.5.23", "BLK-2, BLK-3, REQ-2, SIG-2, DAT-2", answers, "hold-timeout", ""},
		{"sglang#30233: a rejected prompt is still handed over", "0.5.18", "REQ-1, REQ-4, DAT-2", "the answer follows the previous tenant, with status 200", "reject-prefill-capacity", ""},
		{"sglang#30233: a rejected prompt's stub is admitted and computed", "0.5.20", "REQ-1", "work for a refused request", "reject-prefill-capacity", ""},
		{"sglang#38935, mended: a rejected prompt owns no room", "0.5.23", "none of REQ-1", "none", "reject-prefill-capacity", ""},
		{"sglang#38961 point 6: source pages are given back while they are read (open)", "0.5.23", "BLK-2, BLK-3", "reclaimed while open, at prefill", "source-reuse", ""},
		{"sglang#37202: samples share one room (open)", "0.5.23", "BLK-3, SIG-2", "stale access", "samples-share-key", ""},
	}
}
