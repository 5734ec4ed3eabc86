package check

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"conform/spec"
	"conform/spec/check/clock"
)

// Options tunes a judgement. The zero value is right for a saved trace.
type Options struct {
	// BlockTimeout bounds the time that Porcupine may take for one block; a block
	// that it does not decide in time is inconclusive. Default: 10 s.
	BlockTimeout time.Duration
	// BlockMemory bounds, in bytes, the memory that Porcupine may take for one
	// history; one that it does not decide within it is inconclusive. Default: 1 GiB.
	BlockMemory int64
	// MaxFindings bounds the findings listed per rule; all are counted. Default: 100.
	MaxFindings int
	// DriftPPM is how much the rates of two clocks may differ, in millionths, at
	// most [clock.MaxDriftPPM]; above 0 it only makes the judge accept more.
	// Default: 0, clocks whose offsets are constant.
	DriftPPM int
	// Parallel bounds the goroutines that judge blocks. Default: GOMAXPROCS.
	Parallel int
	// Checker says who judges question 1. Default: [CheckerChain].
	Checker Checker
	// Without leaves out what one rule's judge finds, "" for none: a test of the judges
	// shows with it that each is needed. The result is no judgement.
	Without spec.RuleID
	// unconfirmed leaves out that Porcupine confirms what fails.
	unconfirmed bool

	_ struct{}
}

func (o Options) withDefaults() Options {
	if o.BlockTimeout <= 0 {
		o.BlockTimeout = 10 * time.Second
	}
	if o.BlockMemory <= 0 {
		o.BlockMemory = 1 << 30
	}
	if o.MaxFindings <= 0 {
		o.MaxFindings = 100
	}
	o.DriftPPM = min(max(o.DriftPPM, 0), clock.MaxDriftPPM)
	if o.Parallel <= 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	return o
}

// Judge judges a trace by TRACE.md, "Judging". The trace must be what a reader
// accepts; its events are read only.
//
// The error is a *[BadTrace] if no order at all is possible, a *[LimitError] for
// a trace beyond the judge's limits, and the context's if that ends first.
func Judge(ctx context.Context, tr *spec.Trace, opt Options) (*Result, error) {
	j, err := Open(ctx, tr, opt)
	if err != nil {
		return nil, err
	}
	return j.Result, nil
}

// Judged is a trace that was judged, for whoever asks more about a finding. It
// holds the trace, and what the judge knows of it: some kilobytes for each event.
// Its methods are for one goroutine at a time, and last no longer than the context
// that it was judged under.
type Judged struct {
	Result *Result

	c *court
}

// Open judges a trace as [Judge] does, and keeps what the judge knows.
func Open(ctx context.Context, tr *spec.Trace, opt Options) (*Judged, error) {
	c, err := newCourt(ctx, tr, opt)
	if err != nil {
		return nil, err
	}
	if err := c.judge(); err != nil {
		return nil, err
	}
	return &Judged{c.result(), c}, nil
}

// newCourt opens a judgement of a trace that some order fits.
func newCourt(ctx context.Context, tr *spec.Trace, opt Options) (*court, error) {
	h, err := newHistory(tr)
	if err != nil {
		return nil, err
	}
	return courtOf(ctx, h, len(tr.Losses) > 0, opt)
}

func courtOf(ctx context.Context, h *history, lost bool, opt Options) (*court, error) {
	c := &court{ctx: ctx, opt: opt.withDefaults(), h: h, rules: map[spec.RuleID]*RuleResult{}, lost: h.anyLost() || lost}
	h.driftPPM = int64(c.opt.DriftPPM)
	var why *conflict
	if c.base, why = newOrder(h, nil); why != nil {
		return nil, c.badTrace(why)
	}
	return c, nil
}

// court is the state of one judgement.
type court struct {
	ctx    context.Context
	opt    Options
	h      *history
	base   *order // what program order, pool order, signals and clocks impose
	legal  *order // base, and what the legal accesses impose
	chains chains
	cases  []accessCase
	rules  map[spec.RuleID]*RuleResult
	lost   bool // some source is, or what was lost names none
	// evidence is, for each lease whose end no evidence forced, how bad that is.
	evidence map[int32]spec.Verdict
	said     map[saying]bool  // findings that say the same of several blocks
	sigs     map[string]int32 // the emit of each signal, once asked for
	stats    Stats
	cited    int             // findings for which a proof by clocks was asked for
	broken   []string        // what the judge found wrong with itself
	remarks  []string        // what else limits the verdict
	timeline *clock.Timeline // once a sub-history needed it
}

// judgeOf is an entry of the registry of judges.
type judgeOf struct {
	rules []spec.RuleID
	judge func(*court)
}

// judges is the registry, in the order in which they run: those of question 1
// come first, since they decide which orders are legal. Each rule has one.
func judges() []judgeOf {
	return []judgeOf{
		{[]spec.RuleID{spec.BLK1, spec.BLK2, spec.BLK3, spec.BLK4}, (*court).questionOne},
		{[]spec.RuleID{spec.SIG2}, (*court).questionTwo},
		{[]spec.RuleID{spec.SIG1}, (*court).honestSignals},
		{[]spec.RuleID{spec.SIG3}, (*court).staleSignals},
		{[]spec.RuleID{spec.SIG4}, (*court).answered},
		{[]spec.RuleID{spec.BLK5}, (*court).leaks},
		{[]spec.RuleID{spec.REQ1}, (*court).terminalRejection},
		{[]spec.RuleID{spec.REQ2}, (*court).settledEnd},
		{[]spec.RuleID{spec.REQ3}, (*court).stopped},
		{[]spec.RuleID{spec.REQ4}, (*court).oneOutcome},
		{[]spec.RuleID{spec.REQ5}, (*court).capacity},
		{[]spec.RuleID{spec.DAT1}, (*court).content},
		{[]spec.RuleID{spec.DAT2}, (*court).output},
	}
}

func (c *court) judge() error {
	for _, r := range spec.Rules() {
		c.rules[r.ID] = &RuleResult{ID: r.ID, Verdict: spec.Unexercised, Level: r.Level, Findings: []Finding{}}
	}
	c.said, c.evidence = map[saying]bool{}, map[int32]spec.Verdict{}
	if err := c.replay(); err != nil {
		return err
	}
	if err := c.openCases(); err != nil {
		return err
	}
	for _, j := range judges() {
		j.judge(c)
		if err := c.ctx.Err(); err != nil {
			return fmt.Errorf("judging was stopped: %w", err)
		}
	}
	return nil
}

// judged counts what a rule was applied to.
func (c *court) judged(rule spec.RuleID, n int) {
	r := c.rules[rule]
	r.Judged += n
	if n > 0 {
		r.Verdict = max(r.Verdict, spec.Pass)
	}
}

// unjudged takes back one thing that a rule was applied to.
func (c *court) unjudged(rule spec.RuleID) {
	r := c.rules[rule]
	if r.Judged--; r.Judged == 0 && r.Verdict == spec.Pass {
		r.Verdict = spec.Unexercised
	}
}

// find adds a finding. All count for the verdict; only the first are listed.
func (c *court) find(f Finding) {
	if f.Rule == c.opt.Without {
		return
	}
	r := c.rules[f.Rule]
	r.Verdict = spec.Worst(r.Verdict, f.Verdict)
	r.Found++
	if f.Harm == spec.HarmNone && f.Verdict >= spec.Unproven {
		if rule, ok := spec.RuleByID(f.Rule); ok {
			f.Harm = rule.Harm
		}
	}
	if len(r.Findings) < c.opt.MaxFindings {
		r.Findings = append(r.Findings, f)
	}
}

// saying identifies findings that differ only in the block.
type saying struct {
	rule    spec.RuleID
	event   int32
	verdict spec.Verdict
}

// findOnce adds a finding, and reports that it did, unless the same was found
// about the same event for another block.
func (c *court) findOnce(f Finding, event int32) bool {
	s := saying{f.Rule, event, f.Verdict}
	if c.said[s] {
		return false
	}
	c.said[s] = true
	c.find(f)
	return true
}

// result puts together what was judged.
func (c *court) result() *Result {
	res := &Result{Verdict: spec.Unexercised, Signals: c.signalResults(), Stats: c.countStats(), Clocks: c.clockResults(), Notes: c.notes()}
	res.Settled = c.settlements()
	for _, r := range spec.Rules() {
		rr := *c.rules[r.ID]
		rr.Findings = append([]Finding{}, rr.Findings...)
		for i := range rr.Findings {
			rr.Findings[i].about = nil // it would keep the whole trace
		}
		res.Rules = append(res.Rules, rr)
		res.Verdict = spec.Worst(res.Verdict, rr.Verdict)
	}
	if res.Verdict == spec.Unexercised || c.lost || len(c.h.unknownEnds) > 0 {
		res.Verdict = spec.Worst(res.Verdict, spec.Inconclusive)
	}
	if len(c.broken) > 0 {
		res.Verdict = spec.Error
	}
	return res
}

// notes says what limits the verdict.
func (c *court) notes() []string {
	notes := slices.Concat(c.broken, c.remarks)
	if c.h.folded != nil {
		notes = append(notes, "the trace names many blocks: those that it only ever names together are judged as one, and a finding about one holds for each")
	}
	for i := range c.h.sources {
		s := &c.h.sources[i]
		switch {
		case s.lost():
			l := s.losses[0]
			notes = append(notes, fmt.Sprintf("source %s of %s is lost from seq %d on (%s%s): its last event is %s; the verdict is at best inconclusive",
				s.name, c.h.workers[s.worker], l.Next, l.Why, at(l.Pos), c.lastOf(s)))
		case s.seal == none:
			notes = append(notes, fmt.Sprintf("source %s of %s ends without a seal: its last event is %s", s.name, c.h.workers[s.worker], c.lastOf(s)))
		}
	}
	return append(notes, c.endNotes()...)
}

// endNotes tells of ends of accesses that are not known.
func (c *court) endNotes() (notes []string) {
	for i, e := range c.h.unknownEnds {
		if i == 10 {
			notes = append(notes, fmt.Sprintf("… and %d more ends of unknown accesses", len(c.h.unknownEnds)-i))
			break
		}
		notes = append(notes, fmt.Sprintf("%s ends access %s, of which no begin was recorded; the verdict is at best inconclusive", c.say(e), c.h.ev[e].Access))
	}
	return notes
}

func (c *court) lastOf(s *source) string {
	if s.last == none {
		return "none"
	}
	return c.say(s.last)
}

func at(p spec.Position) string {
	if p.Line == 0 {
		return ""
	}
	return fmt.Sprintf(", %s line %d", p.File, p.Line)
}

// badTrace turns a conflict of the base order into bad input.
func (c *court) badTrace(why *conflict) error {
	said := make([]string, len(why.events))
	found := "events that no order fits: "
	pos := spec.Position{}
	for i, e := range why.events {
		said[i] = c.say(e)
		if p := c.h.ev[e].Pos; p.Line > pos.Line {
			pos = p
		}
	}
	found += strings.Join(said, ", then ")
	if len(why.cycle.Clocks()) > 1 {
		found += "; " + c.circle(c.base, why.cycle, nil)
	}
	return &BadTrace{
		Pos:      pos,
		Found:    found,
		Expected: "times and sequence numbers that program order, pool order, signals and clocks allow",
	}
}

// countStats says how much was judged.
func (c *court) countStats() Stats {
	s := c.stats
	s.Events, s.Sources, s.Accesses, s.Signals = len(c.h.ev), len(c.h.sources), len(c.h.accesses), len(c.h.emits)
	workers := map[int32]bool{}
	for i := range c.h.sources {
		workers[c.h.sources[i].worker] = true
	}
	s.Workers = len(workers)
	for i := range c.chains.blocks {
		if n := len(c.chains.blocks[i].leases); n > 0 {
			w := c.h.width(c.chains.blocks[i].pool, c.chains.blocks[i].number)
			s.Blocks, s.Leases, s.Reused = s.Blocks+w, s.Leases+w*n, s.Reused+w*(n-1)
		}
	}
	for _, req := range c.h.names.isReq {
		if req {
			s.Requests++
		} else {
			s.Handoffs++
		}
	}
	s.Faults = len(c.h.byKind[spec.KindFault])
	return s
}
