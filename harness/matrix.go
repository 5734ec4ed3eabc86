package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"conform/adapters/reference"
	"conform/spec"
)

// MatrixConfig says which part of the detection matrix to run.
type MatrixConfig struct {
	Seed      uint64   // of every run
	Jobs      int      // runs at once; 0: 6, since a stack mostly waits
	Dir       string   // where the runs are recorded; it must exist
	Keep      bool     // whether what they recorded stays there
	Defects   []string // by name; empty: each
	Scenarios []string // by id; empty: each that the reference stack has
	// Progress is told of each run that has ended. It is never called twice at once.
	Progress func(MatrixCell)
}

// MatrixCell is one run: a defect under a scenario. In the cell of the correct stack,
// Defect is "".
type MatrixCell struct {
	Defect   string `json:"defect"`
	Scenario string `json:"scenario"`
	Mode     string `json:"mode"`
	Seed     uint64 `json:"seed"`
	// Caught says whether the rule by which the defect is known found something.
	Caught  bool          `json:"caught"`
	Verdict spec.Verdict  `json:"verdict"`
	Harm    spec.Harm     `json:"harm,omitempty"` // the worst of what was found
	Rules   []spec.RuleID `json:"rules"`          // that found something
	Seconds float64       `json:"seconds"`
	Why     string        `json:"why,omitempty"`
}

// Matrix is what became of every defect under every scenario that its mode has.
type Matrix struct {
	Cells []MatrixCell `json:"cells"`
	// Alone lists, by scenario, the defects that no other scenario caught.
	Alone   map[string][]string `json:"alone"`
	Seconds float64             `json:"seconds"`
}

// Missed are the defects that no scenario caught by the rule by which they are known.
func (m *Matrix) Missed() []string {
	caught, all := map[string]bool{}, []string{}
	for _, c := range m.Cells {
		if !slices.Contains(all, c.Defect) {
			all = append(all, c.Defect)
		}
		caught[c.Defect] = caught[c.Defect] || c.Caught
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "" || caught[name] })
}

// alone tells which scenario is the only one that catches a defect.
func (m *Matrix) alone() {
	by := map[string][]string{}
	for _, c := range m.Cells {
		if c.Caught && !slices.Contains(by[c.Defect], c.Scenario) {
			by[c.Defect] = append(by[c.Defect], c.Scenario)
		}
	}
	m.Alone = map[string][]string{}
	for _, c := range m.Cells {
		if m.Alone[c.Scenario] == nil {
			m.Alone[c.Scenario] = []string{}
		}
		if one := by[c.Defect]; len(one) == 1 && one[0] == c.Scenario && !slices.Contains(m.Alone[c.Scenario], c.Defect) {
			m.Alone[c.Scenario] = append(m.Alone[c.Scenario], c.Defect)
		}
	}
}

// RunMatrix runs each defect, and the correct stack, against each scenario in the
// modes that the defect has. It judges real processes: a whole matrix takes minutes.
// When ctx ends, it returns with ctx's error.
func RunMatrix(ctx context.Context, cfg MatrixConfig) (*Matrix, error) {
	rows, err := matrixRows(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Jobs == 0 {
		cfg.Jobs = 6
	}
	m := &Matrix{}
	var mu sync.Mutex
	cells := make([][]MatrixCell, len(rows))
	errs := make([]error, len(rows))
	next := make(chan int)
	var wg sync.WaitGroup
	for range cfg.Jobs {
		wg.Go(func() {
			for i := range next {
				cells[i], errs[i] = rows[i].run(ctx, cfg)
				mu.Lock()
				for _, c := range cells[i] {
					m.Seconds += c.Seconds
					if cfg.Progress != nil {
						cfg.Progress(c)
					}
				}
				mu.Unlock()
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	wg.Wait()
	for i := range rows {
		if errs[i] != nil {
			return nil, errs[i]
		}
		m.Cells = append(m.Cells, cells[i]...)
	}
	m.alone()
	return m, ctx.Err()
}

// matrixRow is one defect under one scenario.
type matrixRow struct {
	defect   reference.Defect // without a name: the correct stack
	scenario Scenario
	modes    []string
}

func matrixRows(cfg MatrixConfig) ([]matrixRow, error) {
	defects := append([]reference.Defect{{}}, reference.Defects()...)
	for _, name := range cfg.Defects {
		if _, ok := reference.DefectByName(name); !ok {
			return nil, fmt.Errorf("unknown defect %q; conform list defects lists them", name)
		}
	}
	for _, id := range cfg.Scenarios {
		if _, ok := ScenarioByID(id); !ok {
			return nil, fmt.Errorf("unknown scenario %q; conform list scenarios lists them", id)
		}
	}
	info := reference.Adapter{}.Info()
	var rows []matrixRow
	for _, d := range defects {
		if len(cfg.Defects) > 0 && d.Name != "" && !slices.Contains(cfg.Defects, d.Name) {
			continue
		}
		for _, s := range Scenarios() {
			if len(cfg.Scenarios) > 0 && !slices.Contains(cfg.Scenarios, s.ID) {
				continue
			}
			modes := slices.Clone(s.Modes(info))
			if d.Mode != "" {
				modes = slices.DeleteFunc(modes, func(m string) bool { return m != d.Mode })
			}
			if len(modes) > 0 {
				rows = append(rows, matrixRow{d, s, modes})
			}
		}
	}
	return rows, nil
}

func (row matrixRow) run(ctx context.Context, cfg MatrixConfig) ([]MatrixCell, error) {
	dir := filepath.Join(cfg.Dir, row.scenario.ID+"."+row.defect.Name)
	res, err := Run(ctx, Config{
		Defect: row.defect.Name, Scenarios: []string{row.scenario.ID}, Modes: row.modes, Seeds: []uint64{max(cfg.Seed, 1)}, OutDir: dir, Jobs: 1,
	})
	if err != nil {
		return nil, err
	}
	var cells []MatrixCell
	for i := range res.Scenarios {
		cells = append(cells, row.cell(&res.Scenarios[i]))
	}
	if !cfg.Keep {
		err = os.RemoveAll(dir)
	}
	return cells, err
}

func (row matrixRow) cell(s *ScenarioResult) MatrixCell {
	c := MatrixCell{
		Defect: row.defect.Name, Scenario: s.ID, Mode: s.Mode, Seed: s.Seed, Verdict: s.Verdict, Harm: spec.HarmNone, Rules: []spec.RuleID{},
		Seconds: s.Seconds, Why: s.Why,
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if len(r.Findings) == 0 || r.Verdict < spec.Unproven {
			continue
		}
		c.Rules = append(c.Rules, r.ID)
		if harm := r.Harm(); harm.Rank() > c.Harm.Rank() {
			c.Harm = harm
		}
	}
	c.Caught = len(row.defect.Rules) > 0 && slices.Contains(c.Rules, row.defect.Rules[0])
	return c
}
