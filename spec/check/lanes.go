package check

import (
	"cmp"
	"fmt"
	"slices"
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

// lanesOf draws what a finding's slice holds, the events closest to those that
// prove it first.
func (c *court) lanesOf(s *slicer) Lanes {
	var events []int32
	for _, e := range s.around().events {
		if s.shown(e) {
			events = append(events, e)
		}
	}
	rank := func(a, b int32) int { return cmp.Compare(c.base.rank[a], c.base.rank[b]) }
	slices.SortFunc(events, rank)
	var l Lanes
	if b := s.finding.Block; b != nil {
		l.Block = fmt.Sprintf("block %d of %s/%s", b.Number, b.Worker, b.Pool)
	}
	timeline := c.base.clocks.Timeline()
	rows := make(map[int32]LaneRow, len(events))
	leased, open := false, 0
	for _, e := range events {
		r := LaneRow{Event: c.h.ev[e].ID(), Witness: s.pinned[e]}
		r.At, _ = timeline.Span(e)
		r.Lane, r.Text = c.laneText(e)
		switch c.h.ev[e].K {
		case spec.KindAlloc:
			leased = true
		case spec.KindFree:
			leased = false
		case spec.KindEnd:
			open = max(open-1, 0)
		}
		r.leased, r.open = leased, open
		if c.h.ev[e].K == spec.KindBegin {
			open++
		}
		rows[e] = r
	}
	shown := nearest(events, c.mustShow(events, s.pinned), maxRows)
	l.Left = len(events) - len(shown)
	for _, e := range shown {
		r := rows[e]
		r.At = max(r.At-rows[shown[0]].At, 0)
		l.Rows = append(l.Rows, r)
	}
	return l
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
		return laneBlock, fmt.Sprintf("%s %s to %s (%s)", ev.K, ev.Handoff, ev.To, ev.Mode)
	case spec.KindFence:
		return laneBlock, "fence " + ev.Handoff
	case spec.KindBegin:
		return laneAccess, fmt.Sprintf("begin %s (%s) by %s", ev.Access, ev.Mode, c.h.workerName(e))
	case spec.KindEnd:
		return laneAccess, "end " + ev.Access
	case spec.KindDigest:
		return laneAccess, fmt.Sprintf("digest %s %d: %s", ev.Side, ev.Part, ev.Sum)
	case spec.KindEmit, spec.KindObserve:
		text = c.h.workerName(e) + map[spec.Kind]string{spec.KindEmit: " sends ", spec.KindObserve: " takes in "}[ev.K]
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

// The widths of the picture, in columns; together at most 100.
const (
	widthTime   = 11
	widthBlock  = 28
	widthAccess = 26
	widthOther  = 31
)

// String draws the lanes: at most 100 columns, a line for each event. A line that
// begins with > is an event that proves the finding. In the first lane | is a
// block that is leased, in the second each | an access that is open.
func (l Lanes) String() string {
	var b strings.Builder
	line := func(mark, at, block, access, other string) {
		text := fmt.Sprintf("%s%s %s %s %s", mark, padLeft(at, widthTime), pad(block, widthBlock), pad(access, widthAccess), cut(other, widthOther))
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	name := l.Block
	if name == "" {
		name = "blocks"
	}
	line(" ", "time", name, "accesses", "signals, decisions, faults")
	for i := range l.Rows {
		r := &l.Rows[i]
		mark, block, access, other := " ", " ", strings.Repeat("|", min(r.open, 3)), ""
		if r.Witness {
			mark = ">"
		}
		if r.leased {
			block = "|"
		}
		switch r.Lane {
		case laneBlock:
			if strings.HasPrefix(r.Text, "alloc") || strings.HasPrefix(r.Text, "free") {
				block = "+"
			}
			block += " " + r.Text
		case laneAccess:
			if strings.HasPrefix(r.Text, "digest") {
				access += " " + r.Text
			} else {
				access += "+ " + r.Text
			}
		default:
			other = r.Text
		}
		line(mark, relativeTime(r.At), block, access, other)
	}
	if l.Left > 0 {
		fmt.Fprintf(&b, "%s and %d more events of the slice, farther away\n", strings.Repeat(" ", widthTime+1), l.Left)
	}
	return b.String()
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
