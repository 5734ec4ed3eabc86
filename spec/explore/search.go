package explore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"conform/spec"
)

// Scope says what is explored.
type Scope struct {
	Mode       Mode
	Blocks     int  // 1 or 2
	Requests   int  // 1 or 2; each has one handoff
	Loss       bool // the network may lose any message
	Duplicates int  // how many messages it may deliver twice, at most 2
	Crashes    int  // how many workers may crash, at most 1
	// Without is the guard that is taken away; the zero value takes away none.
	Without Guard
}

// FullScope is that of the specification's promise: two blocks, two requests,
// two handoffs, any loss, any order, a duplicated message and a crash.
func FullScope(mode Mode) Scope {
	return Scope{Mode: mode, Blocks: 2, Requests: 2, Loss: true, Duplicates: 1, Crashes: 1}
}

func (s Scope) String() string {
	text := fmt.Sprintf("%s, %d blocks, %d requests", s.Mode, s.Blocks, s.Requests)
	if s.Loss {
		text += ", loss"
	}
	text += fmt.Sprintf(", %d duplicated, %d crashes", s.Duplicates, s.Crashes)
	if s.Without.Name != "" {
		text += ", without " + s.Without.Name
	}
	return text
}

func (s Scope) check() error {
	switch {
	case s.Blocks < 1 || s.Blocks > maxBlocks:
		return fmt.Errorf("explore: %d blocks; expected 1 to %d", s.Blocks, maxBlocks)
	case s.Requests < 1 || s.Requests > maxRequests:
		return fmt.Errorf("explore: %d requests; expected 1 to %d", s.Requests, maxRequests)
	case s.Duplicates < 0 || s.Duplicates > 2 || s.Crashes < 0 || s.Crashes > 1:
		return fmt.Errorf("explore: %d duplicates and %d crashes; expected at most 2 and 1", s.Duplicates, s.Crashes)
	case s.Without.Name != "" && !s.Without.In(s.Mode):
		return fmt.Errorf("explore: guard %s is not part of the protocol in mode %s", s.Without.Name, s.Mode)
	}
	return nil
}

// Options bounds an exploration.
type Options struct {
	// Workers is the number of goroutines; default GOMAXPROCS. With one, the
	// counterexample found is the same every time.
	Workers int
	// MaxStates bounds the states kept, of about 45 bytes each. Default: 40 million.
	MaxStates int
	// Until, if set, ends the search at the first run that breaks this rule; runs
	// that break others go on. By default every rule ends it.
	Until spec.RuleID

	// literal turns the canonical form off, for the tests that hold it sound.
	literal bool
}

// Report says what an exploration saw.
type Report struct {
	Scope       Scope
	States      int // different ones, up to the names of requests and blocks
	Transitions int
	Ends        int // states in which nothing is left to do
	Depth       int // steps from the first state to the farthest
	Elapsed     time.Duration
	// Violation is the shortest run that breaks a rule, nil if there is none.
	Violation *Violation
}

// Violation is a run that breaks a rule.
type Violation struct {
	Rules []spec.RuleID // broken by its last step, or by its end
	Steps []string      // in words
	// Trace is the run in the format of TRACE.md, led on from the breach to an end
	// without further faults, so that a judge sees a whole run.
	Trace *spec.Trace
}

// ErrTooLarge says that the state space does not fit into Options.MaxStates.
var ErrTooLarge = errors.New("explore: the state space is larger than the limit")

// errStuck says that the model, not a rule, is wrong.
var errStuck = errors.New("explore: a client is never told how its request ended")

const shards = 64

// shard is a part of the states that were seen, with a table to find them.
type shard struct {
	mu     sync.Mutex
	chunks [][]node
	count  int
	table  []uint32 // index + 1 of a state, open addressing
}

type node struct {
	state  packed
	parent uint32 // shard and index: see ref
}

const (
	chunkBits = 12
	chunkSize = 1 << chunkBits
	noParent  = ^uint32(0)
)

func ref(shard, index int) uint32 { return uint32(shard)<<26 | uint32(index) }

func (h *shard) at(i int) *node { return &h.chunks[i>>chunkBits][i&(chunkSize-1)] }

// add notes a state and reports whether it is new.
func (h *shard) add(p packed, hash uint64, parent uint32) (index int, isNew bool) {
	if h.count*3 >= len(h.table)*2 {
		h.grow()
	}
	mask := len(h.table) - 1
	for i := int(hash>>8) & mask; ; i = (i + 1) & mask {
		v := h.table[i]
		if v == 0 {
			if h.count&(chunkSize-1) == 0 {
				h.chunks = append(h.chunks, make([]node, chunkSize))
			}
			*h.at(h.count) = node{p, parent}
			h.count++
			h.table[i] = uint32(h.count)
			return h.count - 1, true
		}
		if h.at(int(v-1)).state == p {
			return int(v - 1), false
		}
	}
}

func (h *shard) grow() {
	n := max(1024, len(h.table)*2)
	h.table = make([]uint32, n)
	for i := range h.count {
		j := int(h.at(i).state.hash()>>8) & (n - 1)
		for h.table[j] != 0 {
			j = (j + 1) & (n - 1)
		}
		h.table[j] = uint32(i + 1)
	}
}

// search is one exploration.
type search struct {
	scope  Scope
	opt    Options
	table  *interned
	shards [shards]shard
	until  ruleSet

	mu          sync.Mutex
	transitions int
	ends        int
	found       *breachAt
	stuck       bool
}

// breachAt is where a rule was broken: by a step to a state, or, without one, by
// the end that a state is.
type breachAt struct {
	from   uint32
	to     *packed
	broken ruleSet
}

// Explore visits every state of the scope, breadth first, and stops at the first
// breach of a rule. It needs time and memory linear in the states; ctx bounds it.
// Errors: a scope out of bounds, [ErrTooLarge], the context's.
func Explore(ctx context.Context, scope Scope, opt Options) (*Report, error) {
	if err := scope.check(); err != nil {
		return nil, err
	}
	if opt.Workers <= 0 {
		opt.Workers = runtime.GOMAXPROCS(0)
	}
	if opt.MaxStates <= 0 {
		opt.MaxStates = 40_000_000
	}
	begun := time.Now()
	x := &search{scope: scope, opt: opt, table: newInterned(scope.Mode), until: ^ruleSet(0)}
	if opt.Until != "" {
		x.until = ruleBits[opt.Until]
	}
	depth, err := x.levels(ctx)
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Scope: scope, States: x.states(), Transitions: x.transitions, Ends: x.ends, Depth: depth, Elapsed: time.Since(begun),
	}
	if x.found != nil {
		rep.Violation, err = x.violation()
	} else if x.stuck && scope.Without.Name == "" {
		err = errStuck
	}
	return rep, err
}

func (x *search) states() int {
	n := 0
	for i := range x.shards {
		n += x.shards[i].count
	}
	return n
}

// levels goes from one distance to the next until there is none.
func (x *search) levels(ctx context.Context) (int, error) {
	models := make([]*model, x.opt.Workers)
	for i := range models {
		models[i] = newModel(x.scope, x.table)
	}
	first := models[0].initial()
	x.visit(models[0].form(&first, x.opt.literal), noParent)
	var done [shards]int
	for depth := 0; ; depth++ {
		var upTo [shards]int
		var chunks [shards][][]node
		for i := range x.shards {
			upTo[i], chunks[i] = x.shards[i].count, x.shards[i].chunks
		}
		if upTo == done || x.found != nil {
			return max(depth-1, 0), nil
		}
		x.level(ctx, models, done, upTo, chunks)
		done = upTo
		if err := ctx.Err(); err != nil {
			return depth, fmt.Errorf("exploring was stopped: %w", err)
		}
		if x.states() > x.opt.MaxStates {
			return depth, fmt.Errorf("%w: more than %d", ErrTooLarge, x.opt.MaxStates)
		}
	}
}

// level takes the steps from every state of one distance.
func (x *search) level(ctx context.Context, models []*model, from, upTo [shards]int, chunks [shards][][]node) {
	work := make(chan int, shards)
	for i := range shards {
		work <- i
	}
	close(work)
	var wg sync.WaitGroup
	for _, m := range models {
		wg.Go(func() {
			for i := range work {
				for j := from[i]; j < upTo[i] && (j%256 != 0 || ctx.Err() == nil); j++ {
					x.expand(m, chunks[i][j>>chunkBits][j&(chunkSize-1)].state, ref(i, j))
				}
			}
		})
	}
	wg.Wait()
}

// expand takes every step from one state.
func (x *search) expand(m *model, p packed, self uint32) {
	s := unpack(p)
	progress, transitions := false, 0
	m.successors(&s, func(_ string, kind stepKind, n *state) {
		transitions++
		progress = progress || kind != fault
		to := m.form(n, x.opt.literal)
		if hit := m.broken & x.until; hit != 0 {
			x.breach(&breachAt{self, &to, hit})
			return
		}
		x.visit(to, self)
	})
	var end int
	if !progress {
		end = 1
		broken, stuck := m.quiescent(&s)
		if hit := broken & x.until; hit != 0 {
			x.breach(&breachAt{self, nil, hit})
		}
		if stuck {
			x.mu.Lock()
			x.stuck = true
			x.mu.Unlock()
		}
	}
	x.mu.Lock()
	x.transitions += transitions
	x.ends += end
	x.mu.Unlock()
}

func (x *search) breach(b *breachAt) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.found == nil {
		x.found = b
	}
}

func (x *search) visit(p packed, parent uint32) {
	hash := p.hash()
	h := &x.shards[hash&(shards-1)]
	h.mu.Lock()
	h.add(p, hash, parent)
	h.mu.Unlock()
}

func (m *model) form(s *state, literal bool) packed {
	if literal {
		return pack(s)
	}
	return m.canonical(s)
}

// violation leads from the first state to the breach once more, this time with
// the names kept, and on to an end.
func (x *search) violation() (*Violation, error) {
	var path []packed
	if x.found.to != nil {
		path = append(path, *x.found.to)
	}
	for at := x.found.from; at != noParent; {
		n := x.shards[at>>26].at(int(at & (1<<26 - 1)))
		path = append(path, n.state)
		at = n.parent
	}
	m := newModel(x.scope, x.table)
	m.recording = true
	w := &walk{m: m, s: m.initial(), run: newRun(x.scope)}
	for i := len(path) - 2; i >= 0; i-- {
		if !w.to(path[i], x.opt.literal) {
			return nil, errors.New("explore: a run that was seen can't be taken again")
		}
	}
	v := &Violation{Rules: x.found.broken.rules(), Steps: w.steps}
	w.toEnd(nil)
	v.Trace = w.run.trace(&w.s)
	return v, nil
}

// walk is one run through the model.
type walk struct {
	m     *model
	s     state
	run   *run
	steps []string
	// broken is the rules that the run has broken.
	broken ruleSet
}

// to takes the step that leads to the state of that form.
func (w *walk) to(want packed, literal bool) bool {
	var next state
	var label string
	var events []event
	found := false
	w.m.successors(&w.s, func(l string, _ stepKind, n *state) {
		if !found && w.m.form(n, literal) == want {
			found, next, label = true, *n, l
			events = append(events, w.m.events...)
			w.broken |= w.m.broken
		}
	})
	if found {
		w.commit(label, next, events)
	}
	return found
}

func (w *walk) commit(label string, next state, events []event) {
	w.s = next
	w.steps = append(w.steps, label)
	w.run.add(events)
}

// choice is a step that a walk may take.
type choice struct {
	label  string
	next   state
	events []event
	broken ruleSet
}

// toEnd goes on until nothing is left to do. With a source of randomness it
// takes any step, the unusual ones seldom; without, the first.
func (w *walk) toEnd(rng *rand.Rand) {
	for {
		var by [fault + 1][]choice
		w.m.successors(&w.s, func(label string, kind stepKind, n *state) {
			by[kind] = append(by[kind], choice{label, *n, append([]event(nil), w.m.events...), w.m.broken})
		})
		if len(by[advance])+len(by[impatient]) == 0 {
			broken, _ := w.m.quiescent(&w.s)
			w.broken |= broken
			return
		}
		c := pick(rng, by)
		w.broken |= c.broken
		w.commit(c.label, c.next, c.events)
	}
}

// pick chooses the next step of a walk, of which at least one is no fault.
func pick(rng *rand.Rand, by [fault + 1][]choice) choice {
	from := advance
	if rng != nil {
		switch p := rng.Float64(); {
		case p < 0.06 && len(by[fault]) > 0:
			from = fault
		case p < 0.14 && len(by[impatient]) > 0:
			from = impatient
		}
	}
	if len(by[from]) == 0 {
		from = impatient
	}
	if rng == nil {
		return by[from][0]
	}
	return by[from][rng.IntN(len(by[from]))]
}

// Walks takes runs through the model at random, each the same for the same seed,
// and gives the trace of each.
type Walks struct {
	table *interned
	scope Scope
}

// NewWalks prepares walks through a scope.
func NewWalks(scope Scope) (*Walks, error) {
	if err := scope.check(); err != nil {
		return nil, err
	}
	return &Walks{newInterned(scope.Mode), scope}, nil
}

// Walk takes one run to its end. Broken are the rules that it broke; ownerDown
// says that the owner of the memory crashed, so that its leases have no end.
func (ws *Walks) Walk(seed uint64) (tr *spec.Trace, broken []spec.RuleID, ownerDown bool) {
	m := newModel(ws.scope, ws.table)
	m.recording = true
	w := &walk{m: m, s: m.initial(), run: newRun(ws.scope)}
	w.toEnd(rand.New(rand.NewPCG(seed, 1)))
	return w.run.trace(&w.s), w.broken.rules(), w.s.down[owner]
}
