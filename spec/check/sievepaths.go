package check

// sieveKnows is what one thread knows within a group: how far the events of other
// threads lead to it by program order and by signals that concern the group. It is
// a vector clock with as many entries as threads have told it something.
type sieveKnows struct {
	thread int32
	of     []sieveKnown
}

// sieveKnown says that the events of a thread up to a position lead here, by paths
// of each kind of signal. Positions count from 1; 0 is none.
type sieveKnown struct {
	thread int32
	by     [pathKinds]int32
}

// The kinds of path that question 2 asks for, by the signals that they may take.
const (
	pathAny   = iota // any signal
	pathEnded        // drained, or completed without a list
	pathQuiet        // drained, stopped, or completed without a list
	pathKinds
)

// knows finds what a thread knows, nil if nothing.
func (g *sieveGroup) knows(thread int32) *sieveKnows {
	for i := range g.threads {
		if g.threads[i].thread == thread {
			return &g.threads[i]
		}
	}
	return nil
}

// learn takes in that events of another thread lead to this one.
func (g *sieveGroup) learn(thread int32, k sieveKnown) {
	if k.thread == thread {
		return
	}
	to := g.knows(thread)
	if to == nil {
		g.threads = append(g.threads, sieveKnows{thread: thread})
		to = &g.threads[len(g.threads)-1]
	}
	for i := range to.of {
		if o := &to.of[i]; o.thread == k.thread {
			for kind, p := range k.by {
				o.by[kind] = max(o.by[kind], p)
			}
			return
		}
	}
	to.of = append(to.of, k)
}

func (g *sieveGroup) learnAll(from *sieveKnows) {
	for _, k := range from.of {
		g.learn(from.thread, k)
	}
}

// leads reports whether a path leads from an event, by its thread and position,
// to the thread's current event.
func (g *sieveGroup) leads(kind int, from, at, to int32) bool {
	if from == to {
		return true
	}
	if g == nil {
		return false
	}
	if k := g.knows(to); k != nil {
		for i := range k.of {
			if k.of[i].thread == from {
				return k.of[i].by[kind] >= at
			}
		}
	}
	return false
}

// tells is what a signal of a thread at a position carries to its observers.
func (g *sieveGroup) tells(buf []sieveKnown, thread, at int32, admissible [pathKinds]bool) []sieveKnown {
	mask := func(k sieveKnown) sieveKnown {
		for kind, ok := range admissible {
			if !ok {
				k.by[kind] = 0
			}
		}
		return k
	}
	if k := g.knows(thread); k != nil {
		for _, o := range k.of {
			buf = append(buf, mask(o))
		}
	}
	return append(buf, mask(sieveKnown{thread, [pathKinds]int32{at, at, at}}))
}
