package sglang

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/spec"
)

// option is what follows an option in an argv; "" if it is not there.
func option(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

func variable(env []string, name string) (value string, found bool) {
	for _, pair := range env {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			value, found = v, true // of a name the last counts
		}
	}
	return value, found
}

func TestWorkersOfATopology(t *testing.T) {
	require.Equal(t, []worker{{id: "prefill-0", role: spec.RolePrefill, ranks: 1}, {id: "decode-0", role: spec.RoleDecode, ranks: 1}}, workers(adapters.Topology{}))
	all := workers(adapters.Topology{Prefill: 2, Decode: 3, PrefillTP: 2})
	var ids []string
	for _, w := range all {
		ids = append(ids, fmt.Sprintf("%s/%d/%d", w.id, w.index, w.ranks))
	}
	require.Equal(t, []string{"prefill-0/0/2", "prefill-1/1/2", "decode-0/0/1", "decode-1/1/1", "decode-2/2/1"}, ids)
	require.Equal(t, []string{"w", "w.r1"}, []string{rankName("w", 0), rankName("w", 1)})
}

func TestArgv(t *testing.T) {
	p := worker{id: "prefill-0", role: spec.RolePrefill, ranks: 1, ports: ports{http: 1, bootstrap: 2, nccl: 3}}
	d := worker{id: "decode-0", role: spec.RoleDecode, ranks: 2, ports: ports{http: 4, bootstrap: 5, nccl: 6}}
	cfg := adapters.Config{Mode: NIXL, Device: engines.CPU, Args: []string{"--page-size", "32"}, Limits: adapters.Limits{PrefillBlocks: 10, DecodeBlocks: 20}}
	argv := p.argv(cfg, "/m")
	for name, want := range map[string]string{
		"--model-path": "/m", "--port": "1", "--disaggregation-bootstrap-port": "2", "--nccl-port": "3", "--disaggregation-mode": "prefill",
		"--disaggregation-transfer-backend": "nixl", "--max-total-tokens": "160", "--device": "cpu", "--host": "127.0.0.1", "--tp-size": "",
		"--disaggregation-decode-retraction-backup": "",
	} {
		require.Equal(t, want, option(argv, name), name)
	}
	require.Equal(t, []string{"--page-size", "32"}, argv[len(argv)-2:], "the user's come last, so that they count")
	argv = d.argv(cfg, "/m")
	for name, want := range map[string]string{
		"--disaggregation-mode": "decode", "--max-total-tokens": "320", "--tp-size": "2", "--disaggregation-bootstrap-port": "",
		"--disaggregation-decode-retraction-backup": "cpu_tensor",
	} {
		require.Equal(t, want, option(argv, name), name)
	}
	cfg.Device = engines.CUDA
	argv = d.argv(cfg, "/m")
	for _, name := range []string{"--device", "--attention-backend", "--disaggregation-decode-retraction-backup"} {
		require.NotContains(t, argv, name, "a GPU's own defaults are what is tested")
	}
	base := baselineArgv(cfg, "/m", p.ports)
	require.NotContains(t, base, "--disaggregation-mode")
	require.NotContains(t, base, "--device")
	cfg.Device = engines.CPU
	require.Equal(t, "cpu", option(baselineArgv(cfg, "/m", p.ports), "--device"))
}

func TestEnvironment(t *testing.T) {
	w := worker{id: "prefill-0", role: spec.RolePrefill, ranks: 3}
	cfg := adapters.Config{Device: engines.CPU, Env: []string{"OMP_NUM_THREADS=7"}, Limits: adapters.Limits{HandoffTimeout: 1500 * time.Millisecond}}
	env := w.environment(cfg, "/t")
	for name, want := range map[string]string{
		"TMPDIR": "/t", "MC_FORCE_TCP": "1", "OMP_NUM_THREADS": "7", "SGLANG_CPU_OMP_THREADS_BIND": "0|1|2",
		"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "1.5", "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "1.5", "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": "5",
	} {
		got, _ := variable(env, name)
		require.Equal(t, want, got, name)
	}
	const deferred = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT"
	_, found := variable(env, deferred)
	require.False(t, found, "the build's own default is what is tested")
	cfg.Limits.AbortTimeout = 300 * time.Millisecond
	got, _ := variable(w.environment(cfg, "/t"), deferred)
	require.Equal(t, "0.3", got)
	cfg.Device = engines.CUDA
	env = w.environment(cfg, "/t")
	for _, name := range []string{"MC_FORCE_TCP", "SGLANG_CPU_OMP_THREADS_BIND", "SGLANG_NCCL_SO_PATH"} {
		_, found := variable(env, name)
		require.False(t, found, name)
	}
}

func TestProbeVariable(t *testing.T) {
	cfg := adapters.Config{Version: "0.5.23", Mode: Mooncake, Device: "cpu", Dir: "run", Host: "h", Failpoint: "127.0.0.1:1", Topology: adapters.Topology{DecodeTP: 2}}
	text, err := worker{id: "decode-0", role: spec.RoleDecode, ranks: 2}.probe(cfg, "clock", map[string]string{"7": "prefill-0"})
	require.NoError(t, err)
	var got probeConfig
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(text, probeVariable+"=")), &got))
	require.True(t, filepath.IsAbs(got.Dir))
	require.Equal(t, "events", filepath.Base(got.Dir))
	got.Dir = ""
	require.Equal(t, probeConfig{
		Worker: "decode-0", Role: spec.RoleDecode, Host: "h", Clock: "clock", Engine: "sglang@0.5.23", Failpoint: "127.0.0.1:1",
		Connector: Mooncake, Device: "cpu", Prefills: map[string]string{"7": "prefill-0"}, PrefillRanks: 1, DecodeRanks: 2,
	}, got)
	text, err = patched("baseline", cfg)
	require.NoError(t, err)
	require.Contains(t, text, `"role":""`, "such a worker records nothing")
}

func TestLimits(t *testing.T) {
	l := New().Limits(adapters.Config{})
	require.Equal(t, 64, l.PrefillBlocks)
	require.Equal(t, 64*pageTokens-intakeMargin, l.PrefillTokens)
	require.Equal(t, 64*pageTokens-intakeMargin-pageTokens, l.DecodeTokens)
	require.Equal(t, 20*time.Second, l.HandoffTimeout)
	l = limitsOf(adapters.Limits{PrefillBlocks: 1000, DecodeBlocks: 10, ContextTokens: 512, Heartbeat: time.Second})
	require.Equal(t, 512-intakeMargin, l.PrefillTokens, "the context is shorter than the pool")
	require.Equal(t, 160-intakeMargin-pageTokens, l.DecodeTokens)
	require.Equal(t, time.Second, l.Heartbeat)
	require.Equal(t, l, limitsOf(l), "they are effective already")
}

func TestRooms(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range 1000 {
		id := fmt.Sprintf("r-%04d", i)
		room, err := roomFor(adapters.Request{ID: id})
		require.NoError(t, err)
		require.NotZero(t, room)
		require.Less(t, room, uint64(1)<<62)
		require.Equal(t, roomOf(id), room, "a seed gives the same rooms again")
		require.False(t, seen[room])
		seen[room] = true
	}
	for text, want := range map[string]uint64{"room-7": 7, "7": 7, "room-7#2": 7, "room-9223372036854775807": 1<<63 - 1} {
		room, err := roomFor(adapters.Request{ID: "r", Handoff: text})
		require.NoError(t, err, text)
		require.Equal(t, want, room, text)
	}
	for _, text := range []string{"room-", "room-x", "room--1", "room-9223372036854775808", "#1", "rooms-7"} {
		_, err := roomFor(adapters.Request{ID: "r", Handoff: text})
		require.ErrorIs(t, err, adapters.ErrUnsupported, text)
	}
}

func TestPorts(t *testing.T) {
	got, err := freePorts(50)
	require.NoError(t, err)
	require.Len(t, got, 50)
	low, high := handedOut()
	for i, port := range got {
		require.False(t, port >= low && port <= high, "the system hands %d out by itself", port)
		require.NotContains(t, got[:i], port)
		ln, err := net.Listen("tcp", local(port))
		require.NoError(t, err)
		require.NoError(t, ln.Close())
	}
	_, err = freePorts(highestPort)
	require.ErrorIs(t, err, errNoPorts)
}

func TestAnswers(t *testing.T) {
	dir := t.TempDir()
	model := strings.Repeat("a", 64)
	a := openAnswers(dir, "0.5.23", "cpu", model)
	require.Nil(t, a.get([]int32{1}, 1))
	a.put([]int32{1}, []int32{5, 6, 7})
	a.put([]int32{1}, []int32{5}) // shorter: nothing is forgotten
	require.Equal(t, []int32{5, 6}, a.get([]int32{1}, 2))
	require.Nil(t, a.get([]int32{1}, 4))
	require.Nil(t, a.get([]int32{2}, 1))
	require.Equal(t, []int32{5, 6, 9}, append(a.get([]int32{1}, 2), 9))
	require.Equal(t, []int32{5, 6, 7}, a.get([]int32{1}, 3), "what a caller appends to is its own")
	require.Equal(t, []adapters.Prompt{{Tokens: []int32{1}, Output: 4}, {Tokens: []int32{2}, Output: 1}},
		a.missing([]adapters.Prompt{{Tokens: []int32{1}, Output: 4}, {Tokens: []int32{1}, Output: 3}, {Tokens: []int32{2}, Output: 1}}))
	require.NoError(t, a.save())
	require.Equal(t, []int32{5, 6, 7}, openAnswers(dir, "0.5.23", "cpu", model).get([]int32{1}, 3))
	require.Nil(t, openAnswers(dir, "0.5.23", "cuda", model).get([]int32{1}, 3), "another device computes otherwise")
	require.Nil(t, openAnswers(dir, "0.5.20", "cpu", model).get([]int32{1}, 3))
	require.NotEqual(t, promptKey([]int32{1, 2}), promptKey([]int32{1, 3}))
}

func TestAnswersFileIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	model := strings.Repeat("a", 64)
	for name, text := range map[string]string{"torn": `{"a":[1,2`, "other": `[1]`, "null": `null`, "types": `{"a":"x"}`, "empty": ``} {
		a := openAnswers(dir, "v", "cpu", model)
		require.NoError(t, os.WriteFile(a.path, []byte(text), 0o600))
		a = openAnswers(dir, "v", "cpu", model)
		require.Empty(t, a.known, name)
		a.put([]int32{1}, []int32{2})
		require.NoError(t, a.save(), name)
		require.Len(t, openAnswers(dir, "v", "cpu", model).known, 1, name)
	}
	a := openAnswers(dir, "v", "cpu", model)
	require.NoError(t, os.Truncate(a.path, maxAnswerFile+1))
	require.Empty(t, openAnswers(dir, "v", "cpu", model).known, "too large")
	require.NoError(t, os.Remove(a.path))
	require.NoError(t, os.Mkdir(a.path, 0o700))
	a = openAnswers(dir, "v", "cpu", model)
	a.put([]int32{1}, []int32{2})
	require.Error(t, a.save())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file is left")
}

// Two runs at once keep each other's answers, and a file that is read is whole.
func TestAnswersOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	model := strings.Repeat("b", 64)
	one, two := openAnswers(dir, "v", "cpu", model), openAnswers(dir, "v", "cpu", model)
	one.put([]int32{1}, []int32{1})
	two.put([]int32{2}, []int32{2})
	require.NoError(t, one.save())
	require.NoError(t, two.save())
	require.Len(t, openAnswers(dir, "v", "cpu", model).known, 2)
	var wg sync.WaitGroup
	for i := range int32(4) {
		wg.Go(func() {
			a := openAnswers(dir, "v", "cpu", model)
			for j := range int32(20) {
				a.put([]int32{i, j}, []int32{j})
				a.get([]int32{i, j}, 1)
				if err := a.save(); err != nil {
					t.Error(err)
				}
				if len(openAnswers(dir, "v", "cpu", model).known) < 2 {
					t.Error("a torn file")
				}
			}
		})
	}
	wg.Wait()
}

func TestUnpack(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	dir, err := unpack(cache)
	require.NoError(t, err)
	named, paths, err := probeDir(cache)
	require.NoError(t, err)
	require.Equal(t, named, dir)
	require.Greater(t, len(paths), 12)
	for _, want := range []string{"conform_sglang_probe/__init__.py", "conform_sglang_probe-1.dist-info/entry_points.txt"} {
		require.FileExists(t, filepath.Join(dir, want))
	}
	init := filepath.Join(dir, "conform_sglang_probe", "__init__.py")
	before, err := os.Stat(init)
	require.NoError(t, err)
	_, err = unpack(cache)
	require.NoError(t, err)
	again, err := os.Stat(init)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, again), "what is whole is left alone")

	for name, damage := range map[string]func() error{
		"torn":    func() error { return os.Truncate(init, 10) },
		"missing": func() error { return os.RemoveAll(filepath.Dir(init)) },
		"a file":  func() error { return os.Remove(init) },
	} {
		require.NoError(t, damage(), name)
		_, err = unpack(cache)
		require.NoError(t, err, name)
		require.True(t, holds(dir, paths), name)
	}
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing else is left")

	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	_, err = unpack(blocked)
	require.Error(t, err)
}

func TestUnpackAtOnce(t *testing.T) {
	cache := t.TempDir()
	dir, paths, err := probeDir(cache)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "conform_sglang_probe"), 0o755)) // of one that was interrupted
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := unpack(cache)
			if err != nil || got != dir {
				t.Errorf("unpacked into %q: %v", got, err)
			}
		})
	}
	wg.Wait()
	require.True(t, holds(dir, paths))
	left, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestModels(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	folder, sum, err := modelOf(cache, "")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(folder, "config.json"))
	again, sameSum, err := modelOf(cache, "")
	require.NoError(t, err)
	require.Equal(t, []string{folder, sum}, []string{again, sameSum})

	own := t.TempDir()
	_, _, err = modelOf(cache, own)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(own, "config.json"), []byte("{}"), 0o600))
	_, _, err = modelOf(cache, own)
	require.ErrorIs(t, err, errNoWeights)
	weights := filepath.Join(own, "a.safetensors")
	require.NoError(t, os.WriteFile(weights, []byte("w"), 0o600))
	_, first, err := modelOf(cache, own)
	require.NoError(t, err)
	require.Len(t, first, 64)
	require.NoError(t, os.WriteFile(weights, []byte("ww"), 0o600))
	_, second, err := modelOf(cache, own)
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte("{}"), 0o600))
	_, _, err = modelOf(cache, "")
	require.Error(t, err, "somebody has altered the built-in one")
	_, _, err = modelOf(filepath.Join(own, "config.json"), "")
	require.Error(t, err)
}

// A shell reads each line of Describe back as a command with its environment.
func TestDescribeIsForAShell(t *testing.T) {
	env, err := engines.Find(t.Context(), "sglang@0.5.23", engines.CPU)
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "a folder's name")
	text, err := New().Describe(adapters.Config{
		Version: "0.5.23", Device: engines.CPU, Mode: Mooncake, Dir: dir, Args: []string{"--json-model-override-args", `{"a": "it's"}`},
		Env: []string{"OWN=x y"}, Topology: adapters.Topology{Prefill: 2},
	})
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, lines, 3)
	for i, line := range lines {
		require.True(t, strings.Contains(line, env.Python+" "), line)
		line = strings.Replace(line, env.Python+" ", `sh -c 'printf "%s\n" "$OWN" "$PYTHONPATH" "$CONFORM_PROBE" "$@"' `, 1)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
		require.NoError(t, err, line)
		words := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		require.Equal(t, "x y", words[0])
		var probe probeConfig
		require.NoError(t, json.Unmarshal([]byte(words[2]), &probe))
		require.Equal(t, filepath.Join(dir, "events"), probe.Dir)
		require.Equal(t, `{"a": "it's"}`, words[len(words)-1])
		require.Equal(t, strconv.Itoa(30000+10*i), option(words, "--port"))
	}
	_, err = New().Describe(adapters.Config{Version: "9.9.9", Device: engines.CPU})
	require.Error(t, err)
}
