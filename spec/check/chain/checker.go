package chain

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrOrder is the error for an access that does not come where its chain puts it:
// its lease has not begun, or is over. [Check] sorts a whole history and never
// meets it.
var ErrOrder = errors.New("chain: an access outside its lease in the order of adding")

// Checker judges operations as they come. They must come in an order that the
// chains allow: the mutations of a block in its pool's order, an access after the
// alloc and before the free of its lease, an end after its begin. Times need no
// order. The zero value is of no use; see [NewChecker].
type Checker struct {
	clocks  int
	offsets *Offsets
	blocks  []block
	// marks holds, for each block, what its chain has come to: three lists of one
	// mark for each clock.
	marks []mark
	n     int  // operations so far
	whole bool // what is added has been sorted: a lease that is not there never was

	// Found lists the violations, at most MaxFound of them; Count counts all.
	Found    []Violation
	Count    int
	MaxFound int
}

// mark is a latest earlier time on one clock, and the operation that set it.
type mark struct {
	t  int64
	op int
}

// unset is the time of a mark that nothing has set.
const unset = math.MinInt64

// block is the state of one block.
type block struct {
	lease   uint32 // the last lease's number, 0 before the first
	leased  bool
	lost    bool // events were lost since the last alloc or free
	out     bool // a lease or its order was violated: it is judged no further
	last    int  // the last mutation, -1 for none
	holders []uint32
	open    []openAccess
}

// openAccess is an access that has begun and not ended, with its begin.
type openAccess struct {
	who   uint32
	clock uint16
	begin mark
}

// The three lists of marks of a block.
const (
	chained = iota // mutations so far
	floor          // what a begin of the current lease comes after: up to its alloc
	top            // what the free comes after: floor, and the lease's accesses
	lists
)

// NewChecker makes a checker of histories on clocks numbered from 0. It panics
// if there are none or more than [MaxClocks].
func NewChecker(clocks int) *Checker {
	if clocks < 1 || clocks > MaxClocks {
		panic(fmt.Sprintf("chain: %d clocks", clocks))
	}
	return &Checker{clocks: clocks, offsets: NewOffsets(clocks), MaxFound: 100}
}

// Add judges the next operation. The only errors are [ErrOrder] and those of an
// operation that is out of the bounds of its fields; the operation is then left
// out.
func (c *Checker) Add(op *Op) error {
	at := c.n
	c.n++
	return c.add(op, at)
}

func (c *Checker) add(op *Op, at int) error {
	if int(op.Clock) >= c.clocks || op.T > op.T2 || op.T < -MaxTime || op.T > MaxTime {
		return fmt.Errorf("chain: operation %d on clock %d at [%d, %d] is out of bounds", at, op.Clock, op.T, op.T2)
	}
	b := c.block(op.Block)
	if b.out {
		return nil
	}
	switch {
	case op.Kind == Gap:
		b.lost = true
	case op.Kind.mutates():
		c.mutate(b, op, at)
	case op.Kind == Begin || op.Kind == End:
		return c.access(b, op, at)
	default:
		return fmt.Errorf("chain: operation %d is of no known kind", at)
	}
	return nil
}

func (c *Checker) block(id uint32) *block {
	for uint32(len(c.blocks)) <= id {
		c.blocks = append(c.blocks, block{last: -1})
		for range lists * c.clocks {
			c.marks = append(c.marks, mark{t: unset})
		}
	}
	return &c.blocks[id]
}

// list returns one of the lists of marks of a block.
func (c *Checker) list(id uint32, which int) []mark {
	at := (int(id)*lists + which) * c.clocks
	return c.marks[at : at+c.clocks]
}

// mutate judges a mutation: the state machine first, then the time.
func (c *Checker) mutate(b *block, op *Op, at int) {
	if r, ok := b.breach(op); !ok {
		c.violate(Violation{Rule: r, Block: op.Block, Pair: Pair{b.last, at}, Unsure: b.lost})
		if r == DoubleAlloc && !b.lost {
			b.out = true
			return
		}
	}
	chain := c.list(op.Block, chained)
	c.after(b, chain, op, at)
	if op.Kind == Free && b.leased {
		c.after(b, c.list(op.Block, top), op, at)
	}
	chain[op.Clock] = later(chain[op.Clock], mark{op.T, at})
	switch op.Kind {
	case Alloc:
		b.lease++
		b.leased, b.lost = true, false
		b.holders, b.open = append(b.holders[:0], op.Who), b.open[:0]
		copy(c.list(op.Block, floor), chain)
		copy(c.list(op.Block, top), chain)
	case Hold:
		if b.leased && !slices.Contains(b.holders, op.Who) {
			b.holders = append(b.holders, op.Who)
		}
	case Drop:
		b.leave(op.Who)
	case Free:
		if b.leased {
			// What the accesses bound, the next alloc comes after as well.
			for i, m := range c.list(op.Block, top) {
				chain[i] = later(chain[i], m)
			}
		}
		b.leased, b.lost = false, false
		b.holders, b.open = b.holders[:0], b.open[:0]
	}
	b.last = at
}

// breach says which rule of the state machine a mutation breaks.
func (b *block) breach(op *Op) (Rule, bool) {
	holds := slices.Contains(b.holders, op.Who)
	switch op.Kind {
	case Alloc:
		return DoubleAlloc, !b.leased
	case Hold:
		return NotHeld, b.leased && !holds
	case Drop:
		return NotHeld, b.leased && holds
	}
	switch { // a free
	case !b.leased, op.Who != 0 && !holds:
		return NotHeld, false
	case len(b.holders) > 1:
		return StillHeld, false
	}
	return 0, true
}

func (b *block) leave(who uint32) {
	if i := slices.Index(b.holders, who); i >= 0 {
		b.holders = slices.Delete(b.holders, i, i+1)
	}
}

// access judges the begin or the end of an access.
func (c *Checker) access(b *block, op *Op, at int) error {
	switch {
	case op.Lease > b.lease && !c.whole:
		return ErrOrder
	case op.Lease == 0 || op.Lease > b.lease:
		c.violate(Violation{Rule: NoLease, Block: op.Block, Pair: Pair{b.last, at}, Unsure: b.lost})
		return nil
	case op.Lease < b.lease || !b.leased:
		return ErrOrder
	}
	tops := c.list(op.Block, top)
	if op.Kind == Begin {
		c.after(b, c.list(op.Block, floor), op, at)
		b.open = append(b.open, openAccess{op.Who, op.Clock, mark{op.T, at}})
		tops[op.Clock] = later(tops[op.Clock], mark{op.T, at})
		return nil
	}
	// Accesses end soon or not at all: the last ones first.
	for i := len(b.open) - 1; i >= 0; i-- {
		if a := b.open[i]; a.who == op.Who {
			c.after(b, c.list(op.Block, floor), op, at)
			c.bound(b, a.clock, a.begin, op, at)
			b.open[i] = b.open[len(b.open)-1]
			b.open = b.open[:len(b.open)-1]
			tops[op.Clock] = later(tops[op.Clock], mark{op.T, at})
			return nil
		}
	}
	c.violate(Violation{Rule: NoBegin, Block: op.Block, Pair: Pair{b.last, at}, Unsure: b.lost})
	return nil
}

func later(a, b mark) mark {
	if b.t > a.t {
		return b
	}
	return a
}

// after demands that an operation comes after all that a list of marks stands for.
func (c *Checker) after(b *block, marks []mark, op *Op, at int) {
	for clock, m := range marks {
		if m.t != unset {
			c.bound(b, uint16(clock), m, op, at)
		}
	}
}

// bound demands that an operation comes after one of another clock.
func (c *Checker) bound(b *block, clock uint16, m mark, op *Op, at int) {
	switch {
	case op.T2 == Forever || b.out:
	case clock != op.Clock:
		c.offsets.Tighten(clock, op.Clock, spread(op.T2, m.t), Pair{m.op, at})
	case op.T2 < m.t:
		c.violate(Violation{Rule: Order, Block: op.Block, Pair: Pair{m.op, at}})
		b.out = true
	}
}

// spread is later − earlier, at most 2·[MaxTime].
func spread(later, earlier int64) int64 { return min(later, MaxTime) - earlier }

func (c *Checker) violate(v Violation) {
	c.Count++
	if len(c.Found) < c.MaxFound {
		c.Found = append(c.Found, v)
	}
}

// Offsets are the bounds between clocks that the operations so far impose. The
// caller may tighten them by what it knows otherwise.
func (c *Checker) Offsets() *Offsets { return c.offsets }

// Finish solves for the clocks' offsets and returns all that was found, the most
// telling first: what contradicts on one clock, then the clocks.
func (c *Checker) Finish() []Violation {
	if cycle := c.offsets.Contradiction(); cycle != nil {
		c.violate(Violation{Rule: NoOffsets, Pair: cycle[0].Pair, Cycle: cycle})
	}
	return c.Found
}
