package launch

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/engines"
	"conform/adapters/engines/tinymodel"
)

// versionsVariable names further versions for the real-engine test, such as
// "0.5.18 0.5.20"; "plain" among them adds a start without the fork server.
const versionsVariable = "CONFORM_LAUNCH_SGLANG"

var sglangPreload = []string{
	"sglang.launch_server", "sglang.srt.entrypoints.http_server", "sglang.srt.managers.scheduler",
	"sglang.srt.managers.detokenizer_manager", "sglang.srt.models.llama", "sglang.srt.entrypoints.engine",
}

// pair are the specs of a prefill and a decode worker of SGLang on the CPU.
func pair(t *testing.T, env *engines.Environment, model, dir string, exits chan Exit) []Spec {
	common := strings.Fields(`--skip-tokenizer-init --device cpu --dtype float32 --attention-backend torch_native --sampling-backend pytorch
		--grammar-backend none --max-total-tokens 1024 --max-running-requests 8 --chunked-prefill-size 512 --context-length 2048
		--disable-cuda-graph --disable-overlap-schedule --skip-server-warmup --host 127.0.0.1 --log-level info --random-seed 1
		--page-size 16 --sleep-on-idle --num-reserved-decode-tokens 16 --disaggregation-transfer-backend mooncake --model-path ` + model)
	var specs []Spec
	for _, role := range []string{"prefill", "decode"} {
		argv := append([]string{"--disaggregation-mode", role, "--port", port(t), "--nccl-port", port(t)}, common...)
		if role == "prefill" {
			argv = append(argv, "--disaggregation-bootstrap-port", port(t))
		} else {
			argv = append(argv, "--disaggregation-decode-retraction-backup", "cpu_tensor")
		}
		specs = append(specs, Spec{
			Worker: role + "-0", Argv: argv, Env: sglangEnv(env), Log: filepath.Join(dir, role+"-0.log"),
			Ready: "The server is fired up and ready to roll!", Failed: []string{"Received sigquit from a child process"},
			OnExit: func(e Exit) { exits <- e },
		})
	}
	return specs
}

func sglangEnv(env *engines.Environment) []string {
	return append(env.Environ(os.Environ()), "SGLANG_USE_CPU_ENGINE=1", "SGLANG_HOST_IP=127.0.0.1", "OMP_NUM_THREADS=1",
		"HF_HUB_OFFLINE=1", "MC_FORCE_TCP=1", "MC_TCP_ENABLE_CONNECTION_POOL=true")
}

func port(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// startPair starts both workers at once and logs what it took.
func startPair(ctx context.Context, t *testing.T, l Launcher, specs []Spec) []*Process {
	began := time.Now()
	out := make([]*Process, len(specs))
	errs := make(chan error, len(specs))
	for i, s := range specs {
		go func() {
			var err error
			out[i], err = l.Start(ctx, s)
			errs <- err
		}()
	}
	for range specs {
		require.NoError(t, <-errs)
	}
	t.Logf("the pair serves after %.1f s", time.Since(began).Seconds())
	for _, p := range out {
		t.Log(p.Members())
		require.GreaterOrEqual(t, len(p.Parts()), 3, "the server, the scheduler, the detokenizer")
	}
	return out
}

func TestSGLang(t *testing.T) {
	asked := strings.Fields(os.Getenv(versionsVariable))
	for _, version := range append([]string{"0.5.23"}, asked...) {
		if version == "plain" {
			t.Run(version, func(t *testing.T) { testSGLang(t, "0.5.23", true) })
		} else {
			t.Run(version, func(t *testing.T) { testSGLang(t, version, false) })
		}
	}
}

func testSGLang(t *testing.T, version string, asPerson bool) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	env, err := engines.Find(t.Context(), "sglang@"+version, engines.CPU)
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	_, err = tinymodel.Write(model, tinymodel.Seed)
	require.NoError(t, err)
	var l Launcher = Plain(env, "sglang.launch_server")
	if !asPerson {
		script, err := os.ReadFile("../../sglang/serve/serve.py")
		require.NoError(t, err)
		began := time.Now()
		l, err = NewForkServer(ctx, env, ForkOptions{
			Dir: dir, Script: string(script), Module: "sglang.launch_server", Preload: sglangPreload, Env: sglangEnv(env),
		})
		require.NoError(t, err)
		t.Logf("the fork server is ready after %.1f s, %s", time.Since(began).Seconds(), rss(l.(*ForkServer).PID()))
	}
	defer func() { require.NoError(t, l.Close()) }()
	exits := make(chan Exit, 8)
	specs := pair(t, env, model, dir, exits)
	t.Log(l.Describe(specs[0]))
	ps := startPair(ctx, t, l, specs)
	for _, p := range ps {
		require.NoError(t, p.Kill())
		<-p.Done()
		require.True(t, (<-exits).Expected)
	}
	testSGLangFailing(ctx, t, l, pair(t, env, model, dir, exits), exits)
}

// testSGLangFailing has one worker lose its scheduler, and one refuse its arguments.
func testSGLangFailing(ctx context.Context, t *testing.T, l Launcher, specs []Spec, exits chan Exit) {
	ps := startPair(ctx, t, l, specs)
	var scheduler Member
	for _, m := range ps[1].Parts() {
		if strings.Contains(m.Name, "sched") {
			scheduler = m
		}
	}
	require.NotZero(t, scheduler.PID, ps[1].Parts())
	require.NoError(t, syscall.Kill(scheduler.PID, syscall.SIGKILL))
	began := time.Now()
	e := <-exits
	t.Logf("told after %.1f s: %v\n%s", time.Since(began).Seconds(), e, e.Log)
	require.Equal(t, "decode-0", e.Worker)
	require.False(t, e.Expected)
	require.Contains(t, e.Part, scheduler.Name)
	bad := specs[0]
	bad.Argv, bad.Log = append([]string{"--no-such-argument"}, bad.Argv...), bad.Log+".bad"
	_, err := l.Start(ctx, bad)
	require.ErrorContains(t, err, "no-such-argument")
}

func rss(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "VmRSS") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return ""
}
