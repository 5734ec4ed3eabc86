package check

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/anishathalye/porcupine"

	"conform/spec"
)

// ErrNoPicture is the error for a finding that Porcupine has no picture of: only
// what fails BLK-1 to BLK-4 is a history that no order allows.
var ErrNoPicture = errors.New("there is no history that Porcupine refuses")

// Picture writes Porcupine's picture of a finding, one self-contained HTML page:
// the smallest sub-history that it refuses. Each operation is the interval in
// which it took effect, on the timeline of the offsets that the clock solver
// found; one whose end was never seen lasts to the right edge.
//
// f is one of the findings of the result; else the error wraps [ErrNoFinding]. It
// wraps [ErrNoPicture] for a finding that no history shows.
func (j *Judged) Picture(f Finding, w io.Writer) error {
	c := j.c
	about, err := c.subjectOf(&f)
	if err != nil {
		return err
	}
	h, res, panicked := c.minimalFor(about)
	switch {
	case panicked != "":
		return fmt.Errorf("draw %s: the model panicked: %s", f.Rule, panicked)
	case res != porcupine.Illegal:
		return fmt.Errorf("%w within %v and %d bytes: %s", ErrNoPicture, c.opt.BlockTimeout, c.opt.BlockMemory, f.Text)
	}
	model := c.modelOf(h.start(), h.transition, sameState)
	model.DescribeOperation = func(input, _ any) string { return c.describeStep(&h.steps[input.(int)]) }
	model.DescribeState = func(s any) string { return h.describeState(s.(subState)) }
	_, info := porcupine.CheckOperationsVerbose(model, h.drawn(), c.opt.BlockTimeout)
	if err := porcupine.Visualize(model, info, w); err != nil {
		return fmt.Errorf("draw %s: %w", f.Rule, err)
	}
	return nil
}

// subjectOf finds what a finding is about, while the court sits.
func (c *court) subjectOf(f *Finding) (*subject, error) {
	r, ok := c.rules[f.Rule]
	if !ok {
		return nil, fmt.Errorf("%w: no rule %s", ErrNoFinding, f.Rule)
	}
	for i := range r.Findings {
		if g := &r.Findings[i]; g.Text == f.Text && sameObject(f, g) {
			if g.about == nil || g.Verdict != spec.Fail || !isChain(g.Rule) {
				return nil, fmt.Errorf("%w: %s is %s", ErrNoPicture, f.Rule, f.Verdict)
			}
			return g.about, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoFinding, f.Text)
}

// isChain reports whether a rule is about the chain of a block.
func isChain(id spec.RuleID) bool {
	return id == spec.BLK1 || id == spec.BLK2 || id == spec.BLK3 || id == spec.BLK4
}

// drawn is the history for drawing: the pool's operations in one row, each access
// in one of its own.
func (h *subHistory) drawn() []porcupine.Operation {
	ops := h.operations()
	last := int64(math.MinInt64)
	rows := h.accesses()
	for i := range ops {
		if !h.steps[i].unseen {
			last = max(last, ops[i].Return)
		}
		for row, k := range rows {
			if h.steps[i].access == k {
				ops[i].ClientId = row + 1
			}
		}
	}
	for i := range ops {
		if h.steps[i].unseen {
			ops[i].Return = max(last, ops[i].Call) + 1
		}
	}
	return ops
}

func (c *court) describeStep(st *subStep) string {
	if st.unseen {
		return fmt.Sprintf("access %s ends, not seen", st.op.Access)
	}
	e := &c.h.ev[st.event]
	what := string(e.K)
	switch e.K {
	case spec.KindBegin:
		what = c.describe(&c.h.accesses[c.h.accessID[e.Access]]) + " begins"
	case spec.KindEnd:
		what = "access " + e.Access + " ends"
	case spec.KindGrant, spec.KindRevoke:
		what += " " + e.Handoff + " to " + e.To + " for " + e.Mode
	case spec.KindFence:
		what += " " + e.Handoff
	case spec.KindAlloc, spec.KindHold, spec.KindDrop, spec.KindFree:
		what += " by " + orSomebody(e.Holder)
	}
	return fmt.Sprintf("%s (%s#%d)", what, e.Src, e.Seq)
}

func orSomebody(holder string) string {
	if holder == "" {
		return "its holder"
	}
	return holder
}

func (h *subHistory) describeState(s subState) string {
	said := make([]string, len(s.blocks))
	for i := range s.blocks {
		b := &s.blocks[i]
		said[i] = fmt.Sprintf("block %d of %s/%s free", h.blocks[i].Number, h.blocks[i].Worker, h.blocks[i].Pool)
		if b.Leased {
			said[i] = fmt.Sprintf("block %d of %s/%s leased by %s", h.blocks[i].Number, h.blocks[i].Worker, h.blocks[i].Pool, holderNames(b.Holders))
		}
		for _, a := range b.Open {
			said[i] += ", access " + a.ID + " open"
		}
	}
	return strings.Join(said, "; ")
}

func holderNames(holders []spec.Holder) string {
	names := make([]string, len(holders))
	for i, h := range holders {
		names[i] = h.Name
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}
