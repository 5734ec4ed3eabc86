package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// AttemptsFile is the name of the file in the folder of a run that says what it set
// out to do.
const AttemptsFile = "attempts.json"

// Attempts is what a run set out to do, written before its first scenario starts:
// what was begun and given up, or taken away later, is missed.
type Attempts struct {
	Tool        string    `json:"tool"` // conform
	ToolVersion string    `json:"tool_version"`
	Start       time.Time `json:"start"` // wall time
	// Attempts are the folders of the scenarios, in their order: SCENARIO.MODE.SEED.
	Attempts []string `json:"attempts"`
}

func writeAttempts(dir string, start time.Time, cells []cell) error {
	a := Attempts{Tool: "conform", ToolVersion: Version, Start: start.UTC(), Attempts: make([]string, len(cells))}
	for i, c := range cells {
		a.Attempts[i] = c.name()
	}
	b, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", AttemptsFile, err)
	}
	if err := os.WriteFile(filepath.Join(dir, AttemptsFile), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", AttemptsFile, err)
	}
	return nil
}
