package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"conform/adapters"
	"conform/adapters/engines"
	"conform/spec"
	"conform/traces"
)

// fakeShelf has versions of an engine; those of installed are there.
type fakeShelf struct{ known, installed []string }

func (s fakeShelf) versions(name, device string) []string {
	if name != "fakelang" || device != engines.CPU {
		return nil
	}
	return s.known
}

func (s fakeShelf) find(_ context.Context, spec, device string) (string, error) {
	_, version, _ := strings.Cut(spec, "@")
	switch {
	case slices.Contains(s.installed, version) && device == engines.CPU:
		return "digest of " + spec, nil
	case slices.Contains(s.known, version) && device == engines.CPU:
		return "", &engines.NotInstalledError{Spec: spec, Device: device}
	}
	return "", &engines.UnknownError{Spec: spec, Device: device, Known: s.known}
}

// fakeEngine is an adapter whose stack is this process: one decode worker that
// answers each token with its neighbour. What it is asked for, it remembers.
type fakeEngine struct {
	hooks    string // of its source line
	forgets  bool   // it takes no reference answers
	openErr  error
	more     []adapters.Worker // that run and record nothing
	mu       sync.Mutex
	opened   []adapters.Config
	closed   int
	started  []adapters.Config
	answers  map[string]bool // prompts whose answer it knows, as text
	baseline int             // prompts
	aborts   []string
	filled   []string
	pairs    map[[2]int]int // requests by their workers
}

func (*fakeEngine) Info() adapters.Info {
	return adapters.Info{Name: "fake", Title: "a fake", Modes: []string{"tcp", "rdma"}, Level: spec.L2, Engine: "fakelang"}
}

func (*fakeEngine) Limits(adapters.Config) adapters.Limits {
	return adapters.Limits{PrefillTokens: 64, DecodeTokens: 128, ContextTokens: 512}
}

func (*fakeEngine) Pace() adapters.Pace {
	return adapters.Pace{
		Start: 20 * time.Second, Work: 20 * time.Second, Settle: 10 * time.Second, Stop: 10 * time.Second, Answer: 10 * time.Second,
		Vocab: [2]int32{3, 1002}, PageTokens: 16,
	}
}

func (f *fakeEngine) Describe(cfg adapters.Config) (string, error) {
	return fmt.Sprintf("fake %s %s %s %v %v", cfg.Version, cfg.Device, cfg.Mode, cfg.Args, cfg.Env), nil
}

func (f *fakeEngine) Open(_ context.Context, cfg adapters.Config) error {
	f.opened = append(f.opened, cfg)
	return f.openErr
}

func (f *fakeEngine) Close() error {
	f.closed++
	return nil
}

func (f *fakeEngine) Baseline(_ context.Context, _ adapters.Config, prompts []adapters.Prompt) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.baseline += len(prompts)
	if f.answers == nil {
		f.answers = map[string]bool{}
	}
	for _, p := range prompts {
		f.answers[fmt.Sprint(p.Tokens)] = !f.forgets
	}
	return nil
}

func (f *fakeEngine) Start(_ context.Context, cfg adapters.Config) (adapters.Stack, error) {
	f.mu.Lock()
	f.started = append(f.started, cfg)
	f.mu.Unlock()
	clock, name := traces.Monotonic()
	w, err := traces.Create(cfg.Dir, "decode-0", traces.WriterOptions{Clock: clock})
	if err != nil {
		return nil, err
	}
	s := &fakeStack{f: f, w: w, cfg: cfg, gone: map[string]context.CancelFunc{}}
	src := spec.Event{K: spec.KindSource, Worker: "decode-0", Role: spec.RoleDecode, Host: cfg.Host, Clock: name, Probe: "fake 1", Engine: "fakelang@" + cfg.Version}
	if f.hooks != "" {
		src.Hooks = json.RawMessage(f.hooks)
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	s.record(src)
	s.record(spec.Event{K: spec.KindPool, Pool: "kv", Count: 8, What: "kv"})
	s.record(spec.Event{K: spec.KindCapacity, Stage: "decode", Limit: 128, Unit: "token", Why: "the pool"})
	return s, nil
}

type fakeStack struct {
	f    *fakeEngine
	w    *traces.Writer
	cfg  adapters.Config
	conn net.Conn
	wg   sync.WaitGroup

	mu     sync.Mutex
	sealed bool
	gone   map[string]context.CancelFunc
	stops  []string
}

// connect speaks the failpoint protocol as a probe does: it hands over every
// event, and ends its recording when it is told to.
func (s *fakeStack) connect() (err error) {
	if s.conn, err = net.Dial("tcp", s.cfg.Failpoint); err != nil {
		return err
	}
	if _, err = fmt.Fprintln(s.conn, `{"protocol":"conform-failpoint/1","worker":"decode-0","seals":true}`); err != nil {
		return err
	}
	lines := bufio.NewScanner(s.conn)
	lines.Scan() // the hello
	s.wg.Go(func() {
		for lines.Scan() {
			if lines.Text() != "S" {
				continue
			}
			s.mu.Lock()
			s.sealed = true
			s.mu.Unlock()
			_ = s.w.Seal()
			fmt.Fprintln(s.conn, "D")
		}
	})
	return nil
}

func (s *fakeStack) record(e spec.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.w.Record(e)
	fmt.Fprintf(s.conn, "T%s\n", e.AppendJSON(nil))
}

func (s *fakeStack) Generate(ctx context.Context, r adapters.Request) (adapters.Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.f.mu.Lock()
	if s.f.pairs == nil {
		s.f.pairs = map[[2]int]int{}
	}
	s.f.pairs[[2]int{r.Prefill, r.Decode}]++
	s.f.mu.Unlock()
	s.mu.Lock()
	s.gone[r.ID] = cancel
	s.mu.Unlock()
	s.record(spec.Event{K: spec.KindAdmit, Req: r.ID})
	a := adapters.Answer{Status: 200, Tokens: s.answer(r.Prompt, r.Output), Outcome: spec.OutcomeOK}
	if r.Output >= 50 { // as long as a client waits
		<-ctx.Done()
		a = adapters.Answer{Status: 499, Outcome: spec.OutcomeCancelled}
	}
	s.record(spec.Event{K: spec.KindFinish, Req: r.ID, Result: a.Outcome})
	return a, nil
}

func (*fakeStack) answer(prompt []int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = prompt[i%len(prompt)] + 1
	}
	return out
}

func (s *fakeStack) Abort(_ context.Context, id string, at spec.Role) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.f.aborts = append(s.f.aborts, id+"@"+string(at))
	s.gone[id]()
	return nil
}

func (s *fakeStack) Fill(_ context.Context, worker string, tokens, output int) error {
	s.f.filled = append(s.f.filled, fmt.Sprintf("%s %d %d", worker, tokens, output))
	return nil
}

func (s *fakeStack) Served() map[string]any {
	return map[string]any{"decode-0": map[string]any{"asked": 3, "bound": 2, "fired": map[string]int{"alloc": 4, "free": 0}}}
}

func (s *fakeStack) Reference(prompt []int32, n int) []int32 {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !s.f.answers[fmt.Sprint(prompt)] {
		return nil
	}
	return s.answer(prompt, n)
}

func (s *fakeStack) Workers() []adapters.Worker {
	return append([]adapters.Worker{{ID: "decode-0", Role: spec.RoleDecode, Pools: true}}, s.f.more...)
}
func (s *fakeStack) Limits() adapters.Limits                    { return s.f.Limits(s.cfg) }
func (s *fakeStack) Idle(context.Context) (bool, string, error) { return true, "", nil }
func (s *fakeStack) Unknown() int                               { return 0 }

func (s *fakeStack) note(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, what)
	return nil
}
func (s *fakeStack) Pause(_ context.Context, w string) error   { return s.note("pause " + w) }
func (s *fakeStack) Resume(_ context.Context, w string) error  { return s.note("resume " + w) }
func (s *fakeStack) Kill(_ context.Context, w string) error    { return s.note("kill " + w) }
func (s *fakeStack) Restart(_ context.Context, w string) error { return s.note("restart " + w) }

// Stop ends it as a signal would: what was not sealed before is not.
func (s *fakeStack) Stop(context.Context) error {
	err := s.conn.Close()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sealed {
		return errors.Join(err, errors.New("nobody sealed it"))
	}
	return err
}
