package chain

import (
	"math/rand/v2"

	"github.com/anishathalye/porcupine"
)

// history is a history with what made it, for tests.
type history struct {
	ops []Op
	now []int64 // of each operation: the instant at which it happened
}

// shape says what random histories look like.
type shape struct {
	blocks, ops, clocks int
	width               int64   // of intervals, at most
	step                int64   // between two operations of a block, at most
	missing             float64 // part of the ends that were not seen
	skew                int64   // of clocks, at most
}

// legal draws a history that is legal: what happens is drawn first, and each
// operation's interval is put around it.
func legal(r *rand.Rand, s shape) history {
	var h history
	skew := make([]int64, s.clocks)
	for c := 1; c < s.clocks; c++ {
		skew[c] = r.Int64N(2*s.skew+1) - s.skew
	}
	blocks := make([]struct {
		now    int64
		lease  uint32
		leased bool
		open   []uint32
	}, s.blocks)
	access := uint32(0)
	add := func(b int, k Kind, who uint32, clock int) {
		st := &blocks[b]
		st.now += 1 + r.Int64N(s.step)
		at := st.now + skew[clock]
		op := Op{Kind: k, Clock: uint16(clock), Block: uint32(b), Who: who, T: at - r.Int64N(s.width+1), T2: at + r.Int64N(s.width+1)}
		if k == Begin || k == End {
			op.Lease = st.lease
		}
		h.ops, h.now = append(h.ops, op), append(h.now, st.now)
	}
	for len(h.ops) < s.ops {
		b := r.IntN(s.blocks)
		st := &blocks[b]
		clock := r.IntN(s.clocks)
		switch {
		case !st.leased:
			st.lease++
			st.leased = true
			add(b, Alloc, st.lease, 0)
		case len(st.open) > 0 && (len(st.open) > 2 || r.IntN(2) == 0):
			who := st.open[0]
			st.open = st.open[1:]
			if r.Float64() >= s.missing {
				add(b, End, who, clock)
			}
		case len(st.open) == 0 && r.IntN(4) == 0:
			st.leased = false
			add(b, Free, st.lease, 0)
		default:
			access++
			st.open = append(st.open, access)
			add(b, Begin, access, clock)
		}
	}
	return h
}

// spoil moves, drops or changes some operations, so that many histories are no
// longer legal.
func (h *history) spoil(r *rand.Rand, clocks int) {
	for range 1 + r.IntN(2) {
		if len(h.ops) < 2 {
			return
		}
		op := &h.ops[r.IntN(len(h.ops))]
		switch r.IntN(6) {
		case 0, 1, 2:
			d := r.Int64N(21) - 10
			op.T, op.T2 = op.T+d, op.T2+d
		case 3:
			op.Clock = uint16(r.IntN(clocks))
		case 4:
			lease := uint32(r.IntN(3))
			for i := range h.ops { // a begin and its end mean the same lease
				if o := &h.ops[i]; !o.Kind.mutates() && o.Who == op.Who {
					o.Lease = lease
				}
			}
		case 5:
			i := r.IntN(len(h.ops))
			h.ops = append(h.ops[:i], h.ops[i+1:]...)
		}
	}
}

// state is the state of one block for Porcupine. It is judged by definition: an
// operation is allowed or it is not.
type state struct {
	done, lease uint32 // mutations and allocs so far
	holder      uint32
	leased      bool
	open        [12]uint32 // accesses whose end was seen, 0 for none
}

// step is one operation as Porcupine sees it.
type step struct {
	op    Op
	chain uint32 // a mutation: how many come before it
	ended bool   // a begin whose end was seen
}

func (s state) step(in *step) (bool, state) {
	op := &in.op
	if op.Kind.mutates() && in.chain != s.done {
		return false, s
	}
	switch op.Kind {
	case Alloc:
		ok := !s.leased
		s.done, s.lease, s.leased, s.holder = s.done+1, s.lease+1, true, op.Who
		return ok, s
	case Free:
		ok := s.leased && s.open == [12]uint32{} && (op.Who == 0 || op.Who == s.holder)
		s.done, s.leased, s.holder = s.done+1, false, 0
		return ok, s
	case Begin:
		if !s.leased || s.lease != op.Lease {
			return false, s
		}
		if in.ended {
			i := index(s.open, 0)
			if i < 0 {
				panic("more accesses open at once than the tests draw")
			}
			s.open[i] = op.Who
		}
		return true, s
	case End:
		i := index(s.open, op.Who)
		if i < 0 {
			return false, s
		}
		s.open[i] = 0
		return true, s.sorted()
	}
	panic("no such operation in the tests")
}

func (s state) sorted() state {
	for i := 1; i < len(s.open); i++ {
		for j := i; j > 0 && s.open[j-1] < s.open[j]; j-- {
			s.open[j-1], s.open[j] = s.open[j], s.open[j-1]
		}
	}
	return s
}

func index(open [12]uint32, who uint32) int {
	for i, w := range open {
		if w == who {
			return i
		}
	}
	return -1
}

var model = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		var parts [][]porcupine.Operation
		for _, op := range all {
			b := int(op.Input.(*step).op.Block)
			for len(parts) <= b {
				parts = append(parts, nil)
			}
			parts[b] = append(parts[b], op)
		}
		return parts
	},
	Init: func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) {
		ok, next := s.(state).step(in.(*step))
		return ok, next
	},
	Hash: func(s any) uint64 {
		x := s.(state)
		h := uint64(x.done)<<32 | uint64(x.lease)
		for _, o := range x.open {
			h = (h ^ uint64(o)) * 0x9e3779b97f4a7c15
		}
		return h
	},
}

// operations makes Porcupine's history: one operation each, on one clock whose
// readings of each of ours are off by skew.
func operations(ops []Op, skew []int64) []porcupine.Operation {
	type key struct{ block, who uint32 }
	ended, muts := map[key]bool{}, map[uint32]uint32{}
	for i := range ops {
		if ops[i].Kind == End {
			ended[key{ops[i].Block, ops[i].Who}] = true
		}
	}
	steps := make([]step, len(ops))
	out := make([]porcupine.Operation, len(ops))
	for i := range ops {
		op := &ops[i]
		steps[i] = step{op: *op, ended: ended[key{op.Block, op.Who}]}
		if op.Kind.mutates() {
			steps[i].chain = muts[op.Block]
			muts[op.Block]++
		}
		off := int64(0)
		if skew != nil {
			off = skew[op.Clock]
		}
		out[i] = porcupine.Operation{ClientId: i, Input: &steps[i], Call: op.T - off, Return: op.T2 - off}
	}
	return out
}
