package traces

import (
	"slices"
	"unsafe"

	"conform/spec"
)

// fastParser reads the plain form that recorders write: one object of known
// fields, each once, ASCII without escapes, whole numbers. It is many times as
// fast as [spec.ParseEvent]. It says no to everything else, right or wrong, and
// spec.ParseEvent then decides: the two never disagree on a line that fastParser
// takes.
type fastParser struct {
	kinds map[string]kindTable
	words map[string]string
	// borrow makes strings and lists share memory with the line, or with what is
	// below: they are valid as long as that is not written to.
	borrow bool
	ranges []spec.BlockRange
	texts  []string
}

// kindTable is the table of one kind: its fields as bits, and the words that some
// of them are restricted to.
type kindTable struct {
	kind              spec.Kind
	allowed, required uint64
	enums             []enumField
}

type enumField struct {
	bit   uint64
	words []string
}

const maxWords = 1 << 16 // remembered at a time

func newFastParser() *fastParser {
	p := &fastParser{kinds: map[string]kindTable{}, words: map[string]string{}}
	for _, k := range spec.Kinds() {
		table := kindTable{kind: k}
		for _, f := range spec.Fields(k) {
			bit := fieldBit(f)
			table.allowed |= bit
			if f.Required {
				table.required |= bit
			}
			if f.Enum != nil {
				table.enums = append(table.enums, enumField{bit, f.Enum})
			}
		}
		p.kinds[string(k)] = table
	}
	return p
}

// The fields as bits. A name that means one thing in some kinds and another in
// others has two. What is not here is left to spec.ParseEvent.
const (
	bitSrc uint64 = 1 << iota
	bitSeq
	bitT
	bitT2
	bitTh
	bitK
	bitWorker
	bitRole
	bitHost
	bitClock
	bitPID
	bitProbe
	bitEngine
	bitPool
	bitCount // also the blocks of a pool
	bitBlocks
	bitBytes
	bitWhat
	bitHolder
	bitReq
	bitHandoff
	bitWhy
	bitBy
	bitTo
	bitMode
	bitAccess
	bitAccesses
	bitTarget
	bitVia
	bitOK
	bitSig
	bitSignal
	bitClaims
	bitAsks
	bitStage
	bitLimit
	bitUnit
	bitNeed
	bitPrompt
	bitStatus
	bitN
	bitAfter
	bitOutcome
	bitSide
	bitPart
	bitSum
	bitExpect
	bitRule
	bitDo
	bitMS
	bitWorkers
	bitCode
	bitSignalNo
	bitLo
	bitHi
	bitText
	bitEvents
	bitOther
)

// fieldBit is the bit of a field of the schema; bitOther where fastParser does not
// read it.
func fieldBit(f spec.Field) uint64 {
	switch {
	case f.Name == "blocks" && f.Type == spec.TypeBlocks:
		return bitBlocks
	case f.Name == "blocks":
		return bitCount
	case f.Name == "access" && f.Type == spec.TypeStrings:
		return bitAccesses
	case f.Name == "access":
		return bitAccess
	case f.Type == spec.TypeObject:
		return bitOther
	}
	switch f.Name { // read by themselves
	case "seq":
		return bitSeq
	case "need":
		return bitNeed
	case "ok":
		return bitOK
	case "workers":
		return bitWorkers
	}
	var e spec.Event
	if _, bit := stringField([]byte(f.Name), &e); bit != 0 {
		return bit
	}
	if _, bit := intField([]byte(f.Name), &e); bit != 0 {
		return bit
	}
	return bitOther
}

// event parses a line into a zero event, or reports false.
func (p *fastParser) event(line []byte, e *spec.Event) bool {
	c := cursor{b: line}
	if !c.take('{') {
		return false
	}
	var seen uint64
	for {
		name, ok := c.str()
		if !ok || !c.take(':') {
			return false
		}
		bit := p.field(&c, name, e)
		if bit == 0 || seen&bit != 0 {
			return false
		}
		seen |= bit
		if c.take('}') {
			break
		}
		if !c.take(',') {
			return false
		}
	}
	return c.i == len(c.b) && seen&bitK != 0 && p.complete(e, seen)
}

// complete holds the fields against the table of the kind, and fills defaults.
func (p *fastParser) complete(e *spec.Event, seen uint64) bool {
	table, ok := p.kinds[string(e.K)]
	if !ok || table.required&^seen != 0 || seen&^table.allowed != 0 {
		return false
	}
	e.K = table.kind
	for i := range table.enums {
		if en := &table.enums[i]; seen&en.bit != 0 && !slices.Contains(en.words, enumValue(e, en.bit)) {
			return false
		}
	}
	if seen&bitT2 == 0 {
		e.T2 = e.T
	}
	if e.Th == "" {
		e.Th = mainThread
	}
	return fits(e)
}

// enumValue is the value of a field that is restricted to some words.
func enumValue(e *spec.Event, bit uint64) string {
	switch bit {
	case bitRole:
		return string(e.Role)
	case bitWhat:
		return e.What
	case bitWhy:
		return e.Why
	case bitMode:
		return e.Mode
	case bitClaims:
		return string(e.Claims)
	case bitOutcome:
		return string(e.Result)
	case bitSide:
		return e.Side
	}
	return "" // in no list of words: the line is left to spec.ParseEvent
}

// fits reports whether the fields go together.
func fits(e *spec.Event) bool {
	switch e.K {
	case spec.KindBegin, spec.KindExpire:
		return e.T2 >= e.T && (e.Handoff != "" || e.Req != "")
	case spec.KindClockCmp:
		return e.T2 >= e.T && e.Hi >= e.Lo
	}
	return e.T2 >= e.T
}

// field reads the value of a field and returns its bit, 0 where it does not take
// it.
func (p *fastParser) field(c *cursor, name []byte, e *spec.Event) uint64 {
	switch c.peek() {
	case '"':
		text, ok := c.str()
		if !ok {
			return 0
		}
		if to, bit := stringField(name, e); bit != 0 {
			*to = p.word(text)
			return bit
		}
		return 0
	case '[':
		return p.list(c, name, e)
	case 't', 'f':
		if string(name) != "ok" {
			return 0
		}
		return p.boolean(c, e)
	}
	n, ok := c.int()
	if !ok {
		return 0
	}
	switch string(name) {
	case "seq":
		e.Seq = uint64(n)
		return unless(n < 0, bitSeq)
	case "need":
		e.Need = &n
		return bitNeed
	case "blocks":
		e.Count = n
		return unless(n < 0, bitCount)
	}
	if to, bit := intField(name, e); bit != 0 {
		*to = n
		// Those that the schema has as uint.
		return unless(n < 0 && bit&(bitCount|bitEvents) != 0, bit)
	}
	return 0
}

func unless(not bool, bit uint64) uint64 {
	if not {
		return 0
	}
	return bit
}

// What OK points to where lines are borrowed from; nobody writes there.
var yes, no = true, false

func (p *fastParser) boolean(c *cursor, e *spec.Event) uint64 {
	ok := c.peek() == 't'
	want := "false"
	if ok {
		want = "true"
	}
	if !c.literal(want) {
		return 0
	}
	switch {
	case !p.borrow:
		e.OK = &ok
	case ok:
		e.OK = &yes
	default:
		e.OK = &no
	}
	return bitOK
}

func (p *fastParser) list(c *cursor, name []byte, e *spec.Event) uint64 {
	switch string(name) {
	case "blocks":
		blocks, ok := p.blockList(c)
		e.Blocks = blocks
		return unless(!ok, bitBlocks)
	case "access":
		texts, ok := p.textList(c)
		e.Accesses = texts
		return unless(!ok, bitAccesses)
	case "workers":
		texts, ok := p.textList(c)
		e.Workers = texts
		return unless(!ok, bitWorkers)
	}
	return 0
}

func (p *fastParser) textList(c *cursor) ([]string, bool) {
	c.i++ // [
	list := []string{}
	if p.borrow {
		list = p.texts[len(p.texts):]
	}
	for first := true; !c.take(']'); first = false {
		if !first && !c.take(',') {
			return nil, false
		}
		text, ok := c.str()
		if !ok {
			return nil, false
		}
		list = append(list, p.word(text))
	}
	if p.borrow {
		p.texts = append(p.texts, list...)
		list = slices.Clip(p.texts[len(p.texts)-len(list):])
		if list == nil {
			list = []string{}
		}
	}
	return list, true
}

func (p *fastParser) blockList(c *cursor) (spec.Blocks, bool) {
	c.i++ // [
	list := spec.Blocks{}
	start := len(p.ranges)
	for first := true; !c.take(']'); first = false {
		if !first && !c.take(',') {
			return nil, false
		}
		var r spec.BlockRange
		var ok bool
		if c.peek() == '[' {
			r, ok = c.pair()
		} else if r.First, ok = c.int(); ok {
			r.Last = r.First
		}
		if !ok || r.First < 0 || r.Last < r.First {
			return nil, false
		}
		if p.borrow {
			p.ranges = append(p.ranges, r)
		} else {
			list = append(list, r)
		}
	}
	if p.borrow && len(p.ranges) > start {
		list = spec.Blocks(p.ranges[start:len(p.ranges):len(p.ranges)])
	}
	return list, true
}

// word makes a string of b, once for all lines that have it.
func (p *fastParser) word(b []byte) string {
	if p.borrow {
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	if w, ok := p.words[string(b)]; ok {
		return w
	}
	if len(p.words) >= maxWords {
		clear(p.words)
	}
	w := string(b)
	p.words[w] = w
	return w
}

// stringField is where a field with a string goes, and its bit.
func stringField(name []byte, e *spec.Event) (*string, uint64) {
	switch string(name) {
	case "src":
		return &e.Src, bitSrc
	case "th":
		return &e.Th, bitTh
	case "k":
		return (*string)(&e.K), bitK
	case "worker":
		return &e.Worker, bitWorker
	case "role":
		return (*string)(&e.Role), bitRole
	case "host":
		return &e.Host, bitHost
	case "clock":
		return &e.Clock, bitClock
	case "probe":
		return &e.Probe, bitProbe
	case "engine":
		return &e.Engine, bitEngine
	case "pool":
		return &e.Pool, bitPool
	case "what":
		return &e.What, bitWhat
	case "holder":
		return &e.Holder, bitHolder
	case "req":
		return &e.Req, bitReq
	case "handoff":
		return &e.Handoff, bitHandoff
	case "why":
		return &e.Why, bitWhy
	case "by":
		return &e.By, bitBy
	case "to":
		return &e.To, bitTo
	case "mode":
		return &e.Mode, bitMode
	case "access":
		return &e.Access, bitAccess
	case "target":
		return &e.Target, bitTarget
	case "via":
		return &e.Via, bitVia
	}
	return rareStringField(name, e)
}

func rareStringField(name []byte, e *spec.Event) (*string, uint64) {
	switch string(name) {
	case "sig":
		return &e.Sig, bitSig
	case "signal":
		return &e.Signal, bitSignal
	case "claims":
		return (*string)(&e.Claims), bitClaims
	case "asks":
		return &e.Asks, bitAsks
	case "stage":
		return &e.Stage, bitStage
	case "unit":
		return &e.Unit, bitUnit
	case "prompt":
		return &e.Prompt, bitPrompt
	case "outcome":
		return (*string)(&e.Result), bitOutcome
	case "side":
		return &e.Side, bitSide
	case "sum":
		return &e.Sum, bitSum
	case "expect":
		e.HasExp = true
		return &e.Expect, bitExpect
	case "rule":
		return &e.Rule, bitRule
	case "do":
		return &e.Do, bitDo
	case "text":
		return &e.Text, bitText
	}
	return nil, 0
}

// intField is where a field with a number goes, and its bit.
func intField(name []byte, e *spec.Event) (*int64, uint64) {
	switch string(name) {
	case "t":
		return &e.T, bitT
	case "t2":
		return &e.T2, bitT2
	case "pid":
		return &e.PID, bitPID
	case "count":
		return &e.Count, bitCount
	case "bytes":
		return &e.Bytes, bitBytes
	case "limit":
		return &e.Limit, bitLimit
	case "status":
		return &e.Status, bitStatus
	case "n":
		return &e.N, bitN
	case "after":
		return &e.After, bitAfter
	case "part":
		return &e.Part, bitPart
	case "ms":
		return &e.MS, bitMS
	case "code":
		return &e.Code, bitCode
	case "signal_no":
		return &e.SignalNo, bitSignalNo
	case "lo":
		return &e.Lo, bitLo
	case "hi":
		return &e.Hi, bitHi
	case "events":
		return &e.Events, bitEvents
	}
	return nil, 0
}
