package check

// maxEnds bounds the events that one question may name.
const maxEnds = 12

// feasible reports whether a legal order exists that also has the given edges.
// An edge with none at either end says nothing.
//
// It is exact, and needs only the few events that the edges name: between any
// two of them, what the whole trace imposes is a bound on their distance in time
// (slack) and whether the graph orders them (reaches). The edges are feasible
// iff they close no cycle with the latter and no negative cycle with the former.
func (o *order) feasible(edges ...edge) bool {
	var q question
	for _, e := range edges {
		if e.from == none || e.to == none {
			continue
		}
		i, j := q.place(e.from), q.place(e.to)
		if i == j {
			return false
		}
		q.first[i][j] = true
	}
	if !q.close() {
		return false
	}
	for i := range q.n {
		for j := range q.n {
			if i != j {
				q.dist[i][j] = o.slack(q.ends[i], q.ends[j])
			}
		}
	}
	if !q.consistent() {
		return false
	}
	learnt := false
	for i := range q.n {
		for j := range q.n {
			if i != j && !q.first[i][j] && o.reaches(q.ends[i], q.ends[j]) {
				q.first[i][j], learnt = true, true
			}
		}
	}
	return !learnt || q.close() && q.consistent()
}

// mayPrecede reports whether a before b is possible in some legal order.
func (o *order) mayPrecede(a, b int32) bool { return o.feasible(edge{a, b}) }

// surelyBefore reports whether a comes before b in every legal order.
func (o *order) surelyBefore(a, b int32) bool { return a != b && !o.feasible(edge{b, a}) }

// question is a small system: the ends of its edges, what precedes what, and how
// far one can lie after another.
type question struct {
	n     int
	ends  [maxEnds]int32
	first [maxEnds][maxEnds]bool
	dist  [maxEnds][maxEnds]int64
}

func (q *question) place(e int32) int {
	for i := range q.n {
		if q.ends[i] == e {
			return i
		}
	}
	if q.n == maxEnds {
		panic("check: a question about too many events")
	}
	q.ends[q.n] = e
	q.n++
	return q.n - 1
}

// close takes the transitive closure of the order, and reports that it has no
// cycle.
func (q *question) close() bool {
	for k := range q.n {
		for i := range q.n {
			if !q.first[i][k] {
				continue
			}
			for j := range q.n {
				if q.first[k][j] {
					q.first[i][j] = true
				}
			}
		}
	}
	for i := range q.n {
		if q.first[i][i] {
			return false
		}
	}
	return true
}

// consistent reports that instants exist: no negative cycle of distances, where
// an event that precedes another lies at most 0 after it.
func (q *question) consistent() bool {
	d := q.dist
	for i := range q.n {
		for j := range q.n {
			if q.first[i][j] {
				d[i][j] = min(d[i][j], 0)
			}
		}
	}
	for k := range q.n {
		for i := range q.n {
			for j := range q.n {
				d[i][j] = min(d[i][j], plus(d[i][k], d[k][j]))
			}
		}
	}
	for i := range q.n {
		if d[i][i] < 0 {
			return false
		}
	}
	return true
}
