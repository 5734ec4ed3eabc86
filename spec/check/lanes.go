package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"conform/spec"
)

// Lanes is a small picture of what happened around a finding: a line for each
// event, in the order of the solver's timeline, in three lanes.
type Lanes struct {
	// Block names the block of the first lane; empty where there is none.
	Block string    `json:"block,omitempty"`
	Rows  []LaneRow `json:"rows"`
	// Left counts the events of the finding's slice that are not shown.
	Left int `json:"left,omitempty"`
}

// LaneRow is one event.
type LaneRow struct {
	Event spec.EventID `json:"event"`
	// At is when, in ns since the first row on the solver's timeline.
	At int64 `json:"at"`
	// Lane is block, access or other.
	Lane string `json:"lane"`
	Text string `json:"text"`
	// Witness marks the events that prove the finding.
	Witness bool `json:"witness,omitempty"`

	leased bool // after the event, the block is
	open   int  // accesses open besides the one that begins or ends here
}

// The lanes.
const (
	laneBlock  = "block"
	laneAccess = "access"
	laneOther  = "other"
)

// maxRows bounds the rows of a picture.
const maxRows = 32

// scene is what a picture of a finding can show.
type scene struct {
	around selection
	events []int32 // worth a mark, in the order of the solver's timeline
	shown  []int32 // of these, the closest to those that prove the finding
}

// sceneOf picks at most so many events out of a finding's slice.
func (c *court) sceneOf(s *slicer, most int) scene {
	sc := scene{around: s.around()}
	for _, e := range sc.around.events {
		if s.shown(e) {
			sc.events = append(sc.events, e)
		}
	}
	slices.SortFunc(sc.events, func(a, b int32) int { return cmp.Compare(c.base.rank[a], c.base.rank[b]) })
	sc.shown = nearest(sc.events, c.mustShow(sc.events, s.pinned), most)
	return sc
}

// lanesOf draws what a finding's slice holds, the events closest to those that
// prove it first.
func (c *court) lanesOf(s *slicer) Lanes {
	sc := c.sceneOf(s, maxRows)
	events, around := sc.events, sc.around
	var l Lanes
	if b := s.finding.Block; b != nil {
		l.Block = fmt.Sprintf("block %d of %s/%s", b.Number, b.Worker, b.Pool)
	}
	timeline := c.base.clocks.Timeline()
	rows := make(map[int32]LaneRow, len(events))
	leased, open := int64(0), 0
	for _, e := range events {
		r := LaneRow{Event: c.h.ev[e].ID(), Witness: s.pinned[e]}
		r.At, _ = timeline.Span(e)
		r.Lane, r.Text = c.laneText(e)
		if p := s.poolOf(e); p != none && l.Block == "" {
			r.Text += " " + c.blocksText(p, c.h.ev[e].Blocks)
		}
		switch c.h.ev[e].K {
		case spec.KindAlloc:
			leased += s.among(around, e)
		case spec.KindFree:
			leased = max(leased-s.among(around, e), 0)
		case spec.KindEnd:
			open = max(open-1, 0)
		}
		r.leased, r.open = leased > 0, open
		if c.h.ev[e].K == spec.KindBegin {
			open++
		}
		rows[e] = r
	}
	l.Left = len(events) - len(sc.shown)
	for _, e := range sc.shown {
		r := rows[e]
		r.At = max(r.At-rows[sc.shown[0]].At, 0)
		l.Rows = append(l.Rows, r)
	}
	return l
}

// among counts the blocks of an event that are in a selection.
func (s *slicer) among(sel selection, e int32) int64 {
	if in := sel.numbers[s.poolOf(e)]; in != nil {
		return within(s.h.ev[e].Blocks, in).Len()
	}
	return s.h.ev[e].Blocks.Len()
}

// blocksText names blocks in few words: the first, and how many more.
func (c *court) blocksText(p int32, b spec.Blocks) string {
	text := c.poolName(p)
	for n := range b.All {
		text += " " + strconv.FormatInt(n, 10)
		break
	}
	if more := b.Len() - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

// mustShow are the events that prove the finding, and before each the last alloc
// and grant: whose the block was.
func (c *court) mustShow(events []int32, pinned map[int32]bool) map[int32]bool {
	out := map[int32]bool{}
	last := map[spec.Kind]int32{}
	for _, e := range events {
		switch k := c.h.ev[e].K; {
		case pinned[e]:
			out[e] = true
			for _, before := range last {
				out[before] = true
			}
			clear(last)
		case k == spec.KindAlloc || k == spec.KindGrant:
			last[k] = e
		}
	}
	return out
}

// shown reports whether an event is worth a line.
func (s *slicer) shown(e int32) bool {
	switch s.h.ev[e].K {
	case spec.KindDigest:
		return s.pinned[e] || s.finding.Rule == spec.DAT1
	case spec.KindSource, spec.KindPool, spec.KindSeal, spec.KindClockCmp, spec.KindNote:
		return s.pinned[e] && s.h.ev[e].K == spec.KindSeal
	}
	return true
}

// nearest keeps the most of a sorted list that are closest, by place in it, to a
// pinned one; the pinned are the closest.
func nearest(events []int32, pinned map[int32]bool, most int) []int32 {
	if len(events) <= most {
		return events
	}
	far := make([]int, len(events))
	last := -1
	for i := range far {
		if pinned[events[i]] {
			last = i
		}
		far[i] = len(events)
		if last >= 0 {
			far[i] = i - last
		}
	}
	last = -1
	order := make([]int, len(events))
	for i := len(events) - 1; i >= 0; i-- {
		if pinned[events[i]] {
			last = i
		}
		if last >= 0 {
			far[i] = min(far[i], last-i)
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(far[a], far[b]) })
	order = order[:most]
	slices.Sort(order)
	out := make([]int32, most)
	for i, at := range order {
		out[i] = events[at]
	}
	return out
}

// laneText says in which lane an event stands, and in few words what it is.
func (c *court) laneText(e int32) (lane, text string) {
	ev := &c.h.ev[e]
	name := func(words ...string) string {
		for _, w := range words {
			if w != "" {
				return " " + w
			}
		}
		return ""
	}
	why := ""
	if ev.Why != "" {
		why = " (" + ev.Why + ")"
	}
	switch ev.K {
	case spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree:
		return laneBlock, string(ev.K) + name(ev.Holder, ev.Handoff, ev.Req) + why
	case spec.KindGrant, spec.KindRevoke:
		return laneBlock, fmt.Sprintf("%s %s %s to %s", ev.K, ev.Mode, ev.Handoff, ev.To)
	case spec.KindFence:
		return laneBlock, "fence " + ev.Handoff
	case spec.KindBegin:
		text = fmt.Sprintf("begin %s %s", ev.Mode, ev.Access)
		if by := c.h.workerName(e); !strings.HasPrefix(ev.Access, by+".") {
			text += " by " + by
		}
		return laneAccess, text
	case spec.KindEnd:
		return laneAccess, "end " + ev.Access
	case spec.KindDigest:
		return laneAccess, fmt.Sprintf("digest %s %d: %s", ev.Side, ev.Part, ev.Sum)
	case spec.KindEmit, spec.KindObserve:
		text = c.h.workerName(e) + map[spec.Kind]string{spec.KindEmit: " -> ", spec.KindObserve: " <- "}[ev.K]
		kind := ev.Signal
		if emit := c.h.emitOf[e]; emit != none {
			kind = c.h.ev[emit].Signal
		}
		if text += kind; kind == "" {
			text += ev.Sig
		}
		if ev.Claims != "" {
			text += ": " + string(ev.Claims)
		}
		return laneOther, text
	case spec.KindFault:
		return laneOther, fmt.Sprintf("FAULT %s%s", ev.Do, name(ev.Sig, ev.Access, ev.Req, ev.Handoff))
	case spec.KindIdle:
		return laneOther, "idle: " + strings.Join(ev.Workers, ", ")
	case spec.KindSeal:
		return laneOther, ev.Src + " is sealed"
	case spec.KindCapacity:
		return laneOther, fmt.Sprintf("%s can take %d %s", c.h.workerName(e), ev.Limit, ev.Unit)
	}
	text = c.h.workerName(e) + " " + string(ev.K) + name(ev.Req, ev.Handoff)
	if ev.Result != "" {
		text += " " + string(ev.Result)
	}
	return laneOther, text + why
}

// The widths of the picture and, at least, of its first two lanes, in columns.
const (
	pictureWidth = 100
	laneWidth    = 22
)

// String draws the lanes: at most 100 columns, a line for each event. A line that
// begins with > is an event that proves the finding. In the first lane | is a
// block that is leased, in the second each | an access that is open; -> is a
// signal that is sent, <- one that is taken in.
func (l Lanes) String() string {
	name := l.Block
	if name == "" {
		name = "blocks"
	}
	lines := [][4]string{{"time", name, "accesses", "signals, decisions, faults"}}
	for i := range l.Rows {
		lines = append(lines, l.Rows[i].cells())
	}
	widths := fit(lines, pictureWidth-1)
	var b strings.Builder
	for i, cells := range lines {
		text := " "
		if i > 0 && l.Rows[i-1].Witness {
			text = ">"
		}
		text += padLeft(cells[0], widths[0])
		for lane := 1; lane < len(cells); lane++ {
			text += " " + pad(cells[lane], widths[lane])
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	if l.Left > 0 {
		fmt.Fprintf(&b, "%s and %d more events of the slice, farther away\n", strings.Repeat(" ", widths[0]+1), l.Left)
	}
	return b.String()
}

// cells are the row's time, and its three lanes.
func (r *LaneRow) cells() [4]string {
	out := [4]string{relativeTime(r.At), "", strings.Repeat("|", min(r.open, 3)), ""}
	if r.leased {
		out[1] = "|"
	}
	switch r.Lane {
	case laneBlock:
		if strings.HasPrefix(r.Text, "alloc") || strings.HasPrefix(r.Text, "free") {
			out[1] = "+"
		}
		out[1] += " " + r.Text
	case laneAccess:
		if !strings.HasPrefix(r.Text, "digest") {
			out[2] += "+"
		}
		out[2] += " " + r.Text
	default:
		out[3] = r.Text
	}
	return out
}

// fit gives each column what it needs; where all together need more than most,
// with a space between two, the widest give way.
func fit(lines [][4]string, most int) [4]int {
	widths := [4]int{1: laneWidth, 2: laneWidth}
	for _, cells := range lines {
		for i, c := range cells {
			widths[i] = min(max(widths[i], utf8.RuneCountInString(c)), most)
		}
	}
	most -= len(widths) - 1
	for {
		sum, widest := 0, 0
		for i, w := range widths {
			sum += w
			if w > widths[widest] {
				widest = i
			}
		}
		if sum <= most {
			return widths
		}
		widths[widest]--
	}
}

// relativeTime writes ns since the first row.
func relativeTime(ns int64) string {
	switch {
	case ns < 100_000:
		return fmt.Sprintf("%d ns", ns)
	case ns < 10_000_000_000:
		return fmt.Sprintf("%d.%03d ms", ns/1e6, ns/1e3%1e3)
	}
	return fmt.Sprintf("%d.%03d s", ns/1e9, ns/1e6%1e3)
}

// cut shortens a text to a width.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

func pad(s string, width int) string {
	s = cut(s, width)
	return s + strings.Repeat(" ", width-utf8.RuneCountInString(s))
}

func padLeft(s string, width int) string {
	s = cut(s, width)
	return strings.Repeat(" ", width-utf8.RuneCountInString(s)) + s
}
