package check

// sliceOf says what a trace that is the core of a longer one does not say itself: the
// order that the rest imposes, and which leases of their blocks its leases are. The
// nil slice is a whole trace.
type sliceOf struct {
	carrier []bool  // of each event: it is there for its time and place only
	at      []int32 // of each event: its position in the longer trace
	ties    [orders][]edge
	gens    map[genKey]int
	zeros   map[string]int64 // of each clock by name: its first time
	core    map[coreKey]map[int64]bool
	next    map[int32][]int32 // of each event: those that it is known to lead to

	// What a judge finds out: that it needs all that happened to some blocks, and
	// that it cannot tell.
	needed map[coreKey][]int64
	unfit  bool
}

// genKey is a block that an alloc names.
type genKey struct {
	event  int32
	number int64
}

func (s *sliceOf) carries(e int) bool { return s != nil && s.carrier[e] }

// imposed lists the edges that the rest of the trace adds to an order.
func (s *sliceOf) imposed(order int) []edge {
	if s == nil {
		return nil
	}
	return s.ties[order]
}

// told lists the events to which signals and program order lead from an event.
func (s *sliceOf) told(e int32) []int32 {
	if s == nil {
		return nil
	}
	if s.next == nil {
		s.next = map[int32][]int32{}
		for _, t := range s.ties[orderTold] {
			s.next[t.from] = append(s.next[t.from], t.to)
		}
	}
	return s.next[e]
}

// gen says which lease of a block an alloc begins, 0 where counting tells.
func (s *sliceOf) gen(alloc int32, number int64) int {
	if s == nil {
		return 0
	}
	return s.gens[genKey{alloc, number}]
}

// needs notes that all that happened to a block is needed, if it is not there.
func (s *sliceOf) needs(pool coreKey, number int64) {
	if s.core[pool][number] {
		return
	}
	if s.needed == nil {
		s.needed = map[coreKey][]int64{}
	}
	s.needed[pool] = append(s.needed[pool], number)
}
