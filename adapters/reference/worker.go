package reference

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"conform/faults"
	"conform/faults/failpoint"
	"conform/faults/zmtp"
	"conform/spec"
	"conform/traces"
)

// workerEnv names the variable that makes a process a worker.
const workerEnv = "CONFORM_REFERENCE_WORKER"

// ready is what a worker says on its standard output once it serves.
type ready struct {
	HTTP string `json:"http"`
	Ctl  string `json:"ctl,omitempty"`
	NIC  string `json:"nic,omitempty"`
}

// Main runs this process as a worker of the reference stack if its environment
// says so, and reports whether it did. A program that starts the stack must call
// it first thing in main (a test: in TestMain).
func Main() bool {
	text, ok := os.LookupEnv(workerEnv)
	if !ok {
		return false
	}
	os.Unsetenv(workerEnv)
	if err := runWorker(text); err != nil {
		fmt.Fprintln(os.Stderr, "conform reference worker:", err)
		os.Exit(1)
	}
	return true
}

// stage is what the roles differ in. All its methods run on the scheduler.
type stage interface {
	routes(mux *http.ServeMux)
	message(m *Message) // a control message that is addressed to this incarnation
	step(now time.Time) // one round of the scheduler
	load() load
	pools() []*pool
}

// worker is one process: a scheduler thread that owns all state, and threads
// for HTTP, control messages, transfers and the NIC that hand their work to it.
type worker struct {
	cfg   workerConfig
	rec   *traces.Writer
	fail  *failpoint.Client
	nic   *NIC
	ctl   *zmtp.Pull
	push  map[string]*zmtp.Push
	http  *http.Server
	inbox chan func()
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup

	stage stage
	byID  map[string]*pool
	idMu  sync.Mutex
	ids   int
}

func runWorker(text string) error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return fmt.Errorf("configuration in %s: %w", workerEnv, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &worker{cfg: cfg, ctx: ctx, stop: stop, inbox: make(chan func(), 1024), push: map[string]*zmtp.Push{}, byID: map[string]*pool{}}
	if err := w.open(); err != nil {
		return err
	}
	orderly := w.serve()
	return w.close(orderly)
}

func (w *worker) open() error {
	clock, clockName := traces.Monotonic()
	if w.cfg.Failpoint != "" {
		fail, err := failpoint.Connect(w.ctx, w.cfg.Failpoint, w.cfg.ID)
		if err != nil {
			return fmt.Errorf("failpoint server: %w", err)
		}
		w.fail = fail
	}
	opt := traces.WriterOptions{Clock: clock}
	if w.fail != nil {
		opt.Tap = w.fail.Tap
	}
	rec, err := traces.Create(w.cfg.Dir, w.cfg.ID, opt)
	if err != nil {
		return err
	}
	w.rec = rec
	w.record(spec.Event{
		K: spec.KindSource, Worker: w.cfg.ID, Role: w.cfg.Role, Host: w.cfg.Host, Clock: clockName,
		PID: int64(os.Getpid()), Engine: "reference", Probe: "built in",
	})
	switch w.cfg.Role {
	case spec.RolePrefill:
		w.stage = newPrefill(w)
	case spec.RoleDecode:
		w.stage = newDecode(w)
	case spec.RoleRouter:
		w.stage = newRouter(w)
	default:
		return fmt.Errorf("role %q: expected router, prefill or decode", w.cfg.Role)
	}
	return w.listen()
}

func (w *worker) listen() error {
	for _, p := range w.stage.pools() {
		w.byID[p.name] = p
		w.record(spec.Event{K: spec.KindPool, Pool: p.name, Count: int64(p.count), Bytes: int64(p.size), What: p.what})
	}
	if len(w.byID) > 0 {
		nic, err := newNIC(cmp.Or(w.cfg.NIC, "127.0.0.1:0"), w.byID)
		if err != nil {
			return err
		}
		if w.cfg.Defect == defStaleReference {
			nic.key = rawKey
		}
		if w.cfg.Defect != defSameIdentity {
			nic.self = w.cfg.ID
		}
		w.nic = nic
		ctl, err := zmtp.Listen("127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		w.ctl = ctl
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", w.handleInfo)
	mux.HandleFunc("GET /load", w.handleLoad)
	w.stage.routes(mux)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("HTTP: %w", err)
	}
	w.http = &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return w.ctx }}
	w.spawn(func() { _ = w.http.Serve(ln) })
	say := ready{HTTP: ln.Addr().String()}
	if w.ctl != nil {
		say.Ctl, say.NIC = w.ctl.Addr(), w.nic.Addr()
		w.spawn(w.receive)
	}
	return json.NewEncoder(os.Stdout).Encode(say)
}

func (w *worker) spawn(f func()) {
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		f()
	}()
}

// serve runs the scheduler until the harness says stop, or is gone. It reports
// whether the end was asked for.
func (w *worker) serve() (orderly bool) {
	ended := make(chan bool, 1)
	go func() { // reads the standard input until the process ends
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		ended <- strings.TrimSpace(line) == "stop"
	}()
	tick := time.NewTicker(w.cfg.Limits.Step)
	defer tick.Stop()
	for {
		select {
		case f := <-w.inbox:
			f()
		case <-tick.C:
			w.stage.step(w.now())
		case orderly = <-ended:
			return orderly
		}
	}
}

func (w *worker) close(orderly bool) error {
	busy := !w.stage.load().idle()
	w.stop()
	w.http.Close()
	if w.ctl != nil {
		w.ctl.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	for _, p := range w.push {
		_ = p.Close(ctx) // what was not sent by now has nobody to read it
	}
	if !orderly {
		return w.rec.Close()
	}
	if w.nic != nil {
		w.nic.Close()
	}
	done := make(chan struct{})
	go func() { w.wg.Wait(); close(done) }()
	drain := time.After(2 * time.Second)
	for {
		select {
		case f := <-w.inbox: // so that no thread waits for the scheduler for ever
			f()
		case <-done:
			if busy { // it was stopped, it did not come to its end: no seal
				return w.rec.Close()
			}
			return w.rec.Seal()
		case <-drain:
			return errors.Join(errors.New("threads that did not end within 2 s of the stop"), w.rec.Close())
		}
	}
}

// receive hands control messages to the scheduler.
func (w *worker) receive() {
	for {
		frames, err := w.ctl.Recv(w.ctx)
		if err != nil {
			return
		}
		m, err := decodeMessage(frames)
		if err != nil {
			fmt.Fprintln(os.Stderr, "control socket:", err)
			continue
		}
		w.post(func() { w.take(m) })
	}
}

// take observes a control message on the scheduler. One for another incarnation
// is stale by its address and changes nothing.
func (w *worker) take(m *Message) {
	w.record(spec.Event{K: spec.KindObserve, Sig: m.Sig, Signal: m.Signal, Handoff: m.Handoff, Req: m.Req})
	if m.To == w.cfg.ID {
		w.stage.message(m)
	}
}

// post runs f on the scheduler, later. It gives up when the worker ends.
func (w *worker) post(f func()) {
	select {
	case w.inbox <- f:
	case <-w.ctx.Done():
	}
}

// call runs f on the scheduler and waits for it.
func (w *worker) call(ctx context.Context, f func()) error {
	done := make(chan struct{})
	w.post(func() { defer close(done); f() })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// now is the time of this worker's own clock, by which every deadline is set.
func (w *worker) now() time.Time { return time.Now().Add(w.cfg.Clock) }

func (w *worker) record(e spec.Event) { w.rec.Record(e) }

// publish makes sure that what was recorded so far is in the file: called before
// anything that another process can see, so that a crash never loses the cause
// of an effect which somebody else recorded.
func (w *worker) publish() { _ = w.rec.Flush() } // the error is sticky: Seal returns it

// nextID makes a unique id of a signal or an access.
func (w *worker) nextID(kind string) string {
	w.idMu.Lock()
	defer w.idMu.Unlock()
	w.ids++
	return fmt.Sprintf("%s.%s%d", w.cfg.ID, kind, w.ids)
}

// send emits a control message to the PULL socket at addr.
func (w *worker) send(addr string, m *Message, asks string) {
	m.Sig, m.From = w.nextID("s"), w.cfg.ID
	w.record(spec.Event{
		K: spec.KindEmit, Sig: m.Sig, Signal: m.Signal, Handoff: m.Handoff, Req: m.Req,
		To: m.To, Claims: claims(m.Signal), Asks: asks,
	})
	w.publish()
	p := w.push[addr]
	if p == nil {
		p = zmtp.Dial(addr, zmtp.DialOptions{})
		w.push[addr] = p
	}
	// Far above how long a busy machine keeps this thread from its processor: else a
	// message with room in the queue would be lost by chance.
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	// A full queue means a peer that is gone: the message is as good as lost, which
	// the protocol has to bear anyway. The scheduler must not wait.
	_ = p.Send(ctx, m.encode())
}

func (w *worker) handleInfo(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusOK, info{Worker: w.cfg.ID, Role: string(w.cfg.Role)})
}

func (w *worker) handleLoad(rw http.ResponseWriter, r *http.Request) {
	var l load
	if err := w.call(r.Context(), func() { l = w.stage.load() }); err != nil {
		writeJSON(rw, http.StatusServiceUnavailable, legAnswer{Error: err.Error()})
		return
	}
	writeJSON(rw, http.StatusOK, l)
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(v) // the client may be gone
}

// readJSON reads a request's body, which is small and known.
func readJSON(r *http.Request, v any) error {
	dec := json.NewDecoder(io.LimitReader(r.Body, wireMaxBytes))
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice a client that leaves
	return nil
}

// capacity records what this stage can process, as opposed to what is configured.
func (w *worker) capacity(limit int, why string) {
	w.record(spec.Event{K: spec.KindCapacity, Stage: string(w.cfg.Role), Limit: int64(limit), Unit: "token", Why: why})
}

func (w *worker) passes(p faults.Point) faults.Action {
	if w.fail == nil {
		return faults.Action{}
	}
	return w.fail.Pass(w.ctx, p)
}
