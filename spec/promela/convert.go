package promela

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"conform/spec"
	"conform/spec/explore"
)

// ErrTrail says that a line of a trail is not what the model prints.
var ErrTrail = errors.New("promela: not a trail of the model")

// Convert turns the EV lines of what spin prints along a trail into a trace.
// Other lines are left out. An EV line is: EV, who (O owner, A accessor, C client,
// H harness), the kind, the request, and what the kind needs.
func Convert(c Config, r io.Reader) (*spec.Trace, error) {
	x := &converter{c: c, w: explore.NewWriter(), flying: map[string][]string{}, open: map[string]string{}, last: map[string]string{}}
	x.begin()
	in := bufio.NewScanner(r)
	for in.Scan() {
		f := strings.Fields(in.Text())
		if len(f) == 0 || f[0] != "EV" {
			continue
		}
		if err := x.line(f[1:]); err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrTrail, in.Text(), err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("promela: %w", err)
	}
	return x.w.Trace(x.down...), nil
}

// converter gives the events of a trail their ids.
type converter struct {
	c        Config
	w        *explore.Writer
	sigs     int
	accesses int
	flying   map[string][]string // by request and kind: the signals under way
	open     map[string]string   // by who and request: the access that was begun last
	last     map[string]string   // by who: the signal that was observed last
	down     []string            // sources that crashed
}

func (x *converter) worker(who string) string {
	switch {
	case who == "C":
		return "client-0"
	case who == "H":
		return "harness-0"
	case (who == "O") == (x.c.Mode == explore.Push):
		return "decode-0"
	}
	return "prefill-0"
}

func (x *converter) begin() {
	own, acc := spec.RoleDecode, spec.RolePrefill
	if x.c.Mode == explore.Pull {
		own, acc = acc, own
	}
	x.w.Source("O", x.worker("O"), own)
	x.w.Source("A", x.worker("A"), acc)
	x.w.Source("C", x.worker("C"), spec.RoleClient)
	x.w.Source("H", x.worker("H"), spec.RoleHarness)
	x.w.Add("O", spec.Event{K: spec.KindPool, Pool: "kv", Count: int64(x.c.Blocks)})
	x.w.Add("A", spec.Event{K: spec.KindCapacity, Stage: string(acc), Limit: 1, Unit: "parts"})
}

// line adds the event of one line.
func (x *converter) line(f []string) error {
	if len(f) < 2 {
		return errors.New("too short")
	}
	who, kind, args := f[0], f[1], f[2:]
	switch kind {
	case "idle":
		x.idle()
		return nil
	case "exit":
		if len(args) != 1 {
			return errors.New("expected who")
		}
		x.down = append(x.down, args[0])
		x.w.Add(who, spec.Event{K: spec.KindExit, Worker: x.worker(args[0])})
		return nil
	}
	if len(args) == 0 || args[0] != "0" && args[0] != "1" {
		return errors.New("expected a request")
	}
	e := spec.Event{K: spec.Kind(kind), Req: "req-" + args[0], Handoff: "key#" + args[0]}
	keep, err := x.fill(&e, who, kind, args[0], args[1:])
	if err == nil && keep {
		x.w.Add(who, e)
	}
	return err
}

func (x *converter) idle() {
	var workers []string
	for _, who := range []string{"O", "A"} {
		if len(x.down) == 0 || x.down[0] != who {
			workers = append(workers, x.worker(who))
		}
	}
	x.w.Add("H", spec.Event{K: spec.KindIdle, Workers: workers})
}

// fill sets what the kind needs besides request and handoff.
func (x *converter) fill(e *spec.Event, who, kind, h string, args []string) (keep bool, err error) {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		err = fmt.Errorf("expected %d more fields", i+1-len(args))
		return "0"
	}
	num := func(i int) int64 {
		n, bad := strconv.ParseInt(arg(i), 10, 64)
		if bad != nil {
			err = bad
		}
		return n
	}
	switch kind {
	case "alloc", "hold", "drop", "grant", "free":
		if kind == "drop" && who == "H" {
			return true, x.message(e, who, "fault", h, arg(0))
		}
		e.Pool, e.Blocks = "kv", spec.MakeBlocks(num(0))
		x.mutation(e, kind, h, args)
	case "begin":
		x.accesses++
		e.Access, e.Target, e.Pool, e.Blocks = fmt.Sprintf("access-%d", x.accesses), x.worker("O"), "kv", spec.MakeBlocks(num(0))
		e.Mode = "w"
		if (x.c.Mode == explore.Push) == (who == "O") {
			e.Mode = "r"
		}
		x.open[who+h] = e.Access
	case "end":
		good := num(0) == 1
		*e = spec.Event{K: e.K, Access: x.open[who+h], OK: &good}
	case "emit", "observe", "duplicate":
		err = errors.Join(err, x.message(e, who, kind, h, arg(0)))
	case "source", "target":
		e.K, e.Side, e.Sum = spec.KindDigest, kind, fmt.Sprintf("content-%d", num(0))
	case "accept":
		if num(0) == 1 {
			e.By = x.last[who]
		}
	case "finish":
		e.Result, e.Handoff = spec.Outcome(arg(0)), ""
		if who == "C" {
			e.Status = map[spec.Outcome]int64{spec.OutcomeOK: 200, spec.OutcomeError: 500, spec.OutcomeRejected: 400, spec.OutcomeCancelled: 499}[e.Result]
		}
	default:
		err = errors.Join(err, x.plain(e, who, kind, num))
	}
	return true, err
}

// mutation fills in a change of the pool.
func (x *converter) mutation(e *spec.Event, kind, h string, args []string) {
	lent := "lease-" + h
	switch kind {
	case "alloc", "drop":
		e.Holder = e.Req
	case "hold":
		e.Holder = lent
	case "grant":
		e.To, e.Mode = x.worker("A"), "w"
		if x.c.Mode == explore.Pull {
			e.Mode = "r"
		}
	case "free":
		e.Holder = e.Req
		if len(args) < 3 {
			return
		}
		e.Why = args[1]
		if x.c.Mode == explore.Pull && args[2] != "2" {
			e.Holder = lent
		}
		if args[2] == "1" {
			e.By = x.last["O"]
		}
	}
}

// message fills in a signal: they are told apart by request and kind, the first
// of them first.
func (x *converter) message(e *spec.Event, who, kind, h, name string) error {
	key := h + name
	if kind == "emit" {
		x.sigs++
		e.Sig, e.Signal, e.To = fmt.Sprintf("sig-%d", x.sigs), name, x.worker(map[string]string{"O": "A", "A": "O"}[who])
		switch name {
		case "HOLLOW":
			e.Signal, e.Claims = "ABORT_ACK", spec.ClaimsDrained
		case "ABORT_ACK", "FAILED", "REFUSED":
			e.Claims = spec.ClaimsDrained
		case "DONE":
			e.Claims = spec.ClaimsCompleted
		case "ABORT":
			e.Asks = "ABORT_ACK"
		}
		x.flying[key] = append(x.flying[key], e.Sig)
		return nil
	}
	if len(x.flying[key]) == 0 {
		return errors.New("no such message is under way")
	}
	e.Sig = x.flying[key][0]
	switch kind {
	case "observe":
		x.flying[key] = x.flying[key][1:]
		x.last[who] = e.Sig
	case "fault":
		x.flying[key] = x.flying[key][1:]
		e.K, e.Rule, e.Do = spec.KindFault, "spin", "drop"
	case "duplicate":
		x.flying[key] = append(x.flying[key], e.Sig)
		e.K, e.Rule, e.Do = spec.KindFault, "spin", "duplicate"
	}
	return nil
}

// plain fills in what needs little.
func (x *converter) plain(e *spec.Event, who, kind string, num func(int) int64) error {
	switch kind {
	case "submit":
		need := num(0)
		e.Need, e.Unit, e.Handoff = &need, "parts", ""
	case "offer":
		e.To = x.worker(map[string]string{"O": "A", "A": "O"}[who])
	case "expire":
		if x.c.Mode == explore.Pull {
			e.Req = "" // the lease, not the request
		}
	case "fence":
		e.Req = ""
	case "output":
		e.N = 1
	case "answer":
		e.Handoff, e.Sum, e.Expect, e.HasExp = "", "tokens", "tokens", true
		if num(0) == 0 {
			e.Sum = "other-tokens"
		}
	case "admit", "reject", "cancel":
	default:
		return errors.New("unknown kind")
	}
	return nil
}
