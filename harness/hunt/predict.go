package hunt

import (
	"cmp"
	"maps"
	"slices"

	"conform/spec"
	"conform/spec/check"
)

// Class is a kind of access to memory that is passed between stages.
type Class struct {
	By    spec.Role `json:"by"`    // who accesses
	Owner spec.Role `json:"owner"` // whose memory it is
	Pool  string    `json:"pool"`
	Mode  string    `json:"mode"` // r, w
	// Own is the owner's own half of a transfer: the read of its source, the write of
	// what was fetched.
	Own bool `json:"own,omitempty"`
}

// String says it in words: "prefill's write of decode/kv".
func (c Class) String() string {
	what, whose := "read", string(c.Owner)+"/"
	if c.Mode == "w" {
		what = "write"
	}
	if c.Own {
		whose = "its own "
	}
	return string(c.By) + "'s " + what + " of " + whose + c.Pool
}

func classOf(m check.Meeting) Class {
	return Class{By: m.By, Owner: m.Owner, Pool: m.Pool, Mode: m.Mode, Own: m.Own}
}

// Seen is how a clean run showed a class of accesses meet one way of ending a lease.
type Seen struct {
	Times    int `json:"times"`
	Unproven int `json:"unproven,omitempty"` // where nothing ordered the two
	// Ordered counts what did: kinds of signals, a fence, program order.
	Ordered map[string]int `json:"ordered,omitempty"`
}

// Prediction is a pair whose order may go wrong: accesses of a class, and the end of
// their lease in one way.
type Prediction struct {
	Mode  string `json:"mode"` // of the stack
	Class Class  `json:"class"`
	End   string `json:"end"` // name of the [End]
	Seen  Seen   `json:"seen"`

	// through is the class whose accesses a plan can hold: the far half of a transfer,
	// where it is about what the accessor does with its own memory.
	through Class
}

// grounds ranks predictions: what nothing ordered was luck already, what was never met
// is open, what was ordered is ordered until a signal is found to lie.
func (p Prediction) grounds() int {
	switch {
	case p.Seen.Unproven > 0:
		return 0
	case p.Seen.Times == 0:
		return 1
	}
	return 2
}

// predict lists what a judged run leaves open in one mode: each class of accesses that
// it shows, against each way in which the stack can be made to end a lease. With about,
// only what that finding is about.
func predict(mode string, meetings []check.Meeting, about *check.Finding) []Prediction {
	seen, known := map[Class]map[string]*Seen{}, map[Class]bool{}
	for _, m := range meetings {
		if m.By == "" || m.Owner == "" {
			continue
		}
		c := classOf(m)
		known[c] = true
		if !concerns(m, about) {
			continue
		}
		if seen[c] == nil {
			seen[c] = map[string]*Seen{}
		}
		s := seen[c][m.Why]
		if s == nil {
			s = &Seen{Ordered: map[string]int{}}
			seen[c][m.Why] = s
		}
		s.Times++
		if m.Ordered == "" && m.Why != "" {
			s.Unproven++
		} else if m.Why != "" {
			s.Ordered[m.Ordered]++
		}
	}
	var all []Prediction
	for _, c := range slices.SortedFunc(maps.Keys(seen), compareClasses) {
		if c.Own && through(c, known) == c { // no half of a transfer: its own thread does it, and nobody is asked
			continue
		}
		for _, e := range Ends() {
			if e.applies(c) {
				p := Prediction{Mode: mode, Class: c, End: e.Name, Seen: e.seen(seen[c]), through: through(c, known)}
				if about == nil || p.Seen.Times > 0 {
					all = append(all, p)
				}
			}
		}
	}
	return all
}

// through finds the other half of a transfer among the classes that a run shows.
func through(c Class, known map[Class]bool) Class {
	for _, o := range slices.SortedFunc(maps.Keys(known), compareClasses) {
		if c.Own && !o.Own && o.By == c.By && o.Pool == c.Pool && o.Mode != c.Mode {
			return o
		}
	}
	return c
}

// concerns reports whether a meeting is what a finding speaks of.
func concerns(m check.Meeting, f *check.Finding) bool {
	if f == nil {
		return true
	}
	if slices.Contains(f.Events, m.Free) || slices.Contains(f.Events, m.Begin) {
		return f.Block == nil || f.Block.Pool == m.Pool
	}
	return false
}

// compareClasses puts what others access first, and the larger harm before the
// smaller: KV before metadata.
func compareClasses(a, b Class) int {
	rank := func(c Class) int {
		switch {
		case c.Pool != "kv":
			return 2
		case c.Own:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.String(), b.String()))
}

// rank orders predictions of all modes by their grounds, then as the ends and classes
// are listed.
func rank(all []Prediction) {
	ends := map[string]int{}
	for i, e := range Ends() {
		ends[e.Name] = i
	}
	slices.SortStableFunc(all, func(a, b Prediction) int {
		return cmp.Or(cmp.Compare(a.grounds(), b.grounds()), compareClasses(a.Class, b.Class), cmp.Compare(ends[a.End], ends[b.End]))
	})
}
