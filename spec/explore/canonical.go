package explore

import (
	"slices"
	"strings"

	"conform/spec"
)

// canonical is the one of all states that differ from s only in the names of
// requests or the numbers of blocks. Nothing in the protocol depends on either,
// so what holds from one of them holds from all.
func (m *model) canonical(s *state) packed {
	best := pack(s)
	try := func(o state) {
		if p := pack(&o); p.less(best) {
			best = p
		}
	}
	if m.scope.Blocks > 1 {
		try(swapBlocks(*s))
	}
	if m.scope.Requests > 1 {
		o := m.swapRequests(*s)
		try(o)
		if m.scope.Blocks > 1 {
			try(swapBlocks(o))
		}
	}
	return best
}

func swapBlocks(s state) state {
	s.block[0], s.block[1] = s.block[1], s.block[0]
	s.content[0], s.content[1] = s.content[1], s.content[0]
	for r := range s.req {
		if b := s.req[r].block; b != 0 {
			s.req[r].block = 3 - b
		}
	}
	return s
}

func (m *model) swapRequests(s state) state {
	s.req[0], s.req[1] = s.req[1], s.req[0]
	for b := range s.block {
		s.block[b] = m.facts(s.block[b]).renamed
		if s.content[b] != 0 {
			s.content[b] = 3 - s.content[b]
		}
	}
	return s
}

// renamed is a block with the names of the two requests exchanged.
func renamed(b spec.Block) spec.Block {
	other := strings.NewReplacer(reqName(0), reqName(1), reqName(1), reqName(0), handoffName(1), handoffName(0), handoffName(0), handoffName(1))
	b.Holders, b.Grants, b.Open, b.Fenced = slices.Clone(b.Holders), slices.Clone(b.Grants), slices.Clone(b.Open), slices.Clone(b.Fenced)
	for i, h := range b.Holders {
		b.Holders[i] = spec.Holder{Name: other.Replace(h.Name), Req: other.Replace(h.Req), Handoff: other.Replace(h.Handoff)}
	}
	for i := range b.Grants {
		b.Grants[i].Handoff = other.Replace(b.Grants[i].Handoff)
	}
	for i := range b.Open {
		b.Open[i].ID, b.Open[i].Handoff = other.Replace(b.Open[i].ID), other.Replace(b.Open[i].Handoff)
	}
	for i := range b.Fenced {
		b.Fenced[i] = other.Replace(b.Fenced[i])
	}
	slices.SortFunc(b.Holders, func(x, y spec.Holder) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(b.Grants, func(x, y spec.Grant) int {
		return strings.Compare(x.Handoff+" "+x.To+" "+x.Mode, y.Handoff+" "+y.To+" "+y.Mode)
	})
	slices.SortFunc(b.Open, func(x, y spec.OpenAccess) int { return strings.Compare(x.ID, y.ID) })
	slices.Sort(b.Fenced)
	return b
}
