package harness

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/reference"
	"conform/faults"
)

var referenceInfo = reference.Adapter{}.Info()

func TestEveryScenarioIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Scenarios() {
		require.False(t, seen[s.ID], "%s twice", s.ID)
		seen[s.ID] = true
		require.NotEmpty(t, s.Title, s.ID)
		require.NotEmpty(t, s.Why, s.ID)
		require.NotEmpty(t, s.shapes, s.ID)
		used := map[string]bool{}
		for name, sh := range s.shapes {
			require.NotEqual(t, sh.play == nil, sh.workload.requests == 0, "%s for %s has a workload, or a play", s.ID, name)
			require.Equal(t, sh.play == nil, sh.cast == nil, "%s for %s: a play has a cast", s.ID, name)
			info, ok := AdapterByName(name)
			if !ok {
				continue // of an adapter that is not there yet
			}
			plans := ""
			for _, mode := range s.Modes(info) {
				require.Contains(t, info.Modes, mode, s.ID)
				require.NotEmpty(t, s.BranchesOf(name, mode), "%s exists for nothing in mode %s", s.ID, mode)
				for _, b := range s.BranchesOf(name, mode) {
					require.NotNil(t, s.reached(name, b), "%s: %s", s.ID, b)
					used[b] = true
				}
				if text := s.Plan(name, mode); text != "" {
					_, err := faults.ParsePlan(s.ID, []byte(text))
					require.NoError(t, err, "%s in mode %s", s.ID, mode)
					plans += text
				}
			}
			for rule := range sh.workload.onFault {
				require.Contains(t, plans, rule, s.ID)
			}
		}
		for b := range s.reach {
			require.True(t, used[b], "%s: nobody asks for the branch %q", s.ID, b)
		}
	}
}

func TestEveryDefectNamesScenariosThatExist(t *testing.T) {
	for _, d := range Defects() {
		for _, id := range d.Scenarios {
			s, ok := ScenarioByID(id)
			require.True(t, ok, "%s names %s", d.Name, id)
			if d.Mode != "" {
				require.Contains(t, s.Modes(referenceInfo), d.Mode, "%s in %s", d.Name, id)
			}
		}
	}
}

func TestBadConfigurationsAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	full := filepath.Join(dir, "full")
	require.NoError(t, os.MkdirAll(filepath.Join(full, "sub"), 0o755))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	used := ln.Addr().(*net.TCPAddr).Port
	plan := filepath.Join(dir, "plan.yaml")
	require.NoError(t, os.WriteFile(plan, []byte("rules:\n  - name: x\n    wen: {signal: ABORT}\n    do: drop\n"), 0o600))

	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"adapter":   {Config{Adapter: "sglan"}, "--adapter: unknown adapter"},
		"mode":      {Config{Modes: []string{"shove"}}, "--mode: unknown mode"},
		"scenario":  {Config{Scenarios: []string{"base-line"}}, `did you mean "baseline"`},
		"defect":    {Config{Defect: "doubel-release"}, `did you mean "double-release"`},
		"no match":  {Config{Scenarios: []string{"lease-expiry"}, Modes: []string{"push"}}, "no scenario that was asked for applies"},
		"env":       {Config{Env: []string{"NOVALUE"}}, "--env"},
		"args":      {Config{EngineArgs: []string{"--x"}}, "--engine-arg"},
		"port":      {Config{Port: 70000}, "--port"},
		"port used": {Config{Port: used, Scenarios: []string{"baseline"}}, "address already in use"},
		"jobs":      {Config{Jobs: 1000}, "--jobs"},
		"plan":      {Config{Plan: filepath.Join(dir, "none.yaml")}, "can't read the plan"},
		"plan file": {Config{Plan: plan}, "plan.yaml:3:5"},
		"out full":  {Config{OutDir: full, Scenarios: []string{"baseline"}}, "is not empty"},
		"out file":  {Config{OutDir: filepath.Join(file, "sub"), Scenarios: []string{"baseline"}}, "can't make the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(t.Context(), c.cfg)
			require.ErrorContains(t, err, c.want)
		})
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "something was written")
}

func TestDrawIsAFunctionOfTheSeed(t *testing.T) {
	w := plainWorkload()
	w.abortEvery, w.leaveEvery, w.tooLongEvery = 4, 5, 7
	w.cancelAfter = [2]time.Duration{time.Millisecond, 5 * time.Millisecond}
	limits, pace := adapters.Limits{PrefillTokens: 128, DecodeTokens: 256}, reference.Adapter{}.Pace()
	require.Equal(t, w.draw(3, limits, pace), w.draw(3, limits, pace))
	require.NotEqual(t, w.draw(3, limits, pace), w.draw(4, limits, pace))
	tooLong, boundary := 0, 0
	for _, q := range w.draw(3, limits, pace) {
		if len(q.prompt) > limits.PrefillTokens {
			tooLong++
		}
		if r := len(q.prompt) % 8; r == 0 || r == 1 || r == 7 {
			boundary++
		}
	}
	require.Positive(t, tooLong)
	require.Positive(t, boundary)
}

func TestNearSuggestsOnlyWhatIsNear(t *testing.T) {
	require.Contains(t, near("baselin", []string{"baseline", "ack-lost"}), "baseline")
	require.Empty(t, near("something-else", []string{"baseline", "ack-lost"}))
}
