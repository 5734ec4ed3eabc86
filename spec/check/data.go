package check

import (
	"fmt"

	"conform/spec"
)

// content judges DAT-1: all digests of one (handoff, part) are equal. One side
// alone is not judged.
func (c *court) content() {
	type piece struct {
		handoff string
		part    int64
	}
	type digests struct {
		first          int32
		other          int32 // the first that differs
		source, target bool
	}
	var order []piece
	pieces := map[piece]*digests{}
	for _, i := range c.h.byKind[spec.KindDigest] {
		e := &c.h.ev[i]
		key := piece{e.Handoff, e.Part}
		d := pieces[key]
		if d == nil {
			d = &digests{first: i, other: none}
			pieces[key] = d
			order = append(order, key)
		}
		d.source, d.target = d.source || e.Side == "source", d.target || e.Side == "target"
		if d.other == none && e.Sum != c.h.ev[d.first].Sum {
			d.other = i
		}
	}
	for _, key := range order {
		d := pieces[key]
		if !d.source || !d.target {
			continue
		}
		c.judged(spec.DAT1, 1)
		if d.other == none {
			continue
		}
		a, b := &c.h.ev[d.first], &c.h.ev[d.other]
		c.find(Finding{
			Rule: spec.DAT1, Verdict: spec.Fail, Handoff: key.handoff, Req: b.Req, Events: c.ids(d.first, d.other),
			Text: fmt.Sprintf("part %d of handoff %s is %s at the %s by %s and %s at the %s by %s: what was read is not what was written",
				key.part, key.handoff, a.Sum, a.Side, c.say(d.first), b.Sum, b.Side, c.say(d.other)),
		})
	}
}

// output judges DAT-2: the client's tokens are the reference tokens. An answer
// without a reference is not judged.
func (c *court) output() {
	for _, i := range c.h.byKind[spec.KindAnswer] {
		e := &c.h.ev[i]
		if !e.HasExp {
			continue
		}
		c.judged(spec.DAT2, 1)
		if e.Sum != e.Expect {
			c.find(Finding{
				Rule: spec.DAT2, Verdict: spec.Fail, Req: e.Req, Events: c.ids(i),
				Text: fmt.Sprintf("the client's tokens for request %s have digest %s at %s, the reference tokens for its prompt have %s", e.Req, e.Sum, c.say(i), e.Expect),
			})
		}
	}
}
