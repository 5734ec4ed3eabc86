package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Breach says that an operation broke a rule of a machine.
type Breach struct {
	Rule RuleID
	// Text says in words what was wrong, as a clause that can follow the name of
	// the object: "it is leased already, by r1".
	Text string
}

func (b *Breach) Error() string { return string(b.Rule) + ": " + b.Text }

func breach(rule RuleID, format string, args ...any) *Breach {
	return &Breach{Rule: rule, Text: fmt.Sprintf(format, args...)}
}

// Holder is one reason why a lease lives. Its Name identifies it within the
// lease; Req and Handoff are empty for a cache.
type Holder struct{ Name, Req, Handoff string }

// Grant exposes the current lease to an accessor under a handoff, for one mode.
// A grant of mode rw is two of them.
type Grant struct {
	Handoff string
	To      string // a worker, or * for any
	Mode    string // r or w
	// Except lists the workers from which a grant to * was taken back, sorted.
	Except []string
}

// covers reports whether the grant lets worker by access in the given mode.
func (g Grant) covers(handoff, by, mode string) bool {
	return g.Handoff == handoff && g.Mode == mode &&
		(g.To == by || g.To == "*" && !slices.Contains(g.Except, by))
}

// OpenAccess is an access that has begun and not ended.
type OpenAccess struct {
	ID      string
	By      string // the worker that accesses
	Handoff string
	Mode    string // r or w
	Remote  bool   // by another worker than the pool's
}

// Block is the life of one block: Free → Leased(generation, holders, grants,
// open accesses) → Free. The zero value is a free block that was never leased.
//
// It is a value: [Block.Step] returns a new one and changes nothing that it was
// given, slices included. Two equal blocks have the same [Block.Key], whatever
// order their operations came in, so that judges and the exhaustive exploration
// can use it as a state.
type Block struct {
	// Generation counts the leases that the block has had; (block, generation)
	// names a lease. The first is 1.
	Generation int
	Leased     bool
	Holders    []Holder     // sorted by name; empty between the last drop and the free
	Grants     []Grant      // sorted
	Open       []OpenAccess // sorted by ID
	// Fenced lists the handoffs that the owner's memory protection keeps out,
	// sorted. It outlives the lease: what was posted under a revoked key is turned
	// away whoever leases the block then.
	Fenced []string
}

// BlockOp is one operation on one block.
type BlockOp struct {
	// Kind is one of alloc, hold, drop, free, grant, revoke, fence, begin, end.
	Kind Kind
	// Holder is who allocates, holds, drops or frees. A free with an empty name
	// drops the only holder left, if there is one.
	Holder  Holder
	Handoff string // grant, revoke, fence, begin
	To      string // grant, revoke
	Mode    string // grant, revoke: r, w or rw; begin: r or w
	Access  string // begin, end
	By      string // begin: the worker that accesses
	Remote  bool   // begin: By is not the pool's worker
	// Generation, for a begin, is the lease that the accessor means: the one that
	// it was granted, or that its request holds. A trace does not say it; a judge
	// tries those that the grants and holders allow.
	Generation int
	// Granted, for a begin, says that the accessor refers to the lease by a grant
	// of its handoff, not by holding it.
	Granted bool
}

// Step applies one operation. A nil Breach means that the rules allow it.
//
// With a Breach, the Block returned is the one to judge on with: what the owner
// did to its own pool happened all the same (a second alloc replaces the lease,
// a free frees), and anything else is as if it had not been. It never panics; an
// operation of another kind changes nothing.
func (b Block) Step(op BlockOp) (Block, *Breach) {
	switch op.Kind {
	case KindAlloc:
		return b.alloc(op)
	case KindHold:
		return b.hold(op)
	case KindDrop:
		return b.drop(op)
	case KindFree:
		return b.free(op)
	case KindGrant:
		return b.grant(op)
	case KindRevoke:
		return b.revoke(op), nil
	case KindFence:
		return b.fence(op), nil
	case KindBegin:
		return b.begin(op)
	case KindEnd:
		b.Open = without(b.Open, func(a OpenAccess) bool { return a.ID == op.Access })
	}
	return b, nil
}

func (b Block) alloc(op BlockOp) (Block, *Breach) {
	next := Block{Generation: b.Generation + 1, Leased: true, Fenced: b.Fenced}
	if op.Holder.Name != "" {
		next.Holders = []Holder{op.Holder}
	}
	if b.Leased {
		return next, breach(BLK1, "it is allocated to %s while %s", op.Holder.Name, b.held())
	}
	return next, nil
}

// held says who keeps the lease, for a Breach.
func (b Block) held() string {
	if len(b.Holders) == 0 {
		return fmt.Sprintf("lease %d of it, which nobody holds, has not ended", b.Generation)
	}
	names := make([]string, len(b.Holders))
	for i, h := range b.Holders {
		names[i] = h.Name
	}
	return fmt.Sprintf("%s still holds lease %d of it", strings.Join(names, " and "), b.Generation)
}

func (b Block) holds(name string) bool {
	return slices.ContainsFunc(b.Holders, func(h Holder) bool { return h.Name == name })
}

func (b Block) hold(op BlockOp) (Block, *Breach) {
	switch {
	case !b.Leased:
		return b, breach(BLK4, "%s takes hold of it while it is free", op.Holder.Name)
	case b.holds(op.Holder.Name):
		return b, breach(BLK4, "%s takes hold of lease %d of it twice", op.Holder.Name, b.Generation)
	}
	b.Holders = insert(b.Holders, op.Holder, func(x, y Holder) int { return strings.Compare(x.Name, y.Name) })
	return b, nil
}

func (b Block) drop(op BlockOp) (Block, *Breach) {
	if !b.holds(op.Holder.Name) {
		return b, b.notHeld(op.Holder.Name, "drops")
	}
	b.Holders = without(b.Holders, func(h Holder) bool { return h.Name == op.Holder.Name })
	return b, nil
}

func (b Block) notHeld(name, verb string) *Breach {
	if !b.Leased {
		return breach(BLK4, "%s %s it while it is free", name, verb)
	}
	return breach(BLK4, "%s %s lease %d of it, which it does not hold (any more)", name, verb, b.Generation)
}

func (b Block) free(op BlockOp) (Block, *Breach) {
	next := Block{Generation: b.Generation, Fenced: b.Fenced}
	if !b.Leased {
		return next, breach(BLK4, "it is freed while it is free")
	}
	left := b.Holders
	if name := op.Holder.Name; name != "" {
		if !b.holds(name) {
			return next, b.notHeld(name, "frees")
		}
		left = without(left, func(h Holder) bool { return h.Name == name })
	} else if len(left) == 1 {
		left = nil
	}
	switch {
	case len(left) > 0:
		b.Holders = left
		return next, breach(BLK4, "it is freed while %s", b.held())
	case len(b.Open) > 0:
		a := b.Open[0]
		return next, breach(BLK2, "lease %d of it ends while access %s by %s is open", b.Generation, a.ID, a.By)
	}
	return next, nil
}

func (b Block) grant(op BlockOp) (Block, *Breach) {
	if !b.Leased {
		return b, breach(BLK4, "it is granted to %s under handoff %s while it is free", op.To, op.Handoff)
	}
	for _, mode := range op.Mode {
		g := Grant{Handoff: op.Handoff, To: op.To, Mode: string(mode)}
		b.Grants = without(b.Grants, func(o Grant) bool {
			return o.Handoff == g.Handoff && o.To == g.To && o.Mode == g.Mode
		})
		b.Grants = insert(b.Grants, g, compareGrants)
	}
	return b, nil
}

func compareGrants(x, y Grant) int {
	return slices.Compare([]string{x.Handoff, x.To, x.Mode}, []string{y.Handoff, y.To, y.Mode})
}

// revoke takes back what the grants of the handoff gave to the accessor: a
// revoke to * takes all, one to a worker leaves a grant to * to all others.
func (b Block) revoke(op BlockOp) Block {
	var kept []Grant
	for _, g := range b.Grants {
		if g.Handoff == op.Handoff && strings.Contains(op.Mode, g.Mode) {
			switch {
			case op.To == "*" || op.To == g.To:
				continue
			case g.To == "*" && !slices.Contains(g.Except, op.To):
				g.Except = insert(g.Except, op.To, strings.Compare)
			}
		}
		kept = append(kept, g)
	}
	b.Grants = kept
	return b
}

func (b Block) fence(op BlockOp) Block {
	b.Open = without(b.Open, func(a OpenAccess) bool { return a.Remote && a.Handoff == op.Handoff })
	if !slices.Contains(b.Fenced, op.Handoff) {
		b.Fenced = insert(b.Fenced, op.Handoff, strings.Compare)
	}
	return b
}

func (b Block) begin(op BlockOp) (Block, *Breach) {
	if op.Remote && op.Handoff != "" && slices.Contains(b.Fenced, op.Handoff) {
		return b, nil // turned away by the owner's memory protection: it touches nothing
	}
	switch {
	case !b.Leased:
		return b, breach(BLK3, "access %s by %s begins while it is free", op.Access, op.By)
	case b.Generation != op.Generation:
		return b, breach(BLK3, "access %s by %s, which means lease %d, begins under lease %d of it",
			op.Access, op.By, op.Generation, b.Generation)
	case op.Granted && !slices.ContainsFunc(b.Grants, func(g Grant) bool { return g.covers(op.Handoff, op.By, op.Mode) }):
		return b, breach(BLK3, "access %s by %s begins while no grant of handoff %s to it for mode %s is in force",
			op.Access, op.By, op.Handoff, op.Mode)
	}
	b.Open = insert(b.Open, OpenAccess{op.Access, op.By, op.Handoff, op.Mode, op.Remote},
		func(x, y OpenAccess) int { return strings.Compare(x.ID, y.ID) })
	return b, nil
}

// Equal reports whether two blocks are the same state.
func (b Block) Equal(o Block) bool {
	return b.Generation == o.Generation && b.Leased == o.Leased &&
		slices.Equal(b.Holders, o.Holders) && slices.Equal(b.Open, o.Open) && slices.Equal(b.Fenced, o.Fenced) &&
		slices.EqualFunc(b.Grants, o.Grants, func(x, y Grant) bool {
			return compareGrants(x, y) == 0 && slices.Equal(x.Except, y.Except)
		})
}

// Key is the state as a string: equal for equal states only. It is meant for
// maps, not for people.
func (b Block) Key() string {
	k := strconv.AppendInt(nil, int64(b.Generation), 10)
	k = strconv.AppendBool(append(k, ' '), b.Leased)
	for _, h := range b.Holders {
		k = appendKey(k, 'h', h.Name, h.Req, h.Handoff)
	}
	for _, g := range b.Grants {
		k = appendKey(k, 'g', g.Handoff, g.To, g.Mode)
		k = appendKey(k, 'x', g.Except...)
	}
	for _, a := range b.Open {
		k = strconv.AppendBool(appendKey(k, 'a', a.ID, a.By, a.Handoff, a.Mode), a.Remote)
	}
	return string(appendKey(k, 'f', b.Fenced...))
}

// appendKey appends quoted parts, so that no two lists of parts look the same.
func appendKey(k []byte, tag byte, parts ...string) []byte {
	k = append(k, ' ', tag)
	for _, p := range parts {
		k = strconv.AppendQuote(k, p)
	}
	return k
}

// insert returns a copy of the sorted list with x at its place.
func insert[T any](list []T, x T, cmp func(T, T) int) []T {
	i, _ := slices.BinarySearchFunc(list, x, cmp)
	out := make([]T, 0, len(list)+1)
	out = append(out, list[:i]...)
	out = append(out, x)
	return append(out, list[i:]...)
}

// without returns the list without the items that match: itself if none does,
// nil if none is left.
func without[T any](list []T, match func(T) bool) []T {
	if !slices.ContainsFunc(list, match) {
		return list
	}
	var out []T
	for _, x := range list {
		if !match(x) {
			out = append(out, x)
		}
	}
	return out
}
