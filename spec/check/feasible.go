package check

import (
	"slices"

	"conform/spec/check/clock"
)

// maxEnds bounds the events that one question may name.
const maxEnds = 16

// feasible reports whether a legal order exists that also has the given edges.
// An edge with none at either end says nothing.
//
// It is exact, and needs only the few events that the edges name: between any
// two of them, what the whole trace imposes is a bound on their distance in time
// (slack) and whether the graph orders them (reaches). The edges are feasible
// iff they close no cycle with the latter and no negative cycle with the former.
//
// Where accesses can be placed in several ways, each must still have one. (That
// all have one together is not asked again: with two or more such accesses the
// answer may be yes too often.)
func (o *order) feasible(edges ...edge) bool {
	if !o.allows(edges) {
		return false
	}
	for _, ways := range o.open {
		if !slices.ContainsFunc(ways, func(way []edge) bool { return o.allows(slices.Concat(edges, way)) }) {
			return false
		}
	}
	return true
}

// allows is feasible by what is certain alone.
func (o *order) allows(edges []edge) bool {
	q, ok := o.ask(edges)
	if !ok || !q.close() {
		return false
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

// ask puts edges into a question, with the distances that the clocks give. It is
// false if an edge leads to where it comes from.
func (o *order) ask(edges []edge) (q question, ok bool) {
	for _, e := range edges {
		if e.from == none || e.to == none {
			continue
		}
		i, j := q.place(e.from), q.place(e.to)
		if i == j {
			return q, false
		}
		q.first[i][j] = true
	}
	q.measure(o.clocks.Slack)
	if o.h.driftPPM > 0 && !(&question{n: q.n, dist: q.dist}).consistent() {
		q.measure(o.clocks.Across) // see clock.Slack
	}
	return q, true
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

func (q *question) measure(slack func(u, v int32) int64) {
	for i := range q.n {
		for j := range q.n {
			if i != j {
				q.dist[i][j] = slack(q.ends[i], q.ends[j])
			}
		}
	}
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
	d := q.hops()
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

// hops is how far one end can lie after another, by one bound or one edge.
func (q *question) hops() [maxEnds][maxEnds]int64 {
	d := q.dist
	for i := range q.n {
		for j := range q.n {
			if q.first[i][j] {
				d[i][j] = min(d[i][j], 0)
			}
		}
	}
	return d
}

// bounded reports whether a hop is a bound by clocks, and not an edge.
func (q *question) bounded(hop [2]int) bool {
	return !q.first[hop[0]][hop[1]] || q.dist[hop[0]][hop[1]] < 0
}

// negative finds hops that lead back to where they began and add up to less than
// zero, nil if there are none. Some hop of them is a bound.
func (q *question) negative() [][2]int {
	type way struct {
		length int64
		last   int // the end before the last
	}
	hops := q.hops()
	for start := range q.n {
		// Ways of growing length from start, so that the first way back is simple.
		ways := [][maxEnds]way{{}}
		for i := range q.n {
			ways[0][i].length = unbounded
		}
		ways[0][start].length = 0
		for n := 1; n <= q.n; n++ {
			was, now := &ways[n-1], [maxEnds]way{}
			for j := range q.n {
				now[j].length = unbounded
				for i := range q.n {
					if w := plus(was[i].length, hops[i][j]); i != j && w < now[j].length {
						now[j] = way{w, i}
					}
				}
			}
			ways = append(ways, now)
			if now[start].length >= 0 {
				continue
			}
			out := make([][2]int, n)
			for at := start; n > 0; n-- {
				out[n-1] = [2]int{ways[n][at].last, at}
				at = ways[n][at].last
			}
			return out
		}
	}
	return nil
}

const unbounded = clock.Unbounded

// plus adds distances, any of which may be unbounded.
func plus(a, b int64) int64 {
	if a >= unbounded || b >= unbounded {
		return unbounded
	}
	return max(a+b, -unbounded)
}
