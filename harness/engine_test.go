package harness

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/spec"
	"conform/traces"
)

// fakeKit is a kit of one fake engine and one scenario.
func fakeKit(f *fakeEngine, sh shape) *kit {
	s := Scenario{
		ID: "plain", Title: "plain", Why: "x", Branches: []string{"something was admitted"},
		shapes: map[string]shape{"fake": sh},
		reach:  map[string]func(*recorded) bool{"something was admitted": kindAt(spec.RoleDecode, spec.KindAdmit)},
	}
	return &kit{
		adapters: []adapters.Adapter{f}, scenarios: append([]Scenario{s}, Scenarios()...),
		engines: func() (shelf, error) {
			return fakeShelf{[]string{"0.9.1", "0.9.2", "0.10.0"}, []string{"0.9.1", "0.9.2"}}, nil
		},
	}
}

func fakeWorkload() shape {
	w := engineWorkload()
	w.prompt, w.output, w.pause = [2]int{8, 40}, [2]int{2, 8}, [2]time.Duration{0, time.Millisecond}
	return shape{workload: w, args: []string{"--scenario"}, env: []string{"A=1"}}
}

// An engine's whole way: opened once, reference answers before the start, sealed
// before the stop, hooks and build in the manifest.
func TestRunDrivesAnEngine(t *testing.T) {
	f := &fakeEngine{hooks: `{"asked":3,"bound":2,"missing":{"REQ-1":["scheduler.reject"]}}`}
	out := filepath.Join(t.TempDir(), "run")
	model := t.TempDir()
	res, err := Run(t.Context(), Config{
		kit: fakeKit(f, fakeWorkload()), OutDir: out, Seeds: []uint64{1, 2}, Modes: []string{"rdma"}, Model: model,
		EngineArgs: []string{"--mine"}, Env: []string{"A=2"},
	})
	require.NoError(t, err)
	require.Equal(t, "fakelang@0.9.2", res.Engine, "the newest that is installed")
	require.Equal(t, "cpu", res.Device)
	require.Equal(t, "digest of fakelang@0.9.2", res.Packages)
	require.Len(t, res.Scenarios, 2)
	require.Len(t, f.opened, 1)
	require.Equal(t, 1, f.closed)
	require.Equal(t, 2*engineWorkload().requests, f.baseline)
	cfg := f.started[0]
	require.Equal(t, []string{"0.9.2", "cpu", "rdma", model}, []string{cfg.Version, cfg.Device, cfg.Mode, cfg.Model})
	require.Equal(t, []string{"--scenario", "--mine"}, cfg.Args)
	require.Equal(t, []string{"A=1", "A=2"}, cfg.Env, "the user's word is the last")
	require.NotEmpty(t, cfg.Failpoint, "also without a plan")

	s := res.Scenarios[0]
	require.Equal(t, spec.Inconclusive, s.Verdict, s.Why)
	require.Equal(t, "fake 1", s.Probe)
	for _, r := range s.Rules {
		if r.ID == spec.REQ1 {
			require.Equal(t, spec.Inconclusive, r.Verdict)
		}
		if r.ID == spec.DAT2 {
			require.Equal(t, spec.Pass, r.Verdict)
		}
	}
	require.Contains(t, s.Notes, "REQ-1 is judged without the hooks decode-0/scheduler.reject, which did not bind")
	require.Equal(t, []Capacity{{Stage: "decode", Configured: 512, Processable: 128, Unit: "token", Why: "the pool"}}, s.Capacity)
	require.Equal(t, []HookReport{{Source: "decode-0", Asked: 3, Bound: 2, Fired: 1, Missing: map[spec.RuleID][]string{spec.REQ1: {"scheduler.reject"}}}}, s.Hooks)

	m, err := traces.ReadManifest(s.Trace)
	require.NoError(t, err)
	require.Equal(t, traces.ManifestAdapter{Name: "fake", Engine: "fakelang@0.9.2", Probe: "fake 1"}, m.Adapter)
	require.Equal(t, "digest of fakelang@0.9.2", m.Config["packages"])
	require.Equal(t, filepath.Base(model), m.Config["model"])
	require.Equal(t, []traces.ManifestHook{
		{Name: "decode-0/alloc", Asked: true, Bound: true, Fired: 4},
		{Name: "decode-0/free", Asked: true, Bound: true},
		{Name: "decode-0/scheduler.reject", Asked: true},
	}, m.Hooks)
	tr, err := traces.Read(s.Trace, nil)
	require.NoError(t, err)
	require.Len(t, sealsOf(tr), 3, "the stack's source was sealed too")
}

func sealsOf(tr *spec.Trace) map[string]bool {
	seals := map[string]bool{}
	for _, e := range tr.Events {
		if e.K == spec.KindSeal {
			seals[e.Src] = true
		}
	}
	return seals
}

// Several workers of a role take turns.
func TestRequestsAreSpreadOverTheWorkers(t *testing.T) {
	f, sh := &fakeEngine{}, fakeWorkload()
	sh.topology = adapters.Topology{Prefill: 2, Decode: 3}
	_, err := Run(t.Context(), Config{kit: fakeKit(f, sh), Modes: []string{"tcp"}, OutDir: filepath.Join(t.TempDir(), "run")})
	require.NoError(t, err)
	require.Equal(t, sh.topology, f.started[0].Topology)
	require.Len(t, f.pairs, 6)
	for pair, n := range f.pairs {
		require.Equal(t, 3, n, "%v", pair)
	}
}

// What nobody can compare is no pass, and says so.
func TestAnswersWithoutAReferenceAreInconclusive(t *testing.T) {
	f := &fakeEngine{forgets: true}
	res, err := Run(t.Context(), Config{kit: fakeKit(f, fakeWorkload()), Modes: []string{"tcp"}, OutDir: filepath.Join(t.TempDir(), "run")})
	require.NoError(t, err)
	require.Equal(t, spec.Inconclusive, res.Verdict)
	require.Contains(t, res.Scenarios[0].Why, "no reference answer is known to compare the answer with: r-0000, r-0001, r-0002, r-0003 and 14 more")
	tr, err := traces.Read(res.Scenarios[0].Trace, nil)
	require.NoError(t, err)
	for _, e := range tr.Events {
		require.False(t, e.HasExp)
	}
}

// A worker whose probe did not come up has recorded nothing: no pass.
func TestWorkerThatRecordsNothing(t *testing.T) {
	f := &fakeEngine{more: []adapters.Worker{{ID: "prefill-0", Role: spec.RolePrefill, Pools: true}}}
	res, err := Run(t.Context(), Config{kit: fakeKit(f, fakeWorkload()), Modes: []string{"tcp"}, OutDir: filepath.Join(t.TempDir(), "run")})
	require.NoError(t, err)
	require.Equal(t, spec.Inconclusive, res.Verdict)
	require.Contains(t, res.Scenarios[0].Why, "worker prefill-0 recorded nothing")
}

func TestEngineThatDoesNotOpenIsClosed(t *testing.T) {
	f := &fakeEngine{openErr: errors.New("no memory")}
	_, err := Run(t.Context(), Config{kit: fakeKit(f, fakeWorkload()), OutDir: filepath.Join(t.TempDir(), "run")})
	require.ErrorIs(t, err, errStack)
	require.ErrorContains(t, err, "no memory")
	require.Equal(t, 1, f.closed)
	require.Empty(t, f.started)
}

func TestWhichEngine(t *testing.T) {
	for name, c := range map[string]struct {
		cfg           Config
		spec, refusal string
	}{
		"the newest installed": {Config{}, "fakelang@0.9.2", ""},
		"a version":            {Config{Engine: "0.9.1", Device: "cpu"}, "fakelang@0.9.1", ""},
		"name and version":     {Config{Engine: "fakelang@0.9.1"}, "fakelang@0.9.1", ""},
		"another engine":       {Config{Engine: "vllm@0.9.1"}, "", `--engine: "vllm@0.9.1" is no version of fakelang, which adapter fake drives; expected VERSION or fakelang@VERSION`},
		"half a name":          {Config{Engine: "fakelang@"}, "", "is no version of fakelang"},
		"near miss":            {Config{Engine: "0.9.11"}, "", `unknown version "0.9.11" of fakelang on cpu (did you mean "0.9.1"?); expected one of 0.9.1, 0.9.2, 0.10.0`},
		"not installed":        {Config{Engine: "0.10.0"}, "", "fakelang@0.10.0 is not installed for cpu; install it with: conform engine install fakelang@0.10.0"},
		"device":               {Config{Device: "cdua"}, "", `--device: unknown device "cdua" (did you mean "cuda"?); expected cpu or cuda`},
		"nothing for a device": {Config{Device: "cuda"}, "", "and there is none"},
		"model":                {Config{Model: "/nowhere"}, "", "--model: there is no folder /nowhere"},
		"defect":               {Config{Defect: "free-at-cancel"}, "", "--defect: adapter fake has no defects"},
		"port":                 {Config{Port: 9}, "", "--port: clients of adapter fake"},
		"connector":            {Config{Modes: []string{"rdna"}}, "", `--connector: unknown connector "rdna" (did you mean "rdma"?); expected tcp or rdma`},
		"scenario":             {Config{Scenarios: []string{"baseline"}}, "", "--scenario: scenario baseline does not apply to adapter fake"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.kit = fakeKit(&fakeEngine{}, fakeWorkload())
			cells, err := c.cfg.cells(t.Context())
			if c.refusal != "" {
				require.ErrorContains(t, err, c.refusal)
				_, usage := errors.AsType[*UsageError](err)
				_, missing := errors.AsType[*engines.NotInstalledError](err)
				require.True(t, usage != missing)
				return
			}
			require.NoError(t, err)
			require.Len(t, cells, 2)
			require.Equal(t, c.spec, c.cfg.engine.spec())
			require.Equal(t, 1, c.cfg.Jobs)
		})
	}
}

func TestNothingInstalledNamesTheNewestKnown(t *testing.T) {
	cfg := Config{kit: fakeKit(&fakeEngine{}, fakeWorkload())}
	cfg.kit.engines = func() (shelf, error) { return fakeShelf{known: []string{"0.9.1", "0.10.0"}}, nil }
	_, err := cfg.cells(t.Context())
	require.ErrorContains(t, err, "conform engine install fakelang@0.10.0")
}

func TestDryRunOfAnEngine(t *testing.T) {
	text, err := DryRun(t.Context(), Config{kit: fakeKit(&fakeEngine{}, fakeWorkload()), EngineArgs: []string{"--x"}})
	require.NoError(t, err)
	require.Contains(t, text, "# plain, connector tcp, seed 1: 18 requests by 3 clients\n")
	require.Contains(t, text, "fake 0.9.2 cpu tcp [--scenario --x] [A=1]")
}

// The real shelf, empty.
func TestEmptyStore(t *testing.T) {
	t.Setenv(engines.RootVariable, t.TempDir())
	t.Setenv(engines.LocksVariable, "")
	s, err := openStore()
	require.NoError(t, err)
	versions := s.versions("sglang", engines.CPU)
	require.Contains(t, versions, "0.5.23")
	_, err = s.find(context.Background(), "sglang@0.5.23", engines.CPU)
	_, missing := errors.AsType[*engines.NotInstalledError](err)
	require.True(t, missing)
	t.Setenv(engines.LocksVariable, "/nowhere")
	_, err = openStore()
	require.Error(t, err)
}
