package chain

import "errors"

// Check judges a whole history. The mutations of each block must lie in ops in
// the pool's order; accesses may lie anywhere. It sorts the operations by block
// and lease in linear time and memory: 8 bytes an operation.
//
// The violations name operations by their index in ops. The error is that of an
// operation that is out of bounds.
func Check(ops []Op, clocks int) ([]Violation, error) {
	c := NewChecker(clocks)
	c.whole = true
	order, starts, err := byBlock(ops)
	if err != nil {
		return nil, err
	}
	c.block(uint32(max(len(starts)-2, 0)))
	var w walk
	for b := 0; b+1 < len(starts); b++ {
		if err := w.block(c, ops, order[starts[b]:starts[b+1]]); err != nil {
			return nil, err
		}
	}
	return c.Finish(), nil
}

var errTooMany = errors.New("chain: more operations than an index can name")

// byBlock sorts the indexes of operations by block, stably: those of block b are
// order[starts[b]:starts[b+1]].
func byBlock(ops []Op) (order, starts []int32, err error) {
	if len(ops) >= 1<<31-1 {
		return nil, nil, errTooMany
	}
	most := -1
	for i := range ops {
		most = max(most, int(ops[i].Block))
	}
	starts = make([]int32, most+2)
	for i := range ops {
		starts[ops[i].Block+1]++
	}
	for b := range most + 1 {
		starts[b+1] += starts[b]
	}
	order = make([]int32, len(ops))
	for i := range ops {
		at := &starts[ops[i].Block]
		order[*at] = int32(i)
		*at++
	}
	copy(starts[1:], starts[:most+1]) // each has moved to where the next one starts
	starts[0] = 0
	return order, starts, nil
}

// walk is the scratch memory for one block at a time.
type walk struct {
	muts, ends, rest []int32
	// begins and endsOf are chains of accesses by lease.
	first, next []int32
}

// block adds the operations of one block in an order that its chain allows: each
// lease's accesses, begins first, after its alloc.
func (w *walk) block(c *Checker, ops []Op, order []int32) error {
	leases := w.split(ops, order)
	w.file(ops, leases)
	lease := 0
	give := func(i int32) error { return c.add(&ops[i], int(i)) }
	for n, m := range w.muts {
		if err := give(m); err != nil {
			return err
		}
		if ops[m].Kind == Alloc {
			lease++
		}
		// The accesses come with the last mutation before the one that ends the lease.
		if ends := n+1 == len(w.muts) || ops[w.muts[n+1]].Kind == Free || ops[w.muts[n+1]].Kind == Alloc; !ends || lease == 0 {
			continue
		}
		for x := w.first[lease]; x >= 0; x = w.next[x] {
			if err := give(w.rest[x]); err != nil {
				return err
			}
		}
		w.first[lease] = -1
	}
	return w.homeless(c, ops, leases)
}

// split sorts out mutations and accesses, and counts the leases.
func (w *walk) split(ops []Op, order []int32) (leases int) {
	w.muts, w.ends, w.rest = w.muts[:0], w.ends[:0], w.rest[:0]
	for _, i := range order {
		switch k := ops[i].Kind; {
		case k == Begin:
			w.rest = append(w.rest, i)
		case k == End:
			w.ends = append(w.ends, i)
		default:
			w.muts = append(w.muts, i)
			if k == Alloc {
				leases++
			}
		}
	}
	w.rest = append(w.rest, w.ends...)
	return leases
}

// file links the accesses of each lease, in the order of rest; those of leases
// that never were are linked at 0.
func (w *walk) file(ops []Op, leases int) {
	w.first, w.next = w.first[:0], w.next[:0]
	for range leases + 1 {
		w.first = append(w.first, -1)
	}
	for range w.rest {
		w.next = append(w.next, -1)
	}
	for x := len(w.rest) - 1; x >= 0; x-- {
		l := int(ops[w.rest[x]].Lease)
		if l > leases {
			l = 0
		}
		w.next[x], w.first[l] = w.first[l], int32(x)
	}
}

// homeless adds the accesses of leases that the block never had.
func (w *walk) homeless(c *Checker, ops []Op, leases int) error {
	for x := w.first[0]; x >= 0; x = w.next[x] {
		op := ops[w.rest[x]]
		op.Lease = uint32(leases) + 1
		if err := c.add(&op, int(w.rest[x])); err != nil {
			return err
		}
	}
	return nil
}
