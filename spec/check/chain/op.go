package chain

import (
	"fmt"
	"math"
)

// Kind is what an operation does.
type Kind uint8

// The operations on a block.
const (
	// Alloc begins the next lease, held by Who.
	Alloc Kind = iota
	// Hold adds the holder Who to the lease.
	Hold
	// Drop takes the holder Who off the lease.
	Drop
	// Free ends the lease. It drops Who; with a Who of 0, the only holder left, if
	// there is one.
	Free
	// Begin starts the access Who under lease Lease.
	Begin
	// End ends the access Who.
	End
	// Gap says that the pool's source lost events here: mutations of the block may
	// be missing between the one before and the one after.
	Gap
)

func (k Kind) String() string {
	names := [...]string{"alloc", "hold", "drop", "free", "begin", "end", "gap"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// mutates reports whether the pool's order places the operation.
func (k Kind) mutates() bool { return k <= Free || k == Gap }

const (
	// Forever is the latest time of an operation that may take effect at any time
	// from its earliest on.
	Forever = math.MaxInt64
	// MaxTime is the largest earliest time, in either direction, that an operation
	// may have: differences of such times do not overflow.
	MaxTime = int64(1) << 60
	// MaxClocks is the largest number of clocks of one history.
	MaxClocks = 512
)

// Op is one operation on one block. It took effect at an instant of the closed
// interval [T, T2], in ns on its clock.
type Op struct {
	Kind  Kind
	Clock uint16
	Block uint32 // numbered from 0 by the caller; memory grows with the largest
	// Lease, of a begin or an end, is the lease that the access means: 1 for the
	// block's first alloc, and so on.
	Lease uint32
	// Who is the holder of a mutation and the access of a begin or an end.
	Who   uint32
	T, T2 int64
}

// Rule is the kind of a violation.
type Rule uint8

// What a history can do wrong.
const (
	// Order: the chain puts First before Second, and the times say the contrary.
	Order Rule = iota
	// NoOffsets: no offsets of the clocks satisfy all bounds; see [Violation.Cycle].
	NoOffsets
	// DoubleAlloc: an alloc of a leased block (BLK-1).
	DoubleAlloc
	// NotHeld: a drop or a free by one who does not hold the lease, a second hold
	// by one who does, or an operation of a free block (BLK-4).
	NotHeld
	// StillHeld: a free while another holder is left (BLK-4).
	StillHeld
	// NoLease: an access that means a lease that the block never had (BLK-3).
	NoLease
	// NoBegin: an end of an access that is not open.
	NoBegin
)

func (r Rule) String() string {
	names := [...]string{
		"against time", "against every offset", "allocated while leased", "not held", "freed while held",
		"no such lease", "ended but not open",
	}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("rule(%d)", uint8(r))
}

// Pair is two operations by their place in the history: the chain puts First
// before Second.
type Pair struct{ First, Second int }

// Violation is a witness that a history is not legal.
type Violation struct {
	Rule  Rule
	Block uint32
	// Pair is, for [Order], the two operations that contradict. For the rules of
	// the state machine, Second is the operation that broke them and First the
	// mutation of the block before it, -1 for none.
	Pair
	// Cycle is, for [NoOffsets], the bounds that contradict: at most one for each
	// clock.
	Cycle []Bound
	// Unsure says that lost events may explain it.
	Unsure bool
}
