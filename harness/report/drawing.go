package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"conform/spec"
	"conform/spec/check"
)

// drawing is a finding's timeline laid out for SVG: every place is in pixels. A
// lane for each worker, in it a row for each block with its leases and the accesses
// to it, a row for each group of accesses that the worker makes, and a row of what it
// said and decided. Events stand in their order, farther apart where more time lies
// between them, but not to scale: what matters takes microseconds, what is waited for
// seconds.
type drawing struct {
	W, H, LaneW, TimeW, Gutter, Right, Top, Bottom int
	ID                                             string // prefix of the events' ids
	Lanes                                          []drawnLane
	Names                                          []drawnText // of the blocks, beside those of the lanes
	Texts                                          []drawnText // labels
	Bars                                           []drawnBar
	Lines                                          []drawnPath
	Marks                                          []drawnMark
	Absent                                         *drawnAbsence
	Left                                           int

	t       *check.Timeline
	x       []int
	rowOf   []int // of an event: y of its mark
	laneEnd []int // of a lane: y of the row of what its worker said
}

type drawnLane struct {
	Y, H, TextY int
	Name, Role  string
}

type drawnText struct {
	X, Y  int
	Class string
	Text  string
}

type drawnBar struct {
	X, Y, W, H int
	Class      string
	Title      string
}

type drawnPath struct{ D, Class, Title string }

// drawnMark is an event: a shape that can be pointed at and focused.
type drawnMark struct {
	ID    string
	X, Y  int
	Shape string // dot, box, bolt, gem
	Class string
	Say   string // what it is, in parts with middots between them
	First bool   // the first that is focused
	Wit   bool   // it proves the finding
}

type drawnAbsence struct {
	D, Text      string
	X, Y, W      int // of the label's frame
	TextX, TextY int
}

// Sizes, in pixels. Labels are of a fixed pitch, so that their widths are known.
const (
	gutterW  = 112
	edge     = 16
	leastGap = 34
	mostGap  = 78
	barH     = 22
	stripH   = 6
	accessH  = 16
	labelH   = 15
	pitch    = 6.7
	laneGap  = 6
	lanePad  = 9
	maxLabel = 26 // characters
)

// draw lays a timeline out.
func draw(id string, t *check.Timeline) *drawing {
	d := &drawing{ID: id, t: t, Left: t.Left, rowOf: make([]int, len(t.Events)), laneEnd: make([]int, len(t.Workers))}
	d.columns()
	d.Top = 24
	if t.Absent != nil {
		d.Top = 46
	}
	y := d.Top
	for w := range t.Workers {
		y = d.layLane(w, y) + laneGap
	}
	d.Bottom = y - laneGap
	d.H = d.Bottom + 6
	d.W = d.Right + edge
	for _, l := range d.Texts {
		d.W = max(d.W, l.X+textWidth(l.Text)+edge)
	}
	d.guides()
	d.signals()
	d.absence()
	d.Gutter, d.LaneW, d.TimeW = gutterW, d.W-2, d.W-gutterW
	d.marks()
	return d
}

// columns gives each event its x.
func (d *drawing) columns() {
	x, last := gutterW+edge+10, int64(0)
	for i := range d.t.Events {
		e := &d.t.Events[i]
		if i > 0 {
			decades := math.Log10(float64(max(e.At-last, 1_000))) - 3 // over a microsecond
			x += min(leastGap+int(8*decades), mostGap)
		}
		last = e.At
		d.x = append(d.x, x)
	}
	d.Right = x + 30
}

// xAt is the x of a place.
func (d *drawing) xAt(place float64) int {
	switch i := int(math.Floor(place)); {
	case place < 0:
		return gutterW + 4
	case i >= len(d.x):
		return d.Right
	case place == float64(i) || i+1 >= len(d.x):
		return d.x[i]
	default:
		return (d.x[i] + d.x[i+1]) / 2
	}
}

// layLane lays out one worker's lane from y on, and returns where it ends.
func (d *drawing) layLane(w, y int) int {
	lane := drawnLane{Y: y, Name: fit(d.t.Workers[w].Name, 13), Role: string(d.t.Workers[w].Role), TextY: y + 18}
	blocks := false
	at := y + lanePad
	for b := range d.t.Blocks {
		if d.t.Blocks[b].Worker == w {
			if !blocks { // the lane's name has a line of its own
				at += 16
			}
			blocks = true
			at = d.layBlock(b, at)
		}
	}
	at = d.layAccesses(w, at)
	at = d.layWords(w, at, at == y+lanePad)
	lane.H = at + lanePad - 3 - y
	d.Lanes = append(d.Lanes, lane)
	return y + lane.H
}

// layBlock lays out the leases of a block, the accesses to it, and what changed it.
func (d *drawing) layBlock(b, y int) int {
	id := d.t.Blocks[b].ID
	d.Names = append(d.Names, drawnText{9, y + 15, "block", fit(id.Pool+" "+strconv.FormatInt(id.Number, 10), 14)})
	rows := lanesFor{}
	var leases []*check.TimelineLease
	for i := range d.t.Leases {
		if l := &d.t.Leases[i]; l.Block == b {
			leases = append(leases, l)
		}
	}
	bottom := y + barH
	if len(leases) == 0 {
		d.Bars = append(d.Bars, drawnBar{gutterW + 4, y + barH/2 - 1, d.Right - gutterW - 4, 2, "free", "free all the time"})
	}
	for _, l := range leases {
		x1, x2 := d.xAt(l.From), d.xAt(l.To)
		top := y + rows.place(x1, x2)*(barH+2)
		bottom = max(bottom, top+barH)
		d.layLease(b, l, x1, x2, top)
	}
	bottom = d.layStrips(b, leases, bottom+2)
	var changes []int
	for i := range d.t.Events {
		if d.t.Events[i].Block == b {
			changes = append(changes, i)
			if d.rowOf[i] == 0 {
				d.rowOf[i] = y + barH/2
			}
		}
	}
	return d.layLabels(changes, bottom) + 4
}

func (d *drawing) layLease(b int, l *check.TimelineLease, x1, x2, top int) {
	class := "lease"
	if l.Number%2 == 0 {
		class += " even"
	}
	title := fmt.Sprintf("lease %d of block %d, held by %s", l.Number, d.t.Blocks[b].ID.Number, l.Holder)
	if !l.Freed {
		class += " open"
		title += "; its end was not seen"
	}
	d.Bars = append(d.Bars, drawnBar{x1, top, max(x2-x1, 3), barH, class, short(title)})
	free, widest := x1, 0 // the widest place between two marks of this bar
	var marks []int
	for i := range d.t.Events {
		if d.t.Events[i].Block == b && d.x[i] >= x1 && d.x[i] <= x2 {
			marks = append(marks, d.x[i])
			if float64(i) == l.From || float64(i) > l.From && d.rowOf[i] == 0 {
				d.rowOf[i] = top + barH/2
			}
		}
	}
	from := x1
	for _, m := range append(marks, x2) {
		if m-from > widest {
			free, widest = from, m-from
		}
		from = m
	}
	text := fmt.Sprintf("lease %d %s", l.Number, l.Holder)
	room := int(float64(widest-26) / pitch)
	if room >= 7 {
		d.Texts = append(d.Texts, drawnText{free + 13, top + 15, "in", fit(text, room)})
	}
}

// layStrips draws, below the leases of a block, when accesses to it were open: past
// the end of the lease under which they began, or under none, in the colour of
// trouble.
func (d *drawing) layStrips(b int, leases []*check.TimelineLease, y int) int {
	rows := lanesFor{}
	bottom := y
	for i := range d.t.Accesses {
		a := &d.t.Accesses[i]
		if !slices.Contains(a.Blocks, b) {
			continue
		}
		top := y + rows.place(d.xAt(a.From), d.xAt(a.To))*(stripH+2)
		bottom = max(bottom, top+stripH+2)
		until := a.From
		for _, l := range leases {
			if !a.Stale && l.From <= a.From && a.From <= l.To {
				until = min(max(until, l.To), a.To)
			}
		}
		title := fmt.Sprintf("access %s to block %d was open", a.ID, d.t.Blocks[b].ID.Number)
		if until > a.From {
			d.strip(a.From, until, top, "strip "+a.Mode, title)
		}
		if until < a.To {
			d.strip(until, a.To, top, "strip stale"+open(!a.Ended), title+", outside of its lease")
		}
	}
	return bottom
}

func (d *drawing) strip(from, to float64, y int, class, title string) {
	x1, x2 := d.xAt(from), d.xAt(to)
	d.Bars = append(d.Bars, drawnBar{x1, y, max(x2-x1, 3), stripH, class, short(title)})
}

// layAccesses draws the accesses that a worker makes, in as few rows as they fit.
func (d *drawing) layAccesses(w, y int) int {
	rows := lanesFor{}
	n := 0
	for i := range d.t.Accesses {
		a := &d.t.Accesses[i]
		if a.Worker != w {
			continue
		}
		x1, x2 := d.xAt(a.From), d.xAt(a.To)
		verb := map[string]string{"r": "read ", "w": "write "}[a.Mode]
		label := fit(verb+strings.TrimPrefix(a.ID, d.t.Workers[w].Name+"."), maxLabel)
		wide := textWidth(label)
		x, end, class := x1+11, x2, "in"
		if x2-x1 < wide+24 { // beside the bar
			x, end, class = x2+11, x2+13+wide, "ev"
		}
		row := rows.place(x1-8, end+8)
		n = max(n, row+1)
		top := y + row*(accessH+4)
		what := map[string]string{"r": "read ", "w": "write "}[a.Mode] + a.ID + " by " + d.t.Workers[w].Name
		d.Bars = append(d.Bars, drawnBar{x1, top, max(x2-x1, 3), accessH, "access " + a.Mode + open(!a.Ended), short(what)})
		d.Texts = append(d.Texts, drawnText{x, top + 12, class, label})
		for j := range d.t.Events {
			if p := float64(j); (p == a.From || p == a.To) && d.t.Events[j].Block < 0 {
				d.rowOf[j] = top + accessH/2
			}
		}
	}
	if n > 0 {
		y += n*(accessH+4) + 2
	}
	return y
}

// layWords lays out the row of what a worker said and decided. It is there, if empty,
// where the lane has nothing else or evidence should have come from it.
func (d *drawing) layWords(w, y int, bare bool) int {
	var events []int
	for i := range d.t.Events {
		if e := &d.t.Events[i]; e.Worker == w && e.Block < 0 && d.rowOf[i] == 0 {
			events = append(events, i)
			d.rowOf[i] = y + 9
		}
	}
	d.laneEnd[w] = y + 9
	if len(events) == 0 {
		if a := d.t.Absent; bare || a != nil && (a.From < 0 && a.FromWorker == w || a.To < 0 && a.ToWorker == w) {
			return y + 18
		}
		return y
	}
	return d.layLabels(events, y+20)
}

// layLabels writes the labels of events below their row, each to the right of its
// mark, in as few lines as they fit: from the right, so that the line from a mark down
// to its label crosses no other label.
func (d *drawing) layLabels(events []int, y int) int {
	var starts []int // of a line: where its leftmost label starts
	for _, i := range slices.Backward(events) {
		text := fit(d.t.Events[i].Label, maxLabel)
		x, line := d.x[i]-3, 0
		for line < len(starts) && x+textWidth(text)+8 > starts[line] {
			line++
		}
		if line == len(starts) {
			starts = append(starts, 0)
		}
		starts[line] = x
		class := "ev"
		if d.t.Events[i].Witness {
			class = "ev wit"
		}
		d.Texts = append(d.Texts, drawnText{x, y + line*labelH + 10, class, text})
		d.Lines = append(d.Lines, drawnPath{D: fmt.Sprintf("M%d %dV%d", d.x[i], d.rowOf[i], y+line*labelH), Class: "lead"})
	}
	return y + len(starts)*labelH
}

// guides draws where the events that prove the finding stand, and the times.
func (d *drawing) guides() {
	taken := lanesFor{}
	label := func(i int, class string) {
		text := after(d.t.Events[i].At)
		if i == 0 {
			text = "0"
		}
		x := d.x[i] - textWidth(text)/2
		if taken.place(x-6, x+textWidth(text)+6) == 0 {
			d.Texts = append(d.Texts, drawnText{x, 14, class, text})
		}
	}
	for i := range d.t.Events {
		if d.t.Events[i].Witness {
			d.Lines = append(d.Lines, drawnPath{D: fmt.Sprintf("M%d %dV%d", d.x[i], d.Top, d.Bottom), Class: "guide"})
			label(i, "tick wit")
		}
	}
	for i := range d.t.Events {
		if !d.t.Events[i].Witness {
			label(i, "tick")
		}
	}
}

// signals draws each signal on its way.
func (d *drawing) signals() {
	for _, s := range d.t.Signals {
		title := s.Kind
		if s.Claims != "" {
			title += ", claims " + string(s.Claims)
		}
		switch {
		case s.From < 0:
			x, y := d.x[s.To], d.rowOf[s.To]
			d.Lines = append(d.Lines, drawnPath{fmt.Sprintf("M%d %dH%d", x-24, y, x-9), "signal", short(title + ", sent earlier")})
		case s.To < 0 && s.Observed:
			x, y := d.x[s.From], d.rowOf[s.From]
			d.Lines = append(d.Lines, drawnPath{fmt.Sprintf("M%d %dH%d", x+7, y, x+22), "signal", short(title + ", taken in later")})
		case s.To < 0:
			x, y := d.x[s.From], d.rowOf[s.From]
			d.Lines = append(d.Lines, drawnPath{fmt.Sprintf("M%d %dH%dM%d %dl8 8m0 -8l-8 8", x+7, y, x+17, x+16, y-4), "signal lost", short(title + ", taken in by nobody")})
		default:
			d.Lines = append(d.Lines, drawnPath{curve(d.x[s.From], d.rowOf[s.From], d.x[s.To], d.rowOf[s.To]), "signal", short(title)})
		}
	}
}

// curve leads from one mark to another, and stops short of the second.
func curve(x1, y1, x2, y2 int) string {
	if y1 == y2 {
		rise := min(12+abs(x2-x1)/8, 30)
		return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1-7, x1+(x2-x1)/4, y1-rise-7, x2-(x2-x1)/4, y2-rise-7, x2, y2-9)
	}
	down := 9
	if y2 < y1 {
		down = -9
	}
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1+down*2/3, x1, (y1+y2)/2, x2, (y1+y2)/2, x2, y2-down)
}

func (d *drawing) absence() {
	a := d.t.Absent
	if a == nil {
		return
	}
	end := func(place, worker int) (x, y int) {
		if place < 0 {
			return d.Right + 4, d.laneEnd[worker]
		}
		return d.x[place], d.rowOf[place]
	}
	x1, y1 := end(a.From, a.FromWorker)
	x2, y2 := end(a.To, a.ToWorker)
	if a.From < 0 {
		x1 -= 46
	}
	out := &drawnAbsence{D: curve(x1, y1, x2, y2), Text: "missing: " + fit(a.Text, 60), Y: 24}
	out.W = textWidth(out.Text) + 16
	out.X = max(gutterW+4, min((x1+x2)/2-out.W/2, d.W-out.W-4))
	out.TextX, out.TextY = out.X+8, out.Y+12
	d.W = max(d.W, out.X+out.W+4)
	d.Absent = out
}

// marks draws the events. Those that prove the finding are the first to be focused.
func (d *drawing) marks() {
	first := max(slices.IndexFunc(d.t.Events, func(e check.TimelineEvent) bool { return e.Witness }), 0)
	for i := range d.t.Events {
		e := &d.t.Events[i]
		m := drawnMark{
			ID: d.ID + "-" + strconv.Itoa(i), X: d.x[i], Y: d.rowOf[i], Shape: "dot", Class: "k-" + kindClass(e.Kind), First: i == first, Wit: e.Witness,
		}
		switch {
		case e.Block >= 0:
			m.Shape = "box"
		case e.Kind == spec.KindFault:
			m.Shape = "bolt"
		case kindClass(e.Kind) == "decision":
			m.Shape = "gem"
		}
		parts := []string{e.Text, d.t.Workers[e.Worker].Name + ", " + after(e.At) + " after the first event shown", e.Said}
		if e.Witness {
			m.Class += " wit"
			parts = append(parts, "proves the finding")
		}
		m.Say = fit(strings.Join(parts, " · "), 500)
		d.Marks = append(d.Marks, m)
	}
}

// kindClass groups the kinds of events by how they are drawn.
func kindClass(k spec.Kind) string {
	switch k {
	case spec.KindBegin, spec.KindEnd, spec.KindDigest:
		return "access"
	case spec.KindEmit, spec.KindObserve:
		return "signal"
	case spec.KindFault:
		return "fault"
	}
	if k.Mutates() || k == spec.KindFence {
		return "block"
	}
	return "decision"
}

// lanesFor packs spans into as few rows as they fit, as they come.
type lanesFor struct{ rows [][][2]int }

// place is the first row in which a span overlaps none before it.
func (l *lanesFor) place(from, to int) int {
	for i, row := range l.rows {
		if !slices.ContainsFunc(row, func(s [2]int) bool { return from < s[1] && s[0] < to }) {
			l.rows[i] = append(row, [2]int{from, to})
			return i
		}
	}
	l.rows = append(l.rows, [][2]int{{from, to}})
	return len(l.rows) - 1
}

// textWidth is about how wide a label is. Signs beyond the Latin alphabet may take
// twice as much as a letter.
func textWidth(s string) int {
	n := 0
	for _, r := range s {
		if n++; r >= 0x1100 {
			n++
		}
	}
	return int(math.Ceil(float64(n) * pitch))
}

// fit is clean text of at most so many characters.
func fit(s string, most int) string {
	r := []rune(Clean(s))
	if len(r) <= most {
		return string(r)
	}
	return string(r[:max(most-1, 0)]) + "…"
}

// open is a class of what has no end.
func open(is bool) string {
	if is {
		return " open"
	}
	return ""
}

func abs(n int) int { return max(n, -n) }
