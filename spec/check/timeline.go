package check

import (
	"cmp"
	"fmt"
	"slices"

	"conform/spec"
)

// Timeline is what a picture of a finding draws: the same cut of the trace as
// [Lanes], with what reaches from one event to another. Places count the events:
// the ith is at i, what lies before them all at -1, what lies after them at
// len(Events), and what lies between two that are shown at a half.
type Timeline struct {
	// Workers are the lanes, in the way of a request.
	Workers []TimelineWorker
	// Blocks are those whose leases are shown.
	Blocks   []TimelineBlock
	Events   []TimelineEvent
	Leases   []TimelineLease
	Accesses []TimelineAccess
	Signals  []TimelineSignal
	// Absent is the evidence that should have been there, nil where the finding is
	// not about any.
	Absent *TimelineAbsence
	// Left counts the events of the finding's slice that are not shown.
	Left int
}

// TimelineWorker is a lane.
type TimelineWorker struct {
	Name string
	Role spec.Role // "" where the trace does not say
}

// TimelineBlock is a block, with the index of its owner among the workers.
type TimelineBlock struct {
	ID     spec.BlockID
	Worker int
}

// TimelineEvent is one event.
type TimelineEvent struct {
	Event  spec.EventID
	Kind   spec.Kind
	Worker int // index of the worker that recorded it
	// Block is the index of the block that the event changes, -1 where none is shown.
	Block int
	// At is when, in ns since the first event on the solver's timeline.
	At int64
	// Label names it in a few characters, Text in a few words, and Said as a sentence
	// of the story does, with the time on its own clock.
	Label, Text, Said string
	// Witness marks the events that prove the finding.
	Witness bool
}

// TimelineLease is one lease of one block.
type TimelineLease struct {
	Block  int // index of the block
	Number int // of the lease, from 1
	Holder string
	// From and To are the places of its alloc and of its end; To is after all events
	// where it was not freed.
	From, To float64
	Freed    bool
}

// TimelineAccess is one access.
type TimelineAccess struct {
	ID     string
	Mode   string // r or w
	Worker int    // index of the accessor
	// Blocks are the indexes of those shown that it touches.
	Blocks []int
	// From and To are the places of its begin and its end; To is after all events
	// where no end was seen.
	From, To float64
	Ended    bool
	// Stale says that the finding is that it began under no lease that was its own.
	Stale bool
}

// TimelineSignal is a signal on its way: places of its emission and of one
// observation. To is -1, with Observed, where that is outside of the picture, and
// From where the emission is.
type TimelineSignal struct {
	From, To int
	Kind     string
	Claims   spec.Predicate
	// Observed says that somebody took it in.
	Observed bool
}

// TimelineAbsence is what should have led from one event to another.
type TimelineAbsence struct {
	// From and To are the places of the events, -1 for the end of the picture.
	From, To int
	// FromWorker and ToWorker are the lanes where it begins and ends.
	FromWorker, ToWorker int
	Text                 string
}

// maxDrawn bounds the events of a timeline, maxDrawnBlocks the blocks whose leases
// it has.
const (
	maxDrawn       = 20
	maxDrawnBlocks = 3
)

// Timeline draws one of the findings of the result; else the error wraps
// [ErrNoFinding].
func (j *Judged) Timeline(f Finding) (*Timeline, error) {
	s, err := newSlicer(j.c.h, f)
	if err != nil {
		return nil, err
	}
	sc := j.c.sceneOf(s, maxDrawn)
	d := &draft{court: j.c, slicer: s, scene: sc, at: map[int32]int{}, lane: map[int32]int{}}
	for i, e := range sc.shown {
		d.at[e] = i
	}
	d.out.Left = len(sc.events) - len(sc.shown)
	d.workers()
	d.leases()
	d.events()
	d.accesses()
	d.signals()
	d.absence()
	return &d.out, nil
}

// draft is a timeline in the making.
type draft struct {
	*court
	slicer *slicer
	scene  scene
	at     map[int32]int // of an event: its place
	lane   map[int32]int // of a worker: its lane
	blocks []blockKey    // those whose leases are shown
	out    Timeline
}

// workers lists those that did something, or whose block or access is shown.
func (d *draft) workers() {
	var ids []int32
	for _, e := range d.scene.shown {
		ids = append(ids, d.h.workerOf(e))
		if p := d.slicer.poolOf(e); p != none {
			ids = append(ids, d.h.pools[p].worker)
		}
		if id, ok := d.h.accessID[d.h.ev[e].Access]; ok {
			ids = append(ids, d.h.accesses[id].by)
		}
		if w, ok := d.h.workerID[d.h.ev[e].To]; ok && d.h.ev[e].K == spec.KindEmit {
			ids = append(ids, w)
		}
	}
	if b := d.blockOf(&d.slicer.finding); b != nil {
		ids = append(ids, d.h.pools[b.pool].worker)
	}
	way := []spec.Role{spec.RoleClient, spec.RoleRouter, spec.RolePrefill, spec.RoleDecode, spec.RoleStore, "", spec.RoleHarness}
	role := func(w int32) spec.Role {
		if len(d.h.roles[w]) == 0 {
			return ""
		}
		return d.h.roles[w][0]
	}
	slices.SortFunc(ids, func(a, b int32) int {
		return cmp.Or(slices.Index(way, role(a))-slices.Index(way, role(b)), cmp.Compare(d.h.workers[a], d.h.workers[b]))
	})
	for _, w := range slices.Compact(ids) {
		d.lane[w] = len(d.out.Workers)
		d.out.Workers = append(d.out.Workers, TimelineWorker{d.h.workers[w], role(w)})
	}
}

func (d *draft) events() {
	timeline := d.base.clocks.Timeline()
	first, last := int64(0), int64(0)
	for i, e := range d.scene.shown {
		at, _ := timeline.Span(e)
		if i == 0 {
			first = at
		}
		last = max(last, at-first) // what ties two events needs not show in their times
		_, text := d.laneText(e)
		if p := d.slicer.poolOf(e); p != none {
			text += ", " + d.blocksText(p, d.h.ev[e].Blocks)
		}
		d.out.Events = append(d.out.Events, TimelineEvent{
			Event: d.h.ev[e].ID(), Kind: d.h.ev[e].K, Worker: d.lane[d.h.workerOf(e)], Block: d.changed(e), At: last,
			Label: d.label(e), Text: text, Said: d.say(e), Witness: d.slicer.pinned[e],
		})
	}
}

// changed is the block shown that an event changes, -1 for none.
func (d *draft) changed(e int32) int {
	if !d.h.ev[e].K.Mutates() {
		return -1
	}
	return slices.IndexFunc(d.blocks, func(k blockKey) bool {
		return k.pool == d.h.poolOf[e] && d.h.ev[e].Blocks.Contains(k.number)
	})
}

// label is what fits beside a mark.
func (d *draft) label(e int32) string {
	ev := &d.h.ev[e]
	text := string(ev.K)
	switch ev.K {
	case spec.KindEmit, spec.KindObserve:
		text = ev.Signal
		if emit := d.h.emitOf[e]; emit != none {
			text = d.h.ev[emit].Signal
		}
		if ev.K == spec.KindEmit {
			return "→ " + text
		}
		return "← " + text
	case spec.KindFault:
		return ev.Do
	case spec.KindGrant:
		return text + " " + ev.Mode
	case spec.KindFinish:
		return text + " " + string(ev.Result)
	}
	if ev.Why != "" {
		text += ", " + ev.Why
	}
	return text
}

// place is where an event stands among those that are shown.
func (d *draft) place(e int32) float64 {
	if i, ok := d.at[e]; ok {
		return float64(i)
	}
	i, _ := slices.BinarySearchFunc(d.scene.shown, e, func(a, b int32) int { return cmp.Compare(d.base.rank[a], d.base.rank[b]) })
	switch i {
	case 0:
		return -1
	case len(d.scene.shown):
		return float64(i)
	}
	return float64(i) - 0.5
}

// leases adds the leases of the finding's block; where it has none, of the first
// blocks that the events that prove it act on, else of the first that are shown.
func (d *draft) leases() {
	add := func(k blockKey) {
		if _, known := d.chains.blockID[k]; known && !slices.Contains(d.blocks, k) && len(d.blocks) < maxDrawnBlocks {
			d.blocks = append(d.blocks, k)
		}
	}
	if b := d.blockOf(&d.slicer.finding); b != nil {
		add(blockKey{b.pool, b.number})
	} else {
		for _, witnesses := range []bool{true, false} {
			for _, e := range d.scene.shown {
				if d.slicer.pinned[e] == witnesses && (witnesses || len(d.blocks) == 0) {
					d.firstBlock(e, add)
				}
			}
		}
	}
	for i, k := range d.blocks {
		d.out.Blocks = append(d.out.Blocks, TimelineBlock{*d.blockName(k.pool, k.number), d.lane[d.h.pools[k.pool].worker]})
		for _, l := range d.chains.blocks[d.chains.blockID[k]].leases {
			d.addLease(i, l)
		}
	}
}

// firstBlock names the first block that an event acts on, or its access does.
func (d *draft) firstBlock(e int32, add func(blockKey)) {
	if id, ok := d.h.accessID[d.h.ev[e].Access]; ok {
		e = d.h.accesses[id].begin
	}
	p := d.slicer.poolOf(e)
	if p == none {
		return
	}
	for n := range d.h.ev[e].Blocks.All {
		if in := d.scene.around.numbers[p]; in == nil || in[n] {
			add(blockKey{p, n})
			return
		}
	}
}

func (d *draft) addLease(block int, l int32) {
	le := &d.chains.leases[l]
	end := float64(len(d.scene.shown))
	out := TimelineLease{
		Block: block, Number: le.gen, Holder: d.h.ev[le.alloc].Holder,
		From: d.place(le.alloc), To: end, Freed: le.free != none,
	}
	if le.free != none {
		out.To = d.place(le.free)
	} else if le.lostFree != none {
		out.To = d.place(le.lostFree)
	}
	if out.To < 0 || out.From >= end || out.From == out.To {
		return // outside of the picture, or between two events of it
	}
	d.out.Leases = append(d.out.Leases, out)
}

// accesses adds those of which an event is shown.
func (d *draft) accesses() {
	seen := map[int32]bool{}
	for _, e := range d.scene.shown {
		ev := &d.h.ev[e]
		id, ok := d.h.accessID[ev.Access]
		if !ok || seen[id] || ev.K != spec.KindBegin && ev.K != spec.KindEnd {
			continue
		}
		seen[id] = true
		a := &d.h.accesses[id]
		out := TimelineAccess{
			ID: a.id, Mode: d.h.ev[a.begin].Mode, Worker: d.lane[a.by],
			From: d.place(a.begin), To: float64(len(d.scene.shown)), Ended: a.end != none,
			Stale: d.slicer.finding.Rule == spec.BLK3 && d.slicer.pinned[a.begin],
		}
		if a.end != none {
			out.To = d.place(a.end)
		}
		for i, k := range d.blocks {
			if k.pool == a.pool && d.h.ev[a.begin].Blocks.Contains(k.number) {
				out.Blocks = append(out.Blocks, i)
			}
		}
		d.out.Accesses = append(d.out.Accesses, out)
	}
}

func (d *draft) signals() {
	for i, e := range d.scene.shown {
		switch ev := &d.h.ev[e]; ev.K {
		case spec.KindEmit:
			s := TimelineSignal{From: i, To: -1, Kind: ev.Signal, Claims: ev.Claims, Observed: len(d.h.observes[e]) > 0}
			n := len(d.out.Signals)
			for _, o := range d.h.observes[e] {
				if to, ok := d.at[o]; ok {
					s.To = to
					d.out.Signals = append(d.out.Signals, s)
				}
			}
			if len(d.out.Signals) == n {
				d.out.Signals = append(d.out.Signals, s)
			}
		case spec.KindObserve:
			emit := d.h.emitOf[e]
			if _, ok := d.at[emit]; emit != none && !ok {
				d.out.Signals = append(d.out.Signals, TimelineSignal{From: -1, To: i, Kind: d.h.ev[emit].Signal, Claims: d.h.ev[emit].Claims, Observed: true})
			}
		}
	}
}

// absence says between which two events something should have been, in the words
// of an arrow that points to what should have waited for it.
func (d *draft) absence() {
	w := d.slicer.witness
	if len(w) == 0 {
		return
	}
	first, last := w[0], w[len(w)-1]
	from, to := first, last
	text, ok := shouldHaveBeen[d.slicer.finding.Rule]
	if !ok {
		return
	}
	switch d.slicer.finding.Rule {
	case spec.BLK2, spec.BLK3: // the end of the lease should have waited for the access
		from, to, text = d.early(w, text)
	case spec.SIG1, spec.DAT1: // the signal should have waited for the access; the target is named first
		from, to = last, first
	case spec.SIG4:
		d.answer(first, text)
		return
	}
	f, shown := d.at[from]
	t, both := d.at[to]
	if f == t || !shown || !both {
		return
	}
	d.out.Absent = &TimelineAbsence{From: f, To: t, FromWorker: d.out.Events[f].Worker, ToWorker: d.out.Events[t].Worker, Text: text}
}

// early finds what should have waited for what, of the events of an access and of the
// lease of its block. Where no end of a lease is among them, none was its own.
func (d *draft) early(w []int32, text string) (from, to int32, _ string) {
	from, to = none, none
	for _, e := range w {
		switch d.h.ev[e].K {
		case spec.KindFree, spec.KindRevoke, spec.KindFence:
			to = e
		case spec.KindBegin, spec.KindEnd:
			from = e
		}
	}
	if to == none {
		return w[0], from, "a grant of this lease to it"
	}
	return from, to, text
}

// answer is the absence of an answer: from where the question was taken in, or the
// end of the picture in the lane of whom it was sent to, back to who asked.
func (d *draft) answer(ask int32, text string) {
	at, shown := d.at[ask]
	if !shown {
		return
	}
	out := &TimelineAbsence{From: -1, FromWorker: -1, To: -1, ToWorker: d.out.Events[at].Worker, Text: fmt.Sprintf("%s (%s)", text, d.h.ev[ask].Asks)}
	if w, ok := d.h.workerID[d.h.ev[ask].To]; ok {
		if lane, shown := d.lane[w]; shown {
			out.FromWorker = lane
		}
	}
	for _, o := range d.h.observes[ask] {
		if at, ok := d.at[o]; ok {
			out.From, out.FromWorker = at, d.out.Events[at].Worker
		}
	}
	if out.FromWorker >= 0 {
		d.out.Absent = out
	}
}

// shouldHaveBeen names what a rule's findings lack in a few words.
var shouldHaveBeen = map[spec.RuleID]string{
	spec.BLK1: "a free between the two",
	spec.BLK2: "the end of the access, before the lease ends",
	spec.BLK3: "the access over, before the lease ends",
	spec.BLK4: "a hold that this could end",
	spec.BLK5: "a free before the stack is idle",
	spec.REQ1: "word of the rejection, before it goes on",
	spec.REQ2: "a release on a signal",
	spec.REQ3: "the cancellation stops this",
	spec.REQ4: "the same outcome",
	spec.SIG1: "this over, before the word that it is",
	spec.SIG2: "evidence that leads here",
	spec.SIG4: "an answer",
	spec.DAT1: "the same content",
}
